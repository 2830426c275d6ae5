//! The C ABI of Kiln backends and layer plug-ins.
//!
//! A plug-in is a shared library that exports one constant, [`kiln_descriptor`], under the name
//! [`KILN_DESCRIPTOR_SYMBOL`]. The host checks it before any code of the plug-in runs. It then calls `init`
//! with the table of host functions ([`kiln_host`]) and asks for interfaces by name. A backend answers
//! [`KILN_BACKEND_V1`] with a [`kiln_backend_v1`], a library of layers [`KILN_LAYER_V1`] with a [`kiln_layers_v1`].
//!
//! Names are the same in Rust and in C: `plugins/include/kiln_plugin.h` is generated from this crate by
//! `cargo xtask header`. Payloads (targets, regions, tactics, programs) are CBOR; `PAYLOADS.md` beside this crate
//! describes them field by field.
//!
//! Rules of growth. A *minor* version appends fields to tables that begin with `struct_size`, or adds interfaces; a
//! field that is absent or zero has a documented meaning. Structures without `struct_size` never change. Anything else
//! is a new *major* version. The first 32 bytes of the descriptor are the same in every version.
//!
//! Rules of ownership. Who creates an object destroys it, through the same table. Views (strings, bytes, tensors) live
//! for the call only, unless their owner is retained. Strings of the descriptor live as long as the library is mapped.
//!
//! Rules of threads, named at each slot: `[any-thread]` may be called from any thread, also by several at once;
//! `[serial-per-object]` from any thread, but never by two at once for one object; `[once]` once in a process.

#![no_std]
#![allow(non_camel_case_types, reason = "types have one name in Rust and in C")]

mod backend;
mod descriptor;
mod host;
mod layer;
mod native;
mod status;
mod view;

pub use backend::*;
pub use descriptor::*;
pub use host::*;
pub use layer::*;
pub use native::*;
pub use status::*;
pub use view::*;

/// Major version of the ABI. A host takes libraries of its own major version only.
pub const KILN_ABI_MAJOR: u32 = 1;

/// Minor version of the ABI: 1.1 added `context_step_times` and `context_counters`, 1.2
/// `context_time_runs` and `context_set_stream`, 1.3 `context_bind`, 1.4
/// `context_set_consumed_event`, `context_wait` and `context_address`, 1.5 `context_host_steps`, 1.6
/// `context_stop`, 1.7 `backend_supports`. 1.8 added the interfaces "kiln.layer/1" and "kiln.host.layers/1",
/// 1.9 native forms of layers, 1.10 `executable_context_without_memory`,
/// `device_load_within` and `context_set_memory`. 1.11 added formats of layers and native forms on wgpu; source and native
/// forms may find sizes. 1.12 added `context_set_allocator`, `device_free_memory` and `device_read`, 1.13
/// `context_set_aux_streams`.
pub const KILN_ABI_MINOR: u32 = 13;

/// The target triple that this crate was compiled for: a library of another one is refused.
pub const TARGET: &str = env!("KILN_TARGET");

/// Name of the exported [`kiln_descriptor`].
pub const KILN_DESCRIPTOR_SYMBOL: &str = "kiln_plugin_descriptor";

/// Name of the interface [`kiln_backend_v1`].
pub const KILN_BACKEND_V1: &str = "kiln.backend/1";

/// Name of the interface [`kiln_layers_v1`].
pub const KILN_LAYER_V1: &str = "kiln.layer/1";

/// Name of the interface [`kiln_host_layers_v1`] of the host.
pub const KILN_HOST_LAYERS_V1: &str = "kiln.host.layers/1";
