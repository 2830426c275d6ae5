//! Attention whose scores and probabilities go through graphs of the model.

use std::sync::Arc;

use kiln_ir::infer::differ;
use kiln_ir::{Attrs, DType, Dim, Fact, IrError, Op};
use kiln_network::{NetworkError, TensorId};

use crate::convert::{Cx, Outs, Refusal, unsupported};
use crate::model::Graph;
use crate::ops::Operator;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[Operator::new("ai.onnx.preview.FlexAttention", &[1], flex_attention)];

/// Plain attention is one layer. Else the parts of it are layers: product, what changes the scores, softmax, what changes the
/// probabilities, product; the builder makes one layer of those that it knows as attention.
fn flex_attention(cx: &mut Cx<'_>) -> Outs {
    let [q, k, v] = [cx.input(0)?, cx.input(1)?, cx.input(2)?];
    for t in [q, k, v] {
        if cx.rank(t) != 4 {
            return unsupported(format!("an input {}: wants [batch, heads, length, size]", cx.ty(t)));
        }
    }
    let own = cx.dtype(q);
    let precision = cx.dtype_attr("softmax_precision")?.unwrap_or(DType::F32);
    if ![DType::F32, DType::F16, DType::BF16].contains(&precision) {
        return Err(cx.bad_attr("softmax_precision", &format!("is {precision}: wanted a float type")));
    }
    let scale = cx.attr::<f32>("scale")?.map(f64::from);
    let graph = |name| Ok::<_, Refusal>(cx.attr::<&Arc<Graph>>(name)?.cloned());
    let (score_mod, prob_mod) = (graph("score_mod")?, graph("prob_mod")?);
    // The rule of the operator for plain attention holds for the parts, too, which would stretch more.
    let plain = Attrs::new().with("softmax_f32", precision == DType::F32);
    let facts: Vec<Option<Fact>> = [q, k, v].iter().map(|&t| Some(cx.fact(t).clone())).collect();
    let checked = Op::new("attention", plain.clone())
        .and_then(|op| op.infer(&facts, "").map_err(|e| IrError::layer(&cx.node().label(), "attention", e)));
    checked.map_err(NetworkError::from)?;
    let same = precision == own || (precision == DType::F32 && own != DType::F32);
    if score_mod.is_none() && prob_mod.is_none() && same && scale != Some(0.0) {
        let attrs = plain.with("scale", scale.unwrap_or(0.0));
        return Ok(vec![cx.layer("attention", attrs, &[Some(q), Some(k), Some(v)])?]);
    }
    let groups = Groups::of(cx, q, k)?;
    let scaled = match (scale, cx.dim(q, 3).and_then(|d| d.as_const())) {
        (Some(scale), _) => cx.bin_num("mul", q, scale)?,
        (None, Some(size)) => cx.bin_num("mul", q, 1.0 / (size as f64).sqrt())?,
        (None, None) => {
            let scale = scale_of_size(cx, q)?;
            cx.bin("mul", q, scale)?
        }
    };
    let rows = groups.join(cx, scaled)?;
    let scores = cx.layer("matmul", Attrs::new().with("trans_b", true), &[Some(rows), Some(k)])?;
    let scores = groups.part(cx, scores, q)?;
    let scores = cx.cast(scores, precision)?;
    let scores = modified(cx, scores, score_mod, "score_mod")?;
    let weights = cx.layer("softmax", Attrs::new().with("axis", -1i64), &[Some(scores)])?;
    let weights = modified(cx, weights, prob_mod, "prob_mod")?;
    let rows = groups.join(cx, weights)?;
    let v = cx.cast(v, precision)?;
    let y = cx.bin("matmul", rows, v)?;
    let y = groups.part(cx, y, q)?;
    Ok(vec![cx.cast(y, own)?])
}

/// A tensor after one of the node's graphs, which keeps type and shape.
fn modified(
    cx: &mut Cx<'_>,
    x: TensorId,
    graph: Option<Arc<Graph>>,
    name: &str,
) -> Result<TensorId, Refusal> {
    let Some(graph) = graph else { return Ok(x) };
    let ([input], [_]) = (&graph.inputs[..], &graph.outputs[..]) else {
        let (i, o) = (graph.inputs.len(), graph.outputs.len());
        return Err(cx.bad_attr(name, &format!("has {i} inputs and {o} outputs: wanted one of each")));
    };
    let outputs = cx.region(&graph, vec![(input.name.clone(), x)])?;
    let &[y] = &outputs[..] else { return unsupported(format!("{name} without an output")) };
    let (before, after) = (cx.ty(x), cx.ty(y));
    let same = before.dtype == after.dtype
        && before.rank() == after.rank()
        && !before.dims.iter().zip(&after.dims).any(|(a, b)| differ(a, b));
    if same { Ok(y) } else { Err(cx.bad_attr(name, &format!("makes {after} of {before}: wanted no change"))) }
}

/// One over the root of the head size, computed from the shape of the queries and rounded to their type.
fn scale_of_size(cx: &mut Cx<'_>, q: TensorId) -> Result<TensorId, Refusal> {
    let size = cx.dims(q, 3..4)?;
    let size = cx.cast(size, DType::F32)?;
    let root = cx.un("sqrt", size)?;
    let one = cx.num(DType::F32, 1.0)?;
    let scale = cx.bin("div", one, root)?;
    cx.cast(scale, cx.dtype(q))
}

/// Query heads that share a key head stand one behind the other: their rows are those of one product.
struct Groups {
    /// The number of key heads and that of the query heads of each, 1-D tensors of one element; `None` if there are as many
    /// key heads as query heads.
    heads: Option<[TensorId; 2]>,
}

impl Groups {
    fn of(cx: &mut Cx<'_>, q: TensorId, k: TensorId) -> Result<Groups, Refusal> {
        let (of_q, of_k) = (cx.dim(q, 1), cx.dim(k, 1));
        if of_q == of_k {
            return Ok(Groups { heads: None });
        }
        let number = |d: Option<Dim>| d.and_then(|d| d.as_const());
        let (heads, each) = match (number(of_q), number(of_k)) {
            (Some(q), Some(k)) => (cx.i64s(&[k])?, cx.i64s(&[q / k.max(1)])?),
            _ => {
                let (all, heads) = (cx.dims(q, 1..2)?, cx.dims(k, 1..2)?);
                (heads, cx.bin("floor_div", all, heads)?)
            }
        };
        Ok(Groups { heads: Some([heads, each]) })
    }

    /// [batch, query heads, length, size] as [batch, key heads, rows, size].
    fn join(&self, cx: &mut Cx<'_>, x: TensorId) -> Result<TensorId, Refusal> {
        let Some([heads, each]) = self.heads else { return Ok(x) };
        let (batch, length, size) = (cx.dims(x, 0..1)?, cx.dims(x, 2..3)?, cx.dims(x, 3..4)?);
        let rows = cx.bin("mul", length, each)?;
        let shape = cx.join(&[batch, heads, rows, size])?;
        cx.reshape_to(x, shape)
    }

    /// Back again, with batch, heads and length of `like`.
    fn part(&self, cx: &mut Cx<'_>, x: TensorId, like: TensorId) -> Result<TensorId, Refusal> {
        if self.heads.is_none() {
            return Ok(x);
        }
        let (lead, size) = (cx.dims(like, 0..3)?, cx.dims(x, 3..4)?);
        let shape = cx.join(&[lead, size])?;
        cx.reshape_to(x, shape)
    }
}
