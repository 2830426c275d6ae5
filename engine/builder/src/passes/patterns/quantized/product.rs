//! A product of two dequantized matrices: the product of their codes, dequantized.
//!
//! With zero points p and q, Σ(a−p)(b−q) = Σab − q·Σa − p·Σ(b−q). Sums over a constant matrix are constants.

use super::super::view::{View, input};
use super::super::{Rule, Writer};
use super::codes::{Codes, centred, one_element, real, sum, swapped, wide};
use crate::passes::precision::greatest_code;
use kiln_ir::{Attrs, DType, Graph, IrError, NodeId, ValueId};
use kiln_ops::matmul::MATMUL;
use kiln_ops::pointwise::binary::MUL;

pub struct QuantizedProduct {
    operands: [Codes; 2],
    /// Flags "trans_a" and "trans_b".
    swap: [bool; 2],
    attrs: Attrs,
    to: DType,
}

impl Rule for QuantizedProduct {
    const NAME: &'static str = "quantized-product";
    const WEIGHTS: bool = true;

    fn find(view: &View<'_>, root: NodeId) -> Option<QuantizedProduct> {
        let g = view.g;
        let node = g
            .get(root)
            .filter(|n| n.op.is(MATMUL) && n.meta.precision.is_none_or(|t| greatest_code(t).is_some()))?;
        let inputs = [input(node, 0)?, input(node, 1)?];
        let operands = [Codes::of(view, inputs[0])?, Codes::of(view, inputs[1])?];
        let attrs = node.op.attrs().clone();
        let swap = [attrs.bool("trans_a").ok()?, attrs.bool("trans_b").ok()?];
        // Products of codes themselves are done.
        let bare = inputs.iter().zip(&operands).all(|(v, c)| *v == c.codes);
        let alike = operands[0].go_with(&operands[1], g);
        let fits = |i: usize| {
            let c = operands[i];
            let rank = g.ty(c.codes).rank();
            // Rows of the second operand and columns of the first are summed over.
            let depth = if (i == 0) != swap[i] { 1 } else { 2 };
            rank >= 2 && [c.scale, c.zero].into_iter().flatten().all(|v| is_one_along(g, v, depth, rank))
        };
        let to = g.ty(*node.outputs.first()?).dtype;
        (!bare && alike && fits(0) && fits(1)).then_some(QuantizedProduct { operands, swap, attrs, to })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        w.forget_precision();
        let [a, b] = self.operands;
        let [turn_a, turn_b] = self.swap;
        let factors = [a.factor(&mut w)?, b.factor(&mut w)?];
        let sums = w.op(MATMUL, self.attrs, &factors)?;
        // Along the result: one a row, [.., M, 1], or one a column, [.., 1, N].
        let along = |w: &mut Writer<'_>, v: ValueId, turn: bool| match turn && !one_element(w.g, v) {
            true => swapped(w, v),
            false => Ok(v),
        };
        let mut excess = Vec::new();
        if let Some(q) = b.zero {
            let rows = wide(&mut w, factors[0])?;
            let rows = sum(&mut w, rows, &[if turn_a { -2 } else { -1 }])?;
            let (rows, q) = (along(&mut w, rows, turn_a)?, wide(&mut w, q)?);
            let q = along(&mut w, q, turn_b)?;
            excess.push(w.op(MUL, Attrs::new(), &[rows, q])?);
        }
        if let Some(p) = a.zero {
            let columns = centred(&mut w, Codes { codes: factors[1], ..b })?;
            let columns = sum(&mut w, columns, &[if turn_b { -1 } else { -2 }])?;
            let (columns, p) = (along(&mut w, columns, turn_b)?, wide(&mut w, p)?);
            let p = along(&mut w, p, turn_a)?;
            excess.push(w.op(MUL, Attrs::new(), &[p, columns])?);
        }
        let mut scales = [a.scale, b.scale];
        for (scale, turn) in scales.iter_mut().zip(self.swap) {
            *scale = scale.map(|s| along(&mut w, s, turn)).transpose()?;
        }
        let y = real(&mut w, sums, excess, scales, self.to)?;
        Ok(w.replace(root, y))
    }
}

/// Whether a value that broadcasts to `rank` dimensions has one element along the one that is so many from the end.
fn is_one_along(g: &Graph, v: ValueId, from_end: usize, rank: usize) -> bool {
    let dims = &g.ty(v).dims;
    dims.len() <= rank && dims.len().checked_sub(from_end).is_none_or(|axis| dims[axis].is(1))
}
