//! The tables of native forms of layers.

use super::handshake::MAX_TABLE;
use ::kiln_backend::{BackendError, view};
use kiln_abi::*;
use kiln_ops::plugin::native::{NativeDevice, NativeForm};
use kiln_ops::plugin::record::TypedNative;
use kiln_ops::plugin::types::Combination;

/// Longer texts are refused.
const MAX_TEXT: u64 = 1 << 20;

/// A native form with its functions.
#[derive(Clone)]
pub(super) struct NativeTable {
    pub(super) typed: TypedNative,
    pub(super) table: kiln_layer_native,
}

/// The device of a code; `None` of one that is not known here.
pub(super) fn device(code: u32) -> Option<NativeDevice> {
    match code {
        KILN_DEVICE_CUDA => Some(NativeDevice::Cuda),
        KILN_DEVICE_WGPU => Some(NativeDevice::Wgpu),
        _ => None,
    }
}

/// The native form of a table; `None` of a device that is not known here.
///
/// # Safety
/// The table is one of a library, which is mapped for good.
pub(super) unsafe fn read(table: *const kiln_layer_native) -> Result<Option<NativeTable>, BackendError> {
    let invalid = |why: String| BackendError::InvalidArgument(why);
    // SAFETY: as this function's contract says; every table begins with its size.
    let size = unsafe { table.cast::<u32>().as_ref() }.copied().unwrap_or(0);
    if !(size_of::<u64>()..=MAX_TABLE as usize).contains(&(size as usize)) {
        let least = size_of::<u64>();
        return Err(invalid(format!(
            "the table of a native form has {size} bytes, wants {least} to {MAX_TABLE}"
        )));
    }
    // SAFETY: as above.
    let table = unsafe { view::sized(table, "the table of a native form") }?;
    let Some(device) = device(table.device) else { return Ok(None) };
    // SAFETY: texts of a library are constant.
    let text = |s: kiln_str, what: &str| unsafe { view::text(s, what, MAX_TEXT) };
    let tactic = text(table.tactic, "tactic")?;
    let missing =
        [("enqueue", table.enqueue.is_some()), ("detach", table.attach.is_none() || table.detach.is_some())];
    if let Some((slot, _)) = missing.iter().find(|(_, there)| !there) {
        return Err(invalid(format!(
            "native form \"{tactic}\" has no {slot}, which is required; found a null pointer, or a table of {size} bytes that ends \
             before it"
        )));
    }
    let types = text(table.types, "types of a native form")?;
    let typed = TypedNative {
        types: match types {
            "" => Vec::new(),
            types => Combination::list(types).map_err(|e| invalid(e.to_string()))?,
        },
        form: NativeForm {
            device,
            tactic: tactic.to_owned(),
            condition: text(table.condition, "condition of a native form")?.to_owned(),
            capturable: table.flags & KILN_NATIVE_CAPTURABLE != 0,
            movable: table.flags & KILN_NATIVE_MOVABLE != 0,
            counts: table.flags & KILN_NATIVE_COUNTS != 0,
        },
    };
    Ok(Some(NativeTable { typed, table }))
}
