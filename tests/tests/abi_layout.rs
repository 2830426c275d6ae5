//! Every structure of the plug-in ABI has the layout that C and C++ give it, and that it has always had.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

use kiln_abi::*;
use std::fmt::Write;
use std::mem::offset_of;

mod abi;

/// Size and offsets of structures, as Rust sees them, and a C program that prints the same.
struct Layout {
    rust: String,
    c: String,
}

macro_rules! layout {
    ($($name:ident { $($field:ident),* $(,)? })*) => {{
        let mut l = Layout { rust: String::new(), c: String::new() };
        $(
            // Names every field: a new one has to be listed here.
            let _complete = |x: $name| { let $name { $($field: _),* } = x; };
            writeln!(l.rust, "{} {}", stringify!($name), size_of::<$name>()).unwrap();
            writeln!(l.c, "printf(\"{0} %zu\\n\", sizeof({0}));", stringify!($name)).unwrap();
            $(
                writeln!(l.rust, "  {} {}", stringify!($field), offset_of!($name, $field)).unwrap();
                writeln!(l.c, "printf(\"  {1} %zu\\n\", offsetof({0}, {1}));", stringify!($name), stringify!($field)).unwrap();
            )*
        )*
        l
    }};
}

fn layout() -> Layout {
    layout! {
        kiln_str { ptr, len }
        kiln_bytes { ptr, len }
        kiln_tensor { dtype, ndim, dims, data, len, owner }
        kiln_payload { cbor, tensors, tensor_count, blobs, blob_count }
        kiln_descriptor {
            magic, struct_size, abi_major, abi_minor, min_host_minor, kinds, flags, name, vendor, version, build_id,
            target, init, deinit, get_interface,
        }
        kiln_host {
            struct_size, abi_major, abi_minor, reserved, ctx, log, error_set, error_detail, alloc, free, sink_write,
            tensor_write, retain, release, now_ns, is_cancelled, get_interface,
        }
        kiln_time_request { struct_size, samples, graph, tactic, blob, inputs, input_count }
        kiln_run { struct_size, reserved, inputs, input_count, values, value_count, shapes_id, shapes }
        kiln_allocator { struct_size, reserved, ctx, allocate, free }
        kiln_counters { struct_size, reserved, runs, allocations, compilations, pipelines, host_syncs }
        kiln_backend_v1 {
            struct_size, reserved, backend_create, backend_destroy, backend_targets, backend_tactics, backend_compile,
            backend_open, device_destroy, device_time, device_load, executable_destroy, executable_context,
            context_destroy, context_enqueue, context_outputs, context_observe, context_set_observable,
            context_step_times, context_counters, context_time_runs, context_set_stream,
            context_bind, context_set_consumed_event, context_wait, context_address, context_host_steps,
            context_stop, backend_supports, executable_context_without_memory, device_load_within,
            context_set_memory, context_set_allocator, device_free_memory, device_read,
            context_set_aux_streams,
        }
        kiln_field { kind, reserved, data, count }
        kiln_field_def { name, doc, required, reserved, value }
        kiln_host_tensor { dtype, ndim, dims, strides, data, bytes }
        kiln_layer_call {
            struct_size, reserved, fields, field_count, inputs, input_count, outputs, output_count, workspace,
            workspace_bytes,
        }
        kiln_layer_kernel {
            struct_size, language, tactic, types, condition, source, entry, grid, block, shared, params, count_entry,
            count_grid, count_block,
        }
        kiln_layer {
            struct_size, flags, name, space, version, doc, fields, field_count, types, outputs, aliases, workspace,
            expression, tolerance, kernels, kernel_count, create, destroy, describe, run, natives, native_count, patterns,
        }
        kiln_native_tensor { dtype, ndim, dims, address, bytes }
        kiln_native_call {
            struct_size, flags, fields, field_count, inputs, input_count, outputs, output_count, workspace,
            workspace_bytes, stream, device, reserved, sizes, input_formats, output_formats,
        }
        kiln_wgpu_dispatch { struct_size, groups, source, entry, words, word_count, memory, memory_count }
        kiln_wgpu_stream { struct_size, reserved, ctx, dispatch, copy, clear }
        kiln_layer_native {
            struct_size, device, flags, reserved, tactic, types, condition, attach, detach, enqueue,
        }
        kiln_layers_v1 { struct_size, reserved, layers, layer_count }
        kiln_host_layers_v1 { struct_size, reserved, run, native_attach, native_enqueue, native_detach }
    }
}

/// Layout of version 1.13, for 64-bit targets. Lines may be added at the end of a structure that begins with
/// `struct_size`; none may change.
const GOLDEN: &str = include_str!("abi/layout.txt");

#[test]
#[cfg(target_pointer_width = "64")]
fn nothing_has_moved() {
    if std::env::var_os("KILN_BLESS").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/abi/layout.txt"), layout().rust).unwrap();
    } else {
        assert_eq!(layout().rust, GOLDEN);
    }
}

#[test]
fn c_and_cpp_see_the_same_layout() {
    let l = layout();
    let source =
        format!("#include \"kiln_plugin.h\"\n#include <stdio.h>\nint main(void) {{\n{}return 0;\n}}\n", l.c);
    for (compiler, std, suffix) in [("cc", "c11", "c"), ("cc", "c99", "c"), ("c++", "c++17", "cc")] {
        let program = abi::compile(compiler, std, &format!("layout.{suffix}"), &source, &[]);
        let out = std::process::Command::new(program).output().unwrap();
        assert_eq!(String::from_utf8(out.stdout).unwrap(), l.rust, "{std}");
    }
}

#[test]
fn the_prefix_is_32_bytes_and_the_magic_is_readable() {
    assert_eq!(offset_of!(kiln_descriptor, name), KILN_PREFIX_SIZE as usize);
    assert_eq!(&KILN_MAGIC.to_le_bytes(), b"KILNPLUG");
}
