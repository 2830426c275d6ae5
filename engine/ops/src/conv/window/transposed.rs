//! Geometry of transposed convolution.

use super::{Axis, PadMode, check_kernel, halves, list, span};
use kiln_ir::attr::Attrs;
use kiln_ir::dim::Dim;
use kiln_ir::error::OpError;

/// The windows of a transposed convolution, given as those of the convolution that it is the transpose of: they slide
/// over the *result* (`Axis::input`), and there is one (`Axis::output`) for each element of the operand. Operand element
/// i reaches result element i·S + k·D − B through tap k; result elements that none reaches are zero.
///
/// With operand size I, output padding p and full = (I−1)S + DK + p, the result's size O is
///
/// | pad mode | O | padding |
/// |---|---|---|
/// | explicit, explicit_round_up | full − B − A | as given |
/// | valid | full | none |
/// | same_upper, same_lower | I·S | P = max(0, full − O), the odd one after (upper) or before (lower) |
/// | any, `output_shape` given | as given | P = max(0, full − O), the odd one after only with same_upper |
pub fn windows(attrs: &Attrs, operand: &[Dim], kernel: &[Dim]) -> Result<Vec<Axis<Dim>>, OpError> {
    let n = operand.len();
    let (strides, dilations) = (list(attrs, "strides", n, 1, 1)?, list(attrs, "dilations", n, 1, 1)?);
    let (pads, extra) = (list(attrs, "pads", 2 * n, 0, 0)?, list(attrs, "output_padding", n, 0, 0)?);
    let given = match attrs.get("output_shape") {
        Some(_) if !attrs.ints("output_shape")?.is_empty() => Some(list(attrs, "output_shape", n, 0, 0)?),
        _ => None,
    };
    (0..n)
        .map(|i| {
            let axis = Axis {
                input: Dim::new(0),
                output: operand[i].clone(),
                kernel: check_kernel(&kernel[i], i)?,
                stride: strides[i],
                dilation: dilations[i],
                begin: pads[i].into(),
                end: pads[n + i].into(),
            };
            resolve(axis, PadMode::of(attrs), extra[i].into(), given.as_ref().map(|g| g[i].into()), i)
        })
        .collect()
}

fn resolve(
    mut a: Axis<Dim>,
    mode: PadMode,
    extra: Dim,
    given: Option<Dim>,
    axis: usize,
) -> Result<Axis<Dim>, OpError> {
    let stride = Dim::new(a.stride);
    let full = (a.output.clone() - 1.into()) * stride.clone() + span(&a) + extra;
    let same = matches!(mode, PadMode::SameUpper | PadMode::SameLower);
    match given {
        None if mode == PadMode::Valid => {
            (a.begin, a.end) = (0.into(), 0.into());
            a.input = full;
        }
        None if !same => a.input = full - a.begin.clone() - a.end.clone(),
        size => {
            a.input = size.unwrap_or(a.output.clone() * stride);
            let total = (full - a.input.clone()).max_with(&0.into());
            (a.begin, a.end) = halves(&total, mode == PadMode::SameUpper);
        }
    }
    match (a.input.as_const(), a.output.is(0)) {
        (Some(n), true) if n < 0 => a.input = 0.into(),
        (Some(n), false) if n < 0 => {
            return Err(OpError::Value(format!(
                "padding of {} and {} leaves a size of {n} on spatial axis {axis}",
                a.begin, a.end
            )));
        }
        _ => {}
    }
    Ok(a)
}
