//! Refit: other weights for an engine, by name, or by layer and role.

use crate::bytes::kiln_bytes_t;
use crate::dlpack::DLTensor;
use crate::engine::kiln_engine_t;
use crate::error::{Fail, guard, kiln_error_t, quietly};
use crate::handle::{self, Exclusive, Out};
use crate::tensor::Given;
use crate::text;
use kiln::{Plan, RefitReport, RefitTask, RefitTimes, Refitter, WeightsRole};
use serde_json::{Value, json as object};
use std::ffi::{c_char, c_void};

/// The kernel of a convolution or the matrix of a fully connected layer.
pub const KILN_ROLE_KERNEL: i32 = 0;
/// The bias.
pub const KILN_ROLE_BIAS: i32 = 1;
/// The shift of a scale layer.
pub const KILN_ROLE_SHIFT: i32 = 2;
/// The scale of a scale layer.
pub const KILN_ROLE_SCALE: i32 = 3;
/// The elements of a constant layer.
pub const KILN_ROLE_CONSTANT: i32 = 4;
/// The only weights of a layer, whatever their role is.
pub const KILN_ROLE_ANY: i32 = 5;
/// The power of a scale layer.
pub const KILN_ROLE_POWER: i32 = 6;

/// Roles by their numbers.
const ROLES: [WeightsRole; 7] = WeightsRole::ALL;

fn role(number: i32) -> Result<WeightsRole, Fail> {
    let found = usize::try_from(number).ok().and_then(|n| ROLES.get(n).copied());
    found.ok_or_else(|| {
        Fail::argument(format!("the role is {number}, wanted KILN_ROLE_KERNEL to KILN_ROLE_POWER"))
    })
}

/// Collects new weights and puts them in.
pub struct kiln_refitter_t {
    cell: Exclusive<Held>,
}

/// A refitter, or a refit that goes on.
enum Held {
    Idle(Box<Refitter>),
    Running(RefitTask),
    /// Its plan was taken, or what was set was lost with a thread that did not start.
    Gone,
}

impl kiln_refitter_t {
    fn new(refitter: Refitter) -> kiln_refitter_t {
        kiln_refitter_t { cell: Exclusive::new("refitter", Held::Idle(Box::new(refitter))) }
    }

    /// Takes the refitter out.
    fn take(&self) -> Result<Refitter, Fail> {
        let mut held = self.cell.enter()?;
        match std::mem::replace(&mut *held, Held::Gone) {
            Held::Idle(refitter) => Ok(*refitter),
            other => {
                let fail = busy(&other);
                *held = other;
                Err(fail)
            }
        }
    }

    /// Starts a refit on a thread of its own.
    pub(crate) fn start(&self) -> Result<(), Fail> {
        let task = self.take()?.refit_async()?;
        *self.cell.enter()? = Held::Running(task);
        Ok(())
    }

    /// Waits for it.
    pub(crate) fn wait(&self) -> Result<RefitReport, Fail> {
        let mut held = self.cell.enter()?;
        match std::mem::replace(&mut *held, Held::Gone) {
            Held::Running(task) => {
                let (refitter, report) = task.wait()?;
                *held = Held::Idle(Box::new(refitter));
                Ok(report?)
            }
            other => {
                *held = other;
                Err(Fail::new(
                    kiln::ErrorCode::InvalidState,
                    "no refit was started: call kiln_refitter_start",
                ))
            }
        }
    }
}

fn busy(held: &Held) -> Fail {
    let why = match held {
        Held::Running(_) => "a refit goes on: call kiln_refitter_wait before",
        _ => "the plan of this refitter was taken, or a refit could not be started: make another one",
    };
    Fail::new(kiln::ErrorCode::InvalidState, why)
}

/// A report as JSON.
pub(crate) fn report(report: &RefitReport) -> Value {
    let RefitReport { replaced, derived, warnings } = report;
    object!({"replaced": replaced, "derived": derived, "warnings": warnings})
}

/// Times of phases in seconds.
fn times_of(t: &RefitTimes) -> Value {
    let [read, derived, checked, loaded] =
        [t.read, t.derived, t.checked, t.loaded].map(|phase| phase.as_secs_f64());
    object!({"read": read, "derived": derived, "checked": checked, "loaded": loaded})
}

/// Makes a refitter of an engine, whose contexts use the new weights from their next run on. The plan must be built with refit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_refitter_create(
    engine: *const kiln_engine_t,
    refitter: *mut *mut kiln_refitter_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let (out, e) = unsafe { (Out::new(refitter, "refitter")?, handle::shared(engine, "engine")?) };
        out.put(kiln_refitter_t::new(e.engine.refitter()?));
        Ok(())
    })
}

/// Makes a refitter of a plan in memory, which needs no device; kiln_refitter_plan returns the plan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_refitter_of_plan(
    data: *const c_void,
    size: usize,
    refitter: *mut *mut kiln_refitter_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let (out, bytes) = unsafe { (Out::new(refitter, "refitter")?, text::blob(data, size, "data")?) };
        let made = Refitter::of_plan(Plan::read(bytes.to_vec())?)?;
        out.put(kiln_refitter_t::new(made));
        Ok(())
    })
}

/// Frees a refitter. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_refitter_destroy(refitter: *mut kiln_refitter_t) {
    // SAFETY: a refitter of this library that nobody else uses, or NULL.
    quietly(|| unsafe { handle::free(refitter) });
}

/// Uses a refitter.
///
/// # Safety
/// The pointer is one of this library's, or NULL.
pub(crate) unsafe fn with<T>(
    refitter: *mut kiln_refitter_t,
    f: impl FnOnce(&mut Refitter) -> Result<T, Fail>,
) -> Result<T, Fail> {
    // SAFETY: as the caller vouches.
    let r = unsafe { handle::shared(refitter, "refitter") }?;
    match &mut *r.cell.enter()? {
        Held::Idle(refitter) => f(refitter),
        other => Err(busy(other)),
    }
}

/// Sets new elements of a weight, of its type and shape. Nothing changes before kiln_refitter_refit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_refitter_set(
    refitter: *mut kiln_refitter_t,
    weight: *const c_char,
    weight_length: usize,
    tensor: *const DLTensor,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let name = text::string(weight, weight_length, "weight")?;
            let tensor = Given::read(tensor, name)?.copy(name)?;
            with(refitter, |r| Ok(r.set(name, tensor)?))
        }
    })
}

/// Sets new elements of the weights that a layer has in a role: KILN_ROLE_KERNEL to KILN_ROLE_POWER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_refitter_set_role(
    refitter: *mut kiln_refitter_t,
    layer: *const c_char,
    layer_length: usize,
    role: i32,
    tensor: *const DLTensor,
) -> *mut kiln_error_t {
    let number = role;
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let layer = text::string(layer, layer_length, "layer")?;
            let role = self::role(number)?;
            let tensor = Given::read(tensor, layer)?.copy(layer)?;
            with(refitter, |r| Ok(r.set_weights(layer, role, tensor)?))
        }
    })
}

/// Sets the weights that a file has by name: an archive of NumPy (.npz), safetensors, or an ONNX model of the same graph. `json`, which
/// may be NULL, lists those that were set, that the plan lacks (`unused`), and that are as they are (`fixed`).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_refitter_set_file(
    refitter: *mut kiln_refitter_t,
    path: *const c_char,
    path_length: usize,
    json: *mut *mut kiln_bytes_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let out = if json.is_null() { None } else { Some(Out::new(json, "json")?) };
            let path = text::path(path, path_length, "path")?;
            let found = with(refitter, |r| Ok(kiln::weights::set_from_file(r, &path)?))?;
            if let Some(out) = out {
                out.put(object!({"set": found.set, "unused": found.unused, "fixed": found.fixed}).into());
            }
        }
        Ok(())
    })
}

/// Takes back what was set for a weight. `was_set`, which may be NULL, becomes whether anything was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_refitter_unset(
    refitter: *mut kiln_refitter_t,
    weight: *const c_char,
    weight_length: usize,
    was_set: *mut bool,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let name = text::string(weight, weight_length, "weight")?;
            let found = with(refitter, |r| Ok(r.unset(name)))?;
            handle::put(was_set, found);
        }
        Ok(())
    })
}

/// Switches checks of elements on (at first) or off: whether they are those of the build where the plan wants that, and whether
/// they overflow the types of derived weights.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_refitter_set_validation(
    refitter: *mut kiln_refitter_t,
    on: bool,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            with(refitter, |r| {
                r.set_validation(on);
                Ok(())
            })
        }
    })
}

/// Lists as JSON all named weights ("weights": name, type, shape, why it cannot be replaced as "fixed"), layers with their roles
/// ("roles"), and the dynamic ranges that can be set ("ranges").
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_refitter_weights(
    refitter: *mut kiln_refitter_t,
    json: *mut *mut kiln_bytes_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let out = Out::new(json, "json")?;
            let list = with(refitter, |r| {
                let one = |w: &kiln::NamedWeight| object!({"name": w.name, "type": w.dtype.name(), "shape": w.shape, "fixed": w.fixed});
                let roles = r.get_all_roles();
                let role =
                    |(layer, role): &(String, WeightsRole)| object!({"layer": layer, "role": role.name()});
                let ranges = r.tensors_with_dynamic_range().into_iter().filter_map(|tensor| {
                    let [least, greatest] = r.dynamic_range(&tensor)?;
                    Some(object!({"tensor": tensor, "least": least, "greatest": greatest}))
                });
                Ok(object!({
                    "weights": r.weights().map(one).collect::<Vec<Value>>(),
                    "roles": roles.iter().map(role).collect::<Vec<Value>>(),
                    "ranges": ranges.collect::<Vec<Value>>(),
                }))
            })?;
            out.put(list.into());
        }
        Ok(())
    })
}

/// Lists as JSON the weights that must be set as well, before kiln_refitter_refit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_refitter_missing(
    refitter: *mut kiln_refitter_t,
    json: *mut *mut kiln_bytes_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let out = Out::new(json, "json")?;
            out.put(with(refitter, |r| Ok(object!(r.get_missing())))?.into());
        }
        Ok(())
    })
}

/// Replaces the weights, with all weights that are computed from them: all or nothing. `json`, which may be NULL, reports how many
/// were replaced and derived, and warnings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_refitter_refit(
    refitter: *mut kiln_refitter_t,
    json: *mut *mut kiln_bytes_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let out = if json.is_null() { None } else { Some(Out::new(json, "json")?) };
            let made = with(refitter, |r| Ok(r.refit()?))?;
            if let Some(out) = out {
                out.put(report(&made).into());
            }
        }
        Ok(())
    })
}

/// Lists as JSON the seconds that each phase of the last refit took: "read" (waiting for other refits, and weights on the device),
/// "derived" (weights computed from others), "checked" and "loaded" (onto the device, of an engine). All are 0 before the first refit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_refitter_times(
    refitter: *mut kiln_refitter_t,
    json: *mut *mut kiln_bytes_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let out = Out::new(json, "json")?;
            let times = with(refitter, |r| Ok(r.times()))?;
            out.put(times_of(&times).into());
        }
        Ok(())
    })
}

/// Returns the plan with the new weights. The refitter is used up and can only be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_refitter_plan(
    refitter: *mut kiln_refitter_t,
    plan: *mut *mut kiln_bytes_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let (out, r) = (Out::new(plan, "plan")?, handle::shared(refitter, "refitter")?);
            out.put(r.take()?.into_plan().write()?.into());
        }
        Ok(())
    })
}
