//! Checks a descriptor, in the order that the ABI lays down, before any code of the library runs.

use super::{PluginError, Policy};
use ::kiln_backend::view;
use kiln_abi::*;
use std::mem::offset_of;
use std::path::Path;

/// Tables larger than this are refused; none is expected to grow so far.
pub(super) const MAX_TABLE: u32 = 4096;
/// Texts of a descriptor longer than this are refused.
const MAX_TEXT: u64 = 256;

/// A descriptor that passed, as text.
pub(super) struct Checked {
    pub(super) table: kiln_descriptor,
    pub(super) name: String,
    pub(super) vendor: String,
    pub(super) version: String,
    pub(super) build_id: String,
}

/// The part of a descriptor that never changes.
#[repr(C)]
#[derive(Clone, Copy)]
struct Fields {
    magic: u64,
    struct_size: u32,
    abi_major: u32,
    abi_minor: u32,
    min_host_minor: u32,
    kinds: u32,
    flags: u32,
}

/// Checks what a library exports as its descriptor.
///
/// # Safety
/// `d` is what the library exports under the name of the descriptor, mapped for good.
pub(super) unsafe fn check(
    d: *const kiln_descriptor,
    path: &Path,
    policy: &Policy,
) -> Result<Checked, PluginError> {
    let path = path.to_owned();
    // SAFETY: only the magic number is read of what may be no descriptor.
    let magic = unsafe { d.cast::<u64>().read_unaligned() };
    if magic != KILN_MAGIC {
        return Err(PluginError::Magic { path, found: magic, wanted: KILN_MAGIC });
    }
    // SAFETY: the first 32 bytes of a descriptor are the same in every version.
    let f = unsafe { d.cast::<Fields>().read_unaligned() };
    let wanted = format!("{KILN_ABI_MAJOR}.{KILN_ABI_MINOR}");
    if f.abi_major != KILN_ABI_MAJOR {
        let found = format!("{}.{}", f.abi_major, f.abi_minor);
        return Err(PluginError::Major { path, found, wanted });
    }
    if f.min_host_minor > KILN_ABI_MINOR {
        let needed = format!("{}.{}", f.abi_major, f.min_host_minor);
        return Err(PluginError::HostTooOld { path, found: wanted, wanted: needed });
    }
    // Version 1.0 ended where today's descriptor ends.
    check_size(&path, "descriptor", f.struct_size, size_of::<kiln_descriptor>())?;
    // SAFETY: the descriptor has at least the size of this version's.
    let table = unsafe { d.read_unaligned() };
    // SAFETY: the texts of a descriptor live as long as the library is mapped.
    let read = |field, s| unsafe { text(&path, field, s) };
    let target = read("target", table.target)?;
    if target != TARGET {
        return Err(PluginError::Target { path, found: target, wanted: TARGET.to_owned() });
    }
    let checked = Checked {
        table,
        name: read("name", table.name)?,
        vendor: read("vendor", table.vendor)?,
        version: read("version", table.version)?,
        build_id: read("build id", table.build_id)?,
    };
    if !is_name(&checked.name) {
        return Err(PluginError::Text {
            path,
            field: "name",
            found: format!("\"{}\"", checked.name),
            wanted: "1 to 64 letters, digits, _ or -".into(),
        });
    }
    check_flags(&path, f.flags, policy)?;
    check_slots(&path, &table)?;
    Ok(checked)
}

fn is_name(s: &str) -> bool {
    (1..=64).contains(&s.len()) && s.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c))
}

pub(super) fn check_size(
    path: &Path,
    table: &'static str,
    found: u32,
    least: usize,
) -> Result<(), PluginError> {
    if (least..=MAX_TABLE as usize).contains(&(found as usize)) {
        return Ok(());
    }
    let wanted = format!("{least} to {MAX_TABLE}");
    Err(PluginError::TableSize { path: path.to_owned(), table, found, wanted })
}

/// # Safety
/// The view is valid as long as the library is mapped.
unsafe fn text(path: &Path, field: &'static str, s: kiln_str) -> Result<String, PluginError> {
    // SAFETY: as this function's contract says.
    unsafe { view::text(s, "it", MAX_TEXT) }.map(str::to_owned).map_err(|e| PluginError::Text {
        path: path.to_owned(),
        field,
        found: e.parts().0,
        wanted: format!("UTF-8 of at most {MAX_TEXT} bytes"),
    })
}

fn check_flags(path: &Path, flags: u32, policy: &Policy) -> Result<(), PluginError> {
    let refuse = |found: &str, wanted: &str| {
        Err(PluginError::Flags { path: path.to_owned(), found: found.into(), wanted: wanted.into() })
    };
    if flags & KILN_FLAG_PANIC_ABORT != 0 && !policy.allow_abort {
        return refuse(
            "was built with panic=abort, so that a panic in it would end this process",
            "a build with panic=unwind, or a policy that allows it",
        );
    }
    if flags & KILN_FLAG_NEEDS_CUDA != 0 && !policy.allow_cuda {
        return refuse("needs the CUDA driver, which the policy does not allow", "a policy that allows it");
    }
    Ok(())
}

fn check_slots(path: &Path, d: &kiln_descriptor) -> Result<(), PluginError> {
    let slots = [("init", d.init.is_some()), ("get_interface", d.get_interface.is_some())];
    match slots.into_iter().find(|s| !s.1) {
        Some((wanted, _)) => Err(PluginError::MissingSlot {
            path: path.to_owned(),
            table: "descriptor",
            wanted,
            found: "a null pointer".into(),
        }),
        None => Ok(()),
    }
}

/// Name of the backend's table in messages.
const TABLE: &str = "table of \"kiln.backend/1\"";

/// A copy of a backend's table: what an older library lacks is absent, what a newer one adds is left out.
///
/// # Safety
/// `table` is what the library gave for the interface, mapped for good.
pub(super) unsafe fn backend_table(
    table: *const kiln_backend_v1,
    path: &Path,
) -> Result<kiln_backend_v1, PluginError> {
    if table.is_null() {
        let wanted = "table: get_interface gave none";
        return Err(missing(path, TABLE, wanted, "a null pointer".into()));
    }
    // SAFETY: every table begins with its size.
    let size = unsafe { table.cast::<u32>().read_unaligned() };
    check_size(path, TABLE, size, size_of::<u64>())?;
    // SAFETY: the table says that it has this size; null slots are valid.
    let t = unsafe { view::sized(table, TABLE) }
        .map_err(|e| PluginError::Init { path: path.into(), source: e })?;
    macro_rules! required {
        ($($slot:ident),* $(,)?) => {[$((stringify!($slot), offset_of!(kiln_backend_v1, $slot), t.$slot.is_some())),*]};
    }
    let slots = required![
        backend_create,
        backend_destroy,
        backend_targets,
        backend_tactics,
        backend_compile,
        backend_open,
        device_destroy,
        device_time,
        device_load,
        executable_destroy,
        executable_context,
        context_destroy,
        context_enqueue,
        context_outputs,
    ];
    match slots.into_iter().find(|s| !s.2) {
        Some((slot, offset, _)) if offset >= size as usize => {
            Err(missing(path, TABLE, slot, format!("a table of {size} bytes, which ends before it")))
        }
        Some((slot, ..)) => Err(missing(path, TABLE, slot, "a null pointer".into())),
        None => Ok(t),
    }
}

pub(super) fn missing(path: &Path, table: &'static str, wanted: &'static str, found: String) -> PluginError {
    PluginError::MissingSlot { path: path.to_owned(), table, wanted, found }
}
