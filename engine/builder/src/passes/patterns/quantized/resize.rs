//! An interpolation of dequantized values: that of their codes, less the zero point, times the scale. Weights of neighbours add up to 1.

use super::super::view::{View, input};
use super::super::{Rule, Writer};
use super::codes::{Codes, scalar, step};
use crate::passes::precision::greatest_code;
use kiln_ir::{Attrs, DType, IrError, NodeId, Op, ValueId};
use kiln_ops::cast::CAST;
use kiln_ops::pointwise::binary::{MUL, SUB};
use kiln_ops::sample::resize::{RESIZE, TO_F32};

pub struct QuantizedResize {
    x: Codes,
    op: Op,
    inputs: Vec<Option<ValueId>>,
}

/// The largest factor by which sizes grow: weights have few digits then.
const MOST: f64 = 16.0;

/// Whether weights of neighbours are fractions of powers of two, so that nothing is rounded before the zero point is taken off.
fn exact(view: &View<'_>, scales: Option<ValueId>, coord: &str) -> bool {
    let all = scales.and_then(|v| view.g.weight(v)).map(|w| w.tensor.to_f64());
    let power = |s: &f64| (1.0..=MOST).contains(s) && s.log2().fract() == 0.0;
    all.is_some_and(|all| all.iter().all(power))
        && matches!(coord, "half_pixel" | "asymmetric" | "pytorch_half_pixel")
}

impl Rule for QuantizedResize {
    const NAME: &'static str = "quantized-resize";
    const WEIGHTS: bool = true;

    fn find(view: &View<'_>, root: NodeId) -> Option<QuantizedResize> {
        let g = view.g;
        let codes = |t: DType| greatest_code(t).is_some();
        let node = g.get(root).filter(|n| n.op.is(RESIZE) && n.meta.precision.is_none_or(codes))?;
        let x = Codes::of(view, input(node, 0)?)?;
        let attrs = node.op.attrs();
        let (mode, coord) = (attrs.str("mode").ok()?, attrs.str("coord").ok()?);
        let sums_to_one = mode == "linear" && coord != "tf_crop_and_resize";
        let small = matches!(g.ty(x.codes).dtype, DType::I8 | DType::U8);
        let float = g.ty(*node.outputs.first()?).dtype == DType::F32;
        let fits = small && float && sums_to_one && x.scale.is_some() && x.per_tensor(g);
        let rounds_alike = x.zero.is_none() || exact(view, input(node, 2), coord);
        let mut inputs = node.inputs.clone();
        inputs[0] = Some(x.codes);
        let op = Op::new(node.op.name(), attrs.clone().with(TO_F32.name, true)).ok()?;
        (fits && rounds_alike).then_some(QuantizedResize { x, op, inputs })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        w.forget_precision();
        let mut y = w.node(self.op.id(), self.op.attrs().clone(), &self.inputs)?;
        if let Some(zero) = self.x.zero {
            let zero = scalar(&mut w, zero)?;
            let zero = w.op(CAST, Attrs::new().with("to", DType::F32), &[zero])?;
            y = w.op(SUB, Attrs::new(), &[y, zero])?;
        }
        if let Some(scale) = self.x.scale {
            let scale = scalar(&mut w, scale)?;
            let scale = step(&mut w, scale)?;
            y = w.op(MUL, Attrs::new(), &[y, scale])?;
        }
        Ok(w.replace(root, y))
    }
}
