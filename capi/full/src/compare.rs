//! Comparisons of an engine with another backend.

use crate::build::{fail, prepared};
use crate::model::kiln_model_t;
use crate::wishes::kiln_builder_t;
use kiln::compare::Compare;
use kiln_c_core::bytes::kiln_bytes_t;
use kiln_c_core::dlpack::DLTensor;
use kiln_c_core::error::{Fail, guard, kiln_error_t};
use kiln_c_core::handle::{self, Out};
use kiln_c_core::tensor::Given;
use kiln_c_core::text::{self, KILN_CSTR};
use std::ffi::c_char;

/// Builds and runs a model with the options of a builder, and on another backend that is right, such as "reference". `json` tells, with
/// the keys of `kiln compare --json`, how outputs and tensors between kernels differ, and which kernel is the first that differs. With
/// `bisect` further builds find the layers at fault in it ("at_fault"). `names` and `inputs` are the inputs, as many as `count`; names end
/// with a NUL. |found - wanted| may be at most `atol` + `rtol` * |wanted|. A difference is not an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_builder_compare(
    builder: *const kiln_builder_t,
    model: *const kiln_model_t,
    against: *const c_char,
    against_length: usize,
    names: *const *const c_char,
    inputs: *const DLTensor,
    count: usize,
    rtol: f64,
    atol: f64,
    bisect: bool,
    json: *mut *mut kiln_bytes_t,
) -> *mut kiln_error_t {
    guard(|| {
        if !(rtol >= 0.0 && atol >= 0.0) {
            return Err(Fail::argument(format!(
                "the tolerance is {rtol} relative and {atol} absolute, wanted numbers from 0 on"
            )));
        }
        if count > 0 && (names.is_null() || inputs.is_null()) {
            return Err(Fail::argument("names or inputs is NULL"));
        }
        // SAFETY: pointers as the header wants them.
        let (out, wishes, model, mut settings) = unsafe {
            let out = Out::new(json, "json")?;
            let wishes = handle::shared(builder, "builder")?.cell.enter()?.clone();
            let model = handle::shared(model, "model")?.model.clone();
            (out, wishes, model, Compare::against(text::string(against, against_length, "against")?))
        };
        settings = settings.tolerance(rtol, atol);
        settings.bisect = bisect;
        let mut given = Vec::new();
        for i in 0..count {
            // SAFETY: there are as many names and tensors as the caller says.
            unsafe {
                let name = text::string(*names.add(i), KILN_CSTR, "a name of an input")?;
                given.push((name, Given::read(inputs.add(i), name)?.copy(name)?));
            }
        }
        let progress = wishes.progress.clone();
        let mut tell = |phase: &str, done, steps| progress.as_ref().is_none_or(|p| p(phase, done, steps));
        let (builder, _) = prepared(wishes, &model)?;
        let found = builder.compare_with_progress(model, &given, &settings, &mut tell).map_err(fail)?;
        out.put(found.to_json().into());
        Ok(())
    })
}
