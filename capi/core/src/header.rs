//! Headers of plans, read without loading them.

use crate::bytes::kiln_bytes_t;
use crate::error::{guard, kiln_error_t, quietly};
use crate::handle::{self, Out};
use crate::io::{self, kiln_io_t};
use crate::options::{self, kiln_options_t};
use crate::{json, text};
use kiln::{Plan, PlanHeader};
use serde_json::json as object;
use std::ffi::{c_char, c_void};

/// The header of a plan.
pub struct kiln_header_t {
    /// The header.
    pub header: PlanHeader,
}

/// Reads the header of a plan file and nothing else.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_header_open(
    path: *const c_char,
    path_length: usize,
    header: *mut *mut kiln_header_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let (out, path) = unsafe { (Out::new(header, "header")?, text::path(path, path_length, "path")?) };
        out.put(kiln_header_t { header: PlanHeader::peek(&path)? });
        Ok(())
    })
}

/// Reads the header of a plan in memory; the whole plan is checked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_header_from_bytes(
    data: *const c_void,
    size: usize,
    header: *mut *mut kiln_header_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let (out, bytes) = unsafe { (Out::new(header, "header")?, text::blob(data, size, "data")?) };
        out.put(kiln_header_t { header: Plan::read(bytes.to_vec())?.header });
        Ok(())
    })
}

/// Frees a header. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_header_destroy(header: *mut kiln_header_t) {
    // SAFETY: a header of this library that nobody else uses, or NULL.
    quietly(|| unsafe { handle::free(header) });
}

/// Number of inputs and outputs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_header_io_count(header: *const kiln_header_t) -> usize {
    // SAFETY: a header of this library, or NULL.
    unsafe { header.as_ref() }.map_or(0, |h| h.header.io.len())
}

/// Describes an input or output: inputs come first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_header_io(
    header: *const kiln_header_t,
    index: usize,
    io: *mut kiln_io_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe { io::describe(&handle::shared(header, "header")?.header.io, index, io) }
    })
}

/// Describes a plan as JSON: name, target, inputs and outputs, profiles, plug-ins, refit, absent weights, memory of a context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_header_describe(
    header: *const kiln_header_t,
    json: *mut *mut kiln_bytes_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let (out, h) = unsafe { (Out::new(json, "json")?, handle::shared(header, "header")?) };
        out.put(json::header(&h.header).into());
        Ok(())
    })
}

/// Sets `runs` to whether a device here runs the plan. `json`, which may be NULL, takes a list of devices, each with the reason
/// of a refusal, and warnings of what may be slower.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_header_check(
    header: *const kiln_header_t,
    options: *const kiln_options_t,
    runs: *mut bool,
    json: *mut *mut kiln_bytes_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let (h, choice, runs, out) = unsafe {
            let out = if json.is_null() { None } else { Some(Out::new(json, "json")?) };
            handle::put(runs, false);
            (handle::shared(header, "header")?, options::choice(options)?, runs, out)
        };
        let backend = kiln::backends(&choice.plugins).0.get(&h.header.target.backend);
        let (mut any, mut list) = (false, Vec::new());
        match backend.map(|b| b.targets()) {
            Ok(Ok(targets)) => {
                for t in targets {
                    let c = h.header.check_compatibility(&t);
                    any |= c.ok();
                    list.push(object!({"device": t.device, "refusal": c.refusal, "warnings": c.warnings}));
                }
            }
            Ok(Err(e)) => list.push(object!({"device": null, "refusal": e.to_string(), "warnings": []})),
            Err(e) => list.push(object!({"device": null, "refusal": e.to_string(), "warnings": []})),
        }
        // SAFETY: as above.
        unsafe { handle::put(runs, any) };
        if let Some(out) = out {
            out.put(object!(list).into());
        }
        Ok(())
    })
}
