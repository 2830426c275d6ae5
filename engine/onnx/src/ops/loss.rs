//! Losses.

use kiln_ir::Attrs;
use kiln_network::TensorId;

use crate::convert::{Cx, Outs, Refusal};
use crate::ops::Operator;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("NegativeLogLikelihoodLoss", &[12, 13, 22], |cx| {
        let scores = cx.input(0)?;
        Ok(vec![nll_loss(cx, scores)?])
    }),
    Operator::new("SoftmaxCrossEntropyLoss", &[12, 13], cross_entropy),
];

fn nll_loss(cx: &mut Cx<'_>, scores: TensorId) -> Result<TensorId, Refusal> {
    let ignore = cx.attr::<i64>("ignore_index")?;
    let attrs = Attrs::new()
        .with("reduction", cx.text("reduction", "mean")?)
        .with("ignore_index", ignore.unwrap_or(0))
        .with("use_ignore", ignore.is_some());
    cx.layer("nll_loss", attrs, &[Some(scores), cx.opt(1), cx.opt(2)])
}

/// The loss, and the logarithms of the probabilities.
fn cross_entropy(cx: &mut Cx<'_>) -> Outs {
    let log = cx.layer("log_softmax", Attrs::new().with("axis", 1), &[cx.opt(0)])?;
    Ok(vec![nll_loss(cx, log)?, log])
}
