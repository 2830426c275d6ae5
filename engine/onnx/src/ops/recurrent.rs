//! Recurrent networks.

use kiln_ir::Attrs;

use crate::convert::{Cx, Outs, Refusal};
use crate::ops::Operator;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("GRU", &[1, 3, 7, 14, 22], |cx| {
        let attrs = attrs(cx)?.with("linear_before_reset", cx.flag("linear_before_reset", false)?);
        recurrent(cx, "gru", attrs)
    }),
    Operator::new("LSTM", &[1, 7, 14, 22], |cx| {
        let attrs = attrs(cx)?.with("input_forget", cx.flag("input_forget", false)?);
        recurrent(cx, "lstm", attrs)
    }),
    Operator::new("RNN", &[1, 7, 14, 22], |cx| {
        let attrs = attrs(cx)?;
        recurrent(cx, "rnn", attrs)
    }),
];

/// Attributes that the three have in common. Without `hidden_size` the recurrence weights decide it.
fn attrs(cx: &Cx<'_>) -> Result<Attrs, Refusal> {
    let from_weights = cx.dim(cx.input(2)?, 2).and_then(|d| d.as_const()).unwrap_or(0);
    // Outputs are made if they are named.
    cx.skip("output_sequence");
    let activations = cx.attr::<Vec<&str>>("activations")?.unwrap_or_default();
    let activations: Vec<String> = activations.into_iter().map(str::to_owned).collect();
    Ok(Attrs::new()
        .with("direction", cx.text("direction", "forward")?)
        .with("activations", activations)
        .with("alpha", cx.floats("activation_alpha")?)
        .with("beta", cx.floats("activation_beta")?)
        .with("clip", cx.float("clip", 0.0)?)
        .with("hidden", cx.int("hidden_size", from_weights)?)
        .with("layout", cx.int("layout", 0)?))
}

fn recurrent(cx: &mut Cx<'_>, op: &str, attrs: Attrs) -> Outs {
    let inputs = cx.all();
    cx.layers(op, attrs, &inputs)
}
