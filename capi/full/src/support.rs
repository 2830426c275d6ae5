//! Whether a backend runs a network, without a build.

use crate::build::{fail, prepared};
use crate::model::kiln_model_t;
use crate::wishes::kiln_builder_t;
use kiln::LayerSupport;
use kiln_c_core::bytes::kiln_bytes_t;
use kiln_c_core::error::{guard, kiln_error_t};
use kiln_c_core::handle::{self, Out};
use serde_json::{Value, json as object};

/// Asks the backend of a builder for each layer of a model whether it runs it. Nothing is built. `json` lists the layers, each with
/// "layer", "operators" and "refused": the reason, or null where the backend runs it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_builder_network_support(
    builder: *const kiln_builder_t,
    model: *const kiln_model_t,
    json: *mut *mut kiln_bytes_t,
) -> *mut kiln_error_t {
    guard(|| {
        // SAFETY: pointers as the header wants them.
        let (out, mut wishes, model) = unsafe {
            let out = Out::new(json, "json")?;
            let wishes = handle::shared(builder, "builder")?.cell.enter()?.clone();
            (out, wishes, handle::shared(model, "model")?.model.clone())
        };
        // Ranges change kernels, and not what is refused.
        wishes.calibration = None;
        let (builder, _) = prepared(wishes, &model)?;
        let support = builder.network_support(model).map_err(fail)?;
        let one =
            |l: &LayerSupport| object!({"layer": l.layer, "operators": l.operators, "refused": l.refused});
        out.put(support.layers.iter().map(one).collect::<Value>().into());
        Ok(())
    })
}
