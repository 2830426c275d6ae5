//! Calibration: ranges of tensors, measured on batches that a function of the caller supplies.

use crate::wishes::{Batch, Calibration, Wishes, change, kiln_builder_t};
use kiln::calibration::{Algorithm, CalibrationTable, Calibrator};
use kiln::{EngineBuilder, ErrorCode, Model};
use kiln_c_core::callback::{Callback, kiln_destroy_fn};
use kiln_c_core::dlpack::DLTensor;
use kiln_c_core::error::{Fail, guard, kiln_error_t};
use kiln_c_core::handle::{self, Exclusive};
use kiln_c_core::tensor::Given;
use kiln_c_core::text;
use std::ffi::{c_char, c_void};
use std::sync::Arc;

/// The inputs of one batch, for the time of a call of kiln_batch_fn.
pub struct kiln_batch_t {
    cell: Exclusive<Batch>,
}

/// A batch was filled.
pub const KILN_BATCH_FILLED: i32 = 1;
/// There are no more batches.
pub const KILN_BATCH_END: i32 = 0;

/// Fills a batch by kiln_batch_set and returns KILN_BATCH_FILLED, or returns KILN_BATCH_END. Any other number fails the build.
pub type kiln_batch_fn = Option<unsafe extern "C" fn(user: *mut c_void, batch: *mut kiln_batch_t) -> i32>;

/// Sets an input of a batch, which is copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_batch_set(
    batch: *mut kiln_batch_t,
    input: *const c_char,
    input_length: usize,
    tensor: *const DLTensor,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        unsafe {
            let b = handle::shared(batch, "batch")?;
            let name = text::string(input, input_length, "input")?;
            let tensor = Given::read(tensor, name)?.copy(name)?;
            let mut all = b.cell.enter()?;
            all.retain(|(n, _)| n != name);
            all.push((name.to_owned(), tensor));
        }
        Ok(())
    })
}

/// Reads "entropy", "minmax", "percentile" or "legacy", the last two with a part of all elements behind a colon.
fn algorithm(name: &str) -> Result<Algorithm, Fail> {
    let (rule, number) = name.split_once(':').unwrap_or((name, "0.9999"));
    let quantile: Option<f64> = number.parse().ok().filter(|q| (0.0..=1.0).contains(q));
    match (rule, quantile) {
        ("entropy", Some(_)) => Ok(Algorithm::Entropy),
        ("minmax", Some(_)) => Ok(Algorithm::MinMax),
        ("percentile", Some(q)) => Ok(Algorithm::Percentile(q)),
        ("legacy", Some(quantile)) => Ok(Algorithm::Legacy { quantile, cutoff: 1.0 }),
        _ => Err(Fail::argument(format!(
            "the algorithm is \"{name}\", wanted entropy, minmax, percentile or legacy, the last two with a number from 0 to 1 behind a colon"
        ))),
    }
}

/// Measures ranges of tensors on batches at the start of each build with this builder: permit i8 or e4m3 as well. `algorithm` is
/// "entropy", "minmax", "percentile:0.999" or "legacy:0.999". Ranges that were set otherwise stay. NULL as function ends it.
/// kiln_build_calibration_table returns what was measured.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_builder_set_calibration(
    builder: *mut kiln_builder_t,
    algorithm: *const c_char,
    algorithm_length: usize,
    function: kiln_batch_fn,
    user: *mut c_void,
    destroy: kiln_destroy_fn,
) -> *mut kiln_error_t {
    guard(|| {
        let callback = Callback::new(function, user, destroy);
        // SAFETY: pointers as the header wants them.
        unsafe {
            let calibration = match callback {
                None => None,
                Some(callback) => {
                    let name = text::string(algorithm, algorithm_length, "algorithm")?;
                    let next = Box::new(move || next_batch(&callback));
                    Some(Arc::new(Calibration { algorithm: self::algorithm(name)?, next }))
                }
            };
            change(builder, |w: &mut Wishes| {
                w.calibration = calibration;
                Ok(())
            })
        }
    })
}

type Fill = unsafe extern "C" fn(*mut c_void, *mut kiln_batch_t) -> i32;

fn next_batch(callback: &Callback<Fill>) -> Result<Option<Batch>, Fail> {
    let mut batch = kiln_batch_t { cell: Exclusive::new("batch", Batch::new()) };
    // SAFETY: the caller's function for its pointer, and a batch that lives as long as the call.
    let answer = unsafe { (callback.function)(callback.user, &raw mut batch) };
    match answer {
        KILN_BATCH_FILLED => Ok(Some(std::mem::take(&mut *batch.cell.enter()?))),
        KILN_BATCH_END => Ok(None),
        other => Err(Fail::new(
            ErrorCode::InvalidArgument,
            format!("the function for batches of the calibration returned {other}, wanted 1 for a batch or 0 for their end"),
        )
        .cancelled()),
    }
}

/// Runs all batches.
pub(crate) fn measure(
    calibration: &Calibration,
    model: &Model,
    builder: &EngineBuilder,
) -> Result<CalibrationTable, Fail> {
    let mut calibrator = Calibrator::new(model.clone(), builder, calibration.algorithm)?;
    while let Some(batch) = (calibration.next)()? {
        let inputs: Vec<_> = batch.iter().map(|(name, t)| (name.as_str(), t.clone())).collect();
        calibrator.add(&inputs)?;
    }
    Ok(calibrator.table()?)
}
