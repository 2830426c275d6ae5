//! Builders: the options of builds, those that most programs set by functions of their own.

use crate::settings::SETTINGS;
use crate::wishes::{Wishes, change, kiln_builder_t};
use kiln::cache::TimingCache;
use kiln::{BuildOptions, MemoryPool, Refit, ShapeRequest};
use kiln_c_core::bytes::kiln_bytes_t;
use kiln_c_core::callback::kiln_destroy_fn;
use kiln_c_core::error::{Fail, guard, kiln_error_t, quietly};
use kiln_c_core::handle::{self, Exclusive, Out};
use kiln_c_core::header::kiln_header_t;
use kiln_c_core::options::{self, kiln_options_t};
use kiln_c_core::recorder::{kiln_error_fn, recorder};
use kiln_c_core::{shape, text};
use serde_json::json as object;
use std::ffi::{c_char, c_void};

/// Makes a builder with default options: the best backend that has a device, f32, optimization level 3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_builder_create(builder: *mut *mut kiln_builder_t) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let out = unsafe { Out::new(builder, "builder") }?;
        out.put(kiln_builder_t { cell: Exclusive::new("builder", Wishes::default()) });
        Ok(())
    })
}

/// Frees a builder. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_builder_destroy(builder: *mut kiln_builder_t) {
    // SAFETY: a builder of this library that nobody else uses, or NULL.
    quietly(|| unsafe { handle::free(builder) });
}

/// Sets plug-ins that may be used, and the device to build for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_builder_set_options(
    builder: *mut kiln_builder_t,
    options: *const kiln_options_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let choice = options::choice(options)?;
            change(builder, |w| {
                w.choice = choice;
                Ok(())
            })
        }
    })
}

/// Sets the backend to build for, such as "cpu", "wgpu" or "cuda".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_builder_set_backend(
    builder: *mut kiln_builder_t,
    name: *const c_char,
    name_length: usize,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let name = text::string(name, name_length, "name")?.to_owned();
            change(builder, |w| {
                w.options.backend = Some(name);
                Ok(())
            })
        }
    })
}

/// Builds for the device of another plan instead of one that is here. Nothing is timed then: set "estimates" or "locked".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_builder_set_target(
    builder: *mut kiln_builder_t,
    of: *const kiln_header_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let target = handle::shared(of, "of")?.header.target.clone();
            change(builder, |w| {
                w.options.target = Some(target);
                Ok(())
            })
        }
    })
}

fn request(options: &mut BuildOptions, profile: usize) -> Result<&mut ShapeRequest, Fail> {
    let count = options.profiles.len();
    if profile == count {
        options.profiles.push(ShapeRequest::default());
    }
    let found = options.profiles.get_mut(profile);
    found.ok_or_else(|| {
        Fail::argument(format!(
            "there is no profile {profile}; there are {count}, and the next one is {count}"
        ))
    })
}

/// Sets one end of a range of an input.
type SetEnd = for<'a> fn(&'a mut ShapeRequest, &str, &[i64]) -> &'a mut ShapeRequest;

/// Sets the least, the usual and the greatest numbers of an input in a profile, as far as they are given.
///
/// # Safety
/// Pointers as the header wants them.
unsafe fn set_range(
    builder: *mut kiln_builder_t,
    profile: usize,
    (input, input_length): (*const c_char, usize),
    given: [*const i64; 3],
    count: usize,
    set: [SetEnd; 3],
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: as the caller vouches.
        unsafe {
            let name = text::string(input, input_length, "input")?;
            let [min, opt, max] = given;
            let given = ends(min, opt, max, count)?;
            change(builder, |w| {
                let r = request(&mut w.options, profile)?;
                for (set, numbers) in set.iter().zip(given) {
                    numbers.map(|n| set(r, name, n));
                }
                Ok(())
            })
        }
    })
}

/// Sets the shapes of a dynamic input in an optimization profile: the least, the one that kernels are chosen for, and the greatest.
/// Each may be NULL, and is then taken from the others. Profiles are counted from 0; the next number makes a new one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_builder_set_shape(
    builder: *mut kiln_builder_t,
    profile: usize,
    input: *const c_char,
    input_length: usize,
    min: *const i64,
    opt: *const i64,
    max: *const i64,
    ndim: usize,
) -> *mut kiln_error_t {
    let set: [SetEnd; 3] = [|r, n, d| r.min(n, d), |r, n, d| r.opt(n, d), |r, n, d| r.max(n, d)];
    // SAFETY: pointers as the header wants them.
    unsafe { set_range(builder, profile, (input, input_length), [min, opt, max], ndim, set) }
}

/// Sets the elements of a shape input in an optimization profile, as kiln_builder_set_shape does shapes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_builder_set_values(
    builder: *mut kiln_builder_t,
    profile: usize,
    input: *const c_char,
    input_length: usize,
    min: *const i64,
    opt: *const i64,
    max: *const i64,
    count: usize,
) -> *mut kiln_error_t {
    let set: [SetEnd; 3] =
        [|r, n, d| r.min_values(n, d), |r, n, d| r.opt_values(n, d), |r, n, d| r.max_values(n, d)];
    // SAFETY: pointers as the header wants them.
    unsafe { set_range(builder, profile, (input, input_length), [min, opt, max], count, set) }
}

unsafe fn ends<'a>(
    min: *const i64,
    opt: *const i64,
    max: *const i64,
    count: usize,
) -> Result<[Option<&'a [i64]>; 3], Fail> {
    let all = [min, opt, max];
    if all.iter().all(|p| p.is_null()) && count > 0 {
        return Err(Fail::argument("min, opt and max are NULL, wanted one of them at least"));
    }
    let mut found = [None; 3];
    for (to, from) in found.iter_mut().zip(all).filter(|(_, p)| !p.is_null() || count == 0) {
        // SAFETY: as the caller vouches.
        *to = Some(unsafe { shape::numbers(from, count, "the shape") }?);
    }
    Ok(found)
}

/// Scratch memory of a kernel.
pub const KILN_POOL_WORKSPACE: i32 = 0;
/// Device memory that a kernel touches while it is timed.
pub const KILN_POOL_TACTIC_DRAM: i32 = 1;
/// Memory that the threads of a block share.
pub const KILN_POOL_TACTIC_SHARED_MEMORY: i32 = 2;

/// Limits a pool of memory that kernels may use, in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_builder_set_memory_pool_limit(
    builder: *mut kiln_builder_t,
    pool: i32,
    bytes: u64,
) -> *mut kiln_error_t {
    guard(|| {
        let found = usize::try_from(pool).ok().and_then(|n| MemoryPool::ALL.get(n).copied());
        let found = found.ok_or_else(|| {
            Fail::argument(format!(
                "the pool is {pool}, wanted KILN_POOL_WORKSPACE to KILN_POOL_TACTIC_SHARED_MEMORY"
            ))
        })?;
        // SAFETY: pointers as the header wants them.
        unsafe {
            change(builder, |w| {
                w.options.config.pools.insert(found, bytes);
                Ok(())
            })
        }
    })
}

/// Sets how much the build tries, from 0 (the fastest build) to 5 (the fastest engine); 3 at first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_builder_set_optimization_level(
    builder: *mut kiln_builder_t,
    level: i32,
) -> *mut kiln_error_t {
    guard(|| {
        let level = usize::try_from(level).ok().filter(|l| *l <= 5);
        let level = level.ok_or_else(|| Fail::argument("the optimization level is not among 0 to 5"))?;
        // SAFETY: pointers as the header wants them.
        unsafe {
            change(builder, |w| {
                w.options.config.set_optimization_level(level);
                Ok(())
            })
        }
    })
}

/// Sets the times of kernels that are known before a build, which kiln_build_timing_cache of another build returned. No bytes: none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_builder_set_timing_cache(
    builder: *mut kiln_builder_t,
    data: *const c_void,
    size: usize,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let bytes = text::blob(data, size, "data")?;
            let times = TimingCache::from_bytes(bytes)
                .map_err(|e| Fail::argument(format!("the timing cache cannot be read: {e}")))?;
            change(builder, |w| {
                w.options.times = Some(times);
                Ok(())
            })
        }
    })
}

/// No weights can be replaced.
pub const KILN_REFIT_OFF: i32 = 0;
/// All named weights can be replaced.
pub const KILN_REFIT_ALL: i32 = 1;
/// Named weights can be replaced by the elements that they have now: for stripped plans.
pub const KILN_REFIT_IDENTICAL: i32 = 2;

/// Lets weights of the plan be replaced: KILN_REFIT_OFF, KILN_REFIT_ALL or KILN_REFIT_IDENTICAL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_builder_set_refit(
    builder: *mut kiln_builder_t,
    refit: i32,
) -> *mut kiln_error_t {
    guard(|| {
        let refit = match refit {
            KILN_REFIT_OFF => Refit::Off,
            KILN_REFIT_ALL => Refit::All,
            KILN_REFIT_IDENTICAL => Refit::Identical,
            other => {
                return Err(Fail::argument(format!(
                    "refit is {other}, wanted KILN_REFIT_OFF, _ALL or _IDENTICAL"
                )));
            }
        };
        // SAFETY: pointers as the header wants them.
        unsafe {
            change(builder, |w| {
                w.options.config.refit = refit;
                Ok(())
            })
        }
    })
}

/// Lets this weight of the plan be replaced, and others that were named so; all that were not are constants.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_builder_add_refit_weight(
    builder: *mut kiln_builder_t,
    weight: *const c_char,
    weight_length: usize,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let name = text::string(weight, weight_length, "weight")?.to_owned();
            change(builder, |w| {
                match &mut w.options.config.refit {
                    Refit::Individual(names) => drop(names.insert(name)),
                    other => *other = Refit::Individual([name].into()),
                }
                Ok(())
            })
        }
    })
}

/// Leaves weights out of the plan that a refit can supply (true).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_builder_set_strip_weights(
    builder: *mut kiln_builder_t,
    strip: bool,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            change(builder, |w| {
                w.options.strip_weights = strip;
                Ok(())
            })
        }
    })
}

/// Builds a plan that other versions of the backend run (true).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_builder_set_version_compatible(
    builder: *mut kiln_builder_t,
    compatible: bool,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            change(builder, |w| {
                w.options.config.version_compatible = compatible;
                Ok(())
            })
        }
    })
}

/// Sets an option by its name; kiln_builder_settings lists them. Options that are lists take one value more with each call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_builder_set(
    builder: *mut kiln_builder_t,
    name: *const c_char,
    name_length: usize,
    value: *const c_char,
    value_length: usize,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let name = text::string(name, name_length, "name")?;
            let value = text::string(value, value_length, "value")?;
            let setting = SETTINGS.iter().find(|s| s.name == name).ok_or_else(|| {
                let known: Vec<&str> = SETTINGS.iter().map(|s| s.name).collect();
                Fail::argument(format!("there is no option \"{name}\"; there are {}", known.join(", ")))
            })?;
            change(builder, |w| {
                (setting.set)(&mut w.options, value)
                    .map_err(|e| Fail::argument(format!("option \"{name}\": {e}")))
            })
        }
    })
}

/// Lists as JSON the options that kiln_builder_set takes: name, whether it is a list, and what it does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_builder_settings(json: *mut *mut kiln_bytes_t) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let out = unsafe { Out::new(json, "json") }?;
        let one = |s: &crate::settings::Setting| object!({"name": s.name, "list": s.list, "doc": s.doc});
        out.put(SETTINGS.iter().map(one).collect::<serde_json::Value>().into());
        Ok(())
    })
}

/// Reports errors of builds to a function, beside returning them. NULL ends it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_builder_set_error_recorder(
    builder: *mut kiln_builder_t,
    function: kiln_error_fn,
    user: *mut c_void,
    destroy: kiln_destroy_fn,
) -> *mut kiln_error_t {
    guard(|| {
        let recorder = recorder(function, user, destroy);
        // SAFETY: pointers as the header wants them.
        unsafe {
            change(builder, |w| {
                w.recorder = recorder;
                Ok(())
            })
        }
    })
}
