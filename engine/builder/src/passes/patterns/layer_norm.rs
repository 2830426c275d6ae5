//! Layer and root mean square normalization out of means, squares and roots.

use super::pat::{Found, Pat, Pat::*};
use super::view::View;
use super::{Rule, Writer};
use kiln_ir::{Attrs, Graph, IrError, NodeId, OpName, ValueId};
use kiln_ops::norm::layer_norm::{LAYER_NORM, RMS_NORM};
use kiln_ops::pointwise::binary::{ADD, DIV, MUL, POW, SUB};
use kiln_ops::pointwise::unary::{RECIP, SQRT};

/// Value of which the root mean square is taken: `x` itself, or `x` less its mean.
const CENTRED: Pat = Op(SUB, &[Any("x"), Reduce("mean", &Any("x"))]);
const SUM: Pat = Op(ADD, &[SQUARES, Scalar("eps")]);
const SQUARES: Pat =
    Reduce("mean", &Or(&[Op(POW, &[Any("d"), Number(2.0)]), Op(MUL, &[Any("d"), Any("d")])]));
/// √(mean of squares + eps).
const DEVIATION: Pat = Or(&[Op(SQRT, &[SUM]), Op(POW, &[SUM, Number(0.5)])]);
/// Inverse of the deviation.
const INVERSE: Pat =
    Or(&[Op(RECIP, &[DEVIATION]), Op(DIV, &[Number(1.0), DEVIATION]), Op(POW, &[SUM, Number(-0.5)])]);
const NORMAL: Pat = Or(&[Op(DIV, &[Any("d"), DEVIATION]), Op(MUL, &[INVERSE, Any("d")])]);
/// Scaled after or before `d` is divided.
const SCALED: Pat =
    Or(&[Op(MUL, &[NORMAL, Any("scale")]), Op(MUL, &[Op(MUL, &[INVERSE, Any("scale")]), Any("d")])]);
const FORMS: &[Pat] = &[Op(ADD, &[SCALED, Any("bias")]), Op(ADD, &[NORMAL, Any("bias")]), SCALED, NORMAL];

/// x·s + (bias − mean·s), s = scale/√(variance + eps), as some exporters write batch statistics.
const AFFINE: Pat = Op(
    ADD,
    &[Op(MUL, &[STRETCH, Any("x")]), Op(SUB, &[Any("bias"), Op(MUL, &[STRETCH, Reduce("mean", &Any("x"))])])],
);
const STRETCH: Pat = As("s", &Op(MUL, &[INVERSE, Any("scale")]));

pub struct LayerNorm {
    op: OpName,
    x: ValueId,
    axis: usize,
    epsilon: f64,
    scale: Option<ValueId>,
    bias: Option<ValueId>,
    inside: Vec<NodeId>,
}

impl Rule for LayerNorm {
    const NAME: &'static str = "layer-norm";

    fn find(view: &View<'_>, root: NodeId) -> Option<LayerNorm> {
        let forms = FORMS.iter().chain([&AFFINE]);
        forms.filter_map(|p| p.at_node(view, root)).find_map(|found| read(view, found))
    }

    fn inside(&self) -> &[NodeId] {
        &self.inside
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let attrs = Attrs::new().with("axis", self.axis as i64).with("epsilon", self.epsilon);
        let mut inputs = vec![Some(self.x), self.scale];
        inputs.extend(self.bias.map(Some));
        while inputs.last() == Some(&None) {
            inputs.pop();
        }
        let y = w.node(self.op, attrs, &inputs)?;
        Ok(w.replace(root, y))
    }
}

fn read(view: &View<'_>, mut found: Found) -> Option<LayerNorm> {
    let d = found.value("d")?;
    let centre = CENTRED.at(view, d);
    let x = match &centre {
        Some(c) => c.value("x")?,
        None => d,
    };
    let layer = centre.is_some();
    if found.value("x").is_some_and(|other| !layer || other != x) {
        return None;
    }
    let axes = found.axes.clone()?;
    if let Some(c) = centre {
        if c.axes.as_ref() != Some(&axes) {
            return None;
        }
        found.inside.extend(c.inside);
    }
    let rank = view.g.ty(x).rank();
    let axis = *axes.first()?;
    let last_ones = axes.iter().copied().eq(axis..rank);
    let epsilon = found.number("eps").filter(|e| e.is_finite() && *e >= 0.0)?;
    let (scale, bias) = (found.value("scale"), found.value("bias"));
    let fit = |v: Option<ValueId>| v.is_none_or(|v| fits(view.g, v, x, axis));
    if !last_ones || !fit(scale) || !fit(bias) || (bias.is_some() && !layer) {
        return None;
    }
    found.inside.sort_unstable();
    found.inside.dedup();
    let op = if layer { LAYER_NORM } else { RMS_NORM };
    Some(LayerNorm { op, x, axis, epsilon, scale, bias, inside: found.inside })
}

/// Whether it is one row of what is normalized, perhaps with dimensions of 1 before it.
fn fits(g: &Graph, v: ValueId, x: ValueId, axis: usize) -> bool {
    let (own, x) = (g.ty(v), g.ty(x));
    let row = &x.dims[axis..];
    let Some(lead) = own.rank().checked_sub(row.len()) else { return false };
    own.rank() <= x.rank() && own.dims[..lead].iter().all(|d| d.is(1)) && own.dims[lead..] == *row
}
