//! Selection of algorithms by a function of the caller.

use crate::wishes::{change, kiln_builder_t};
use kiln::selection::{
    Algorithm, AlgorithmSelector, LayerContext, Selector, ShapeBounds, StepReport, TensorLayout,
};
use kiln_c_core::callback::{Callback, kiln_destroy_fn};
use kiln_c_core::error::{guard, kiln_error_t};
use serde_json::{Value, json as object};
use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex};

/// Chooses algorithms for a layer. `layer` is JSON: `layer`, `operators`, `key`, and `choices`, each with `implementation`, `tactic`,
/// `workspace`, `deterministic`, `time_ns` and `estimate_ns`. `inputs` and `outputs` have `dtype`, `dims` and `strides` at the usual shapes,
/// `least` and `greatest` dimensions. It sets the entries of `allowed`, one a choice and false at first, to
/// true. Where none is set the build takes any. Returning false ends the build.
pub type kiln_select_fn = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        layer: *const c_char,
        layer_length: usize,
        allowed: *mut bool,
        choice_count: usize,
    ) -> bool,
>;

struct Chooser(Callback<unsafe extern "C" fn(*mut c_void, *const c_char, usize, *mut bool, usize) -> bool>);

impl AlgorithmSelector for Chooser {
    fn select(&mut self, layer: &LayerContext, choices: &[Algorithm]) -> Result<Vec<usize>, String> {
        let one = |a: &Algorithm| {
            object!({
                "implementation": a.implementation, "tactic": a.tactic, "workspace": a.workspace,
                "deterministic": a.deterministic, "time_ns": a.time_ns, "estimate_ns": a.estimate_ns,
            })
        };
        let tensor = |(t, b): (&TensorLayout, &ShapeBounds)| {
            object!({
                "dtype": t.dtype.name(), "dims": t.dims, "strides": t.strides,
                "least": b.least, "greatest": b.greatest,
            })
        };
        let tensors: Vec<Value> =
            layer.inputs.iter().chain(&layer.outputs).zip(&layer.bounds).map(tensor).collect();
        let (inputs, outputs) = tensors.split_at(layer.inputs.len().min(tensors.len()));
        let text = object!({
            "layer": layer.layer, "operators": layer.operators, "key": layer.key,
            "inputs": inputs, "outputs": outputs,
            "choices": choices.iter().map(one).collect::<Vec<Value>>(),
        })
        .to_string();
        let mut allowed = vec![false; choices.len()];
        let Callback { function, user, .. } = &self.0;
        // SAFETY: the caller's function for its pointer.
        let goes_on =
            unsafe { function(*user, text.as_ptr().cast(), text.len(), allowed.as_mut_ptr(), allowed.len()) };
        match goes_on {
            true => Ok(allowed.iter().enumerate().filter(|(_, a)| **a).map(|(i, _)| i).collect()),
            false => Err("the selector refused to choose".into()),
        }
    }

    fn report(&mut self, _: &[StepReport]) {}
}

/// Asks a function for the algorithms of each layer of builds. NULL ends it. The report of a build has what was taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_builder_set_selector(
    builder: *mut kiln_builder_t,
    function: kiln_select_fn,
    user: *mut c_void,
    destroy: kiln_destroy_fn,
) -> *mut kiln_error_t {
    guard(|| {
        let chooser = Callback::new(function, user, destroy);
        let selector = chooser.map(|c| Selector::new(Arc::new(Mutex::new(Chooser(c)))));
        // SAFETY: pointers as the header wants them.
        unsafe {
            change(builder, |w| {
                w.options.config.selector = selector;
                Ok(())
            })
        }
    })
}
