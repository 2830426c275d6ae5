//! The descriptor and the functions that it names.

use super::constructor::{self, Constructor};
use super::{allocator, backend, context, host, layers, natives, panics};
use crate::view;
use kiln_abi::*;
use kiln_ops::plugin::registry;
use std::ffi::c_void;

/// Flag for the behaviour of panics in this library.
pub const FLAGS: u32 = if cfg!(panic = "unwind") { KILN_FLAG_PANIC_UNWIND } else { KILN_FLAG_PANIC_ABORT };

static TABLE: kiln_backend_v1 = kiln_backend_v1 {
    struct_size: size_of::<kiln_backend_v1>() as u32,
    reserved: 0,
    backend_create: Some(backend::create),
    backend_destroy: Some(backend::destroy),
    backend_targets: Some(backend::targets),
    backend_tactics: Some(backend::tactics),
    backend_compile: Some(backend::compile),
    backend_open: Some(backend::open),
    device_destroy: Some(backend::device_destroy),
    device_time: Some(backend::time),
    device_load: Some(backend::load),
    executable_destroy: Some(context::executable_destroy),
    executable_context: Some(context::create),
    context_destroy: Some(context::destroy),
    context_enqueue: Some(context::enqueue),
    context_outputs: Some(context::outputs),
    context_observe: Some(context::observe),
    context_set_observable: Some(context::set_observable),
    context_step_times: Some(context::step_times),
    context_counters: Some(context::counters),
    context_time_runs: Some(context::time_runs),
    context_set_stream: Some(context::set_stream),
    context_bind: Some(context::bind),
    context_set_consumed_event: Some(context::set_consumed_event),
    context_wait: Some(context::wait),
    context_address: Some(context::address),
    context_host_steps: Some(context::host_steps),
    context_stop: Some(context::stop),
    backend_supports: Some(backend::supports),
    executable_context_without_memory: Some(context::create_without_memory),
    device_load_within: Some(backend::load_within),
    context_set_memory: Some(context::set_memory),
    context_set_allocator: Some(allocator::set),
    device_free_memory: Some(backend::free_memory),
    device_read: Some(backend::read),
    context_set_aux_streams: Some(context::set_aux_streams),
};

/// The constant that `export_backend!` exports.
pub const fn descriptor(
    name: &'static str,
    vendor: &'static str,
    version: &'static str,
    flags: u32,
    init: unsafe extern "C" fn(*const kiln_host, *mut kiln_error) -> i32,
) -> kiln_descriptor {
    kiln_descriptor {
        magic: KILN_MAGIC,
        struct_size: size_of::<kiln_descriptor>() as u32,
        abi_major: KILN_ABI_MAJOR,
        abi_minor: KILN_ABI_MINOR,
        min_host_minor: 0,
        kinds: KILN_KIND_BACKEND,
        flags,
        name: kiln_str::new(name),
        vendor: kiln_str::new(vendor),
        version: kiln_str::new(version),
        build_id: kiln_str::new(version),
        target: kiln_str::new(TARGET),
        init: Some(init),
        deinit: Some(deinit),
        get_interface: Some(get_interface),
    }
}

/// The `init` of a library: remembers the host and the constructor, and forwards panics to the host's log.
///
/// # Safety
/// `host` is null or a table of the host that stays valid until `deinit` returns; `err` is null or an error sink of it.
pub unsafe fn init(
    host: *const kiln_host,
    err: *mut kiln_error,
    name: &'static str,
    constructor: Constructor,
) -> i32 {
    // SAFETY: as this function's contract says.
    if let Err(code) = unsafe { host::remember(host, name) } {
        return code;
    }
    registry::ask(registry::Host { run: layers::run, attach: natives::attach });
    panics::guard(err, || {
        constructor::set(constructor)?;
        panics::install_hook();
        Ok(())
    })
}

/// Function `deinit` of a library: stops the forwarding of panics and the log.
///
/// # Safety
/// Called once, after `init` has returned.
pub unsafe extern "C" fn deinit() {
    host::forget();
}

/// The `get_interface` of a library.
///
/// # Safety
/// `id` is a view of text.
pub unsafe extern "C" fn get_interface(id: kiln_str) -> *const c_void {
    // SAFETY: as this function's contract says.
    match unsafe { view::bytes(id.ptr.cast(), id.len) } {
        Ok(id) if id == KILN_BACKEND_V1.as_bytes() => (&raw const TABLE).cast(),
        _ => std::ptr::null(),
    }
}
