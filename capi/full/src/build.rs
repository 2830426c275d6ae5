//! Builds: models to plans.

use crate::calibration::measure;
use crate::model::kiln_model_t;
use crate::wishes::{Wishes, kiln_builder_t};
use kiln::report::BuildError;
use kiln::{Built, Engine, EngineBuilder, Error, Model};
use kiln_c_core::bytes::kiln_bytes_t;
use kiln_c_core::engine::kiln_engine_t;
use kiln_c_core::error::{Fail, guard, kiln_error_t, quietly};
use kiln_c_core::handle::{self, Out};
use kiln_c_core::options::{self, kiln_options_t};
use kiln_c_core::text;
use std::ffi::c_char;

/// The result of a build: a plan, and how it was built.
pub struct kiln_build_t {
    built: Built,
    calibration: Option<String>,
}

/// Builds a plan of a model with the options that a builder has at the start of the call. Any number of threads may build with
/// one builder and one model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_builder_build(
    builder: *const kiln_builder_t,
    model: *const kiln_model_t,
    build: *mut *mut kiln_build_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let (out, wishes, model) = unsafe {
            let out = Out::new(build, "build")?;
            let b = handle::shared(builder, "builder")?;
            let model = handle::shared(model, "model")?;
            (out, b.cell.enter()?.clone(), model.model.clone())
        };
        let progress = wishes.progress.clone();
        let (builder, table) = prepared(wishes, &model)?;
        let mut tell = |phase: &str, done, steps| progress.as_ref().is_none_or(|p| p(phase, done, steps));
        let built = builder.build_plan_with_progress(model, &mut tell).map_err(fail)?;
        out.put(kiln_build_t { built, calibration: table });
        Ok(())
    })
}

/// A builder with the settings of the caller, and the table of the calibration where one was asked for.
pub(crate) fn prepared(wishes: Wishes, model: &Model) -> Result<(EngineBuilder, Option<String>), Fail> {
    let Wishes { mut options, choice, recorder, calibration, .. } = wishes;
    let mut builder = Engine::builder().options(options.clone()).plugins(choice.plugins);
    if let Some(device) = choice.device.clone() {
        builder = builder.device(device);
    }
    if let Some(recorder) = recorder {
        builder = builder.error_recorder(recorder);
    }
    let Some(calibration) = calibration else { return Ok((builder, None)) };
    let measured = measure(&calibration, model, &builder)?;
    for (name, range) in measured.ranges() {
        options.config.ranges.entry(name).or_insert(range);
    }
    options.device = choice.device;
    Ok((builder.options(options), Some(measured.to_text())))
}

pub(crate) fn fail(error: Error) -> Fail {
    let cancelled = matches!(error, Error::Build { source: BuildError::Cancelled, .. });
    let fail = Fail::from(error);
    if cancelled { fail.cancelled() } else { fail }
}

/// Frees the result of a build. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_build_destroy(build: *mut kiln_build_t) {
    // SAFETY: a result of this library that nobody else uses, or NULL.
    quietly(|| unsafe { handle::free(build) });
}

/// Hands bytes that are made of a result to the caller.
///
/// # Safety
/// Pointers are NULL, or of a result and of a place for a pointer.
unsafe fn hand(
    build: *const kiln_build_t,
    to: *mut *mut kiln_bytes_t,
    f: impl FnOnce(&kiln_build_t) -> Result<kiln_bytes_t, Fail>,
) -> Result<(), Fail> {
    // SAFETY: as the caller vouches.
    let (out, b) = unsafe { (Out::new(to, "bytes")?, handle::shared(build, "build")?) };
    out.put(f(b)?);
    Ok(())
}

/// Returns the bytes of the plan, for a file or kiln_engine_from_bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_build_plan(
    build: *const kiln_build_t,
    plan: *mut *mut kiln_bytes_t,
) -> *mut kiln_error_t {
    // SAFETY: pointers as the header wants them.
    guard(|| unsafe { hand(build, plan, |b| Ok(b.built.plan.write()?.into())) })
}

/// Replaces a file by the plan, as a whole or not at all. A file that is there must be a plan.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_build_write(
    build: *const kiln_build_t,
    path: *const c_char,
    path_length: usize,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let (b, path) = unsafe { (handle::shared(build, "build")?, text::path(path, path_length, "path")?) };
        Ok(b.built.plan.write_file(&path)?)
    })
}

/// Returns the report of the build as JSON, with the keys of `kiln build --json`: layers with their tactics, passes, times, notes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_build_report(
    build: *const kiln_build_t,
    json: *mut *mut kiln_bytes_t,
) -> *mut kiln_error_t {
    // SAFETY: pointers as the header wants them.
    guard(|| unsafe { hand(build, json, |b| Ok(b.built.report.to_json().into())) })
}

/// Returns all times that are known after the build, for kiln_builder_set_timing_cache.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_build_timing_cache(
    build: *const kiln_build_t,
    cache: *mut *mut kiln_bytes_t,
) -> *mut kiln_error_t {
    // SAFETY: pointers as the header wants them.
    guard(|| unsafe { hand(build, cache, |b| Ok(b.built.times.to_bytes().into())) })
}

/// Returns the choices of the build as text, for the option "replay".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_build_record(
    build: *const kiln_build_t,
    record: *mut *mut kiln_bytes_t,
) -> *mut kiln_error_t {
    // SAFETY: pointers as the header wants them.
    guard(|| unsafe { hand(build, record, |b| Ok(b.built.record.to_text().into())) })
}

/// Returns the ranges that a calibration measured, as a table for the option "calibration_table"; an error where none was set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_build_calibration_table(
    build: *const kiln_build_t,
    table: *mut *mut kiln_bytes_t,
) -> *mut kiln_error_t {
    guard(|| {
        let none = || {
            Fail::new(
                kiln::ErrorCode::InvalidState,
                "the build measured no ranges: set kiln_builder_set_calibration before it",
            )
        };
        // SAFETY: pointers as the header wants them.
        unsafe { hand(build, table, |b| Ok(b.calibration.clone().ok_or_else(none)?.into_bytes().into())) }
    })
}

/// Loads the plan as an engine, without a file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_build_engine(
    build: *const kiln_build_t,
    options: *const kiln_options_t,
    engine: *mut *mut kiln_engine_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let (out, b, choice) = unsafe {
            (Out::new(engine, "engine")?, handle::shared(build, "build")?, options::choice(options)?)
        };
        out.put(kiln_engine_t::load(b.built.plan.clone(), &choice)?);
        Ok(())
    })
}
