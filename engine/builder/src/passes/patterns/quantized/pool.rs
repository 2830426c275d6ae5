//! A mean of dequantized windows: the sums of their codes, dequantized and divided.
//!
//! A window of n elements with zero point p has the sum Σ(x−p) = Σx − n·p, which is exact. Windows at the border have fewer elements:
//! the sums of ones are constants.

use super::super::view::{View, input};
use super::super::{Rule, Writer};
use super::codes::{Codes, scalar, wide};
use crate::passes::precision::greatest_code;
use kiln_ir::{Attrs, DType, Elems, IrError, NodeId, Tensor, ValueId};
use kiln_ops::cast::CAST;
use kiln_ops::conv::window::{self, PAD_MODE, PADS};
use kiln_ops::layout::Layout;
use kiln_ops::pointwise::binary::{DIV, MUL};
use kiln_ops::pool::{KERNEL, POOL, PoolOp, geometry};
use kiln_ops::quantize::DEQUANTIZE;
use kiln_ops::reduce::REDUCE;

pub struct QuantizedPool {
    x: Codes,
    /// The attributes of the sums.
    attrs: Attrs,
    /// Sizes of an image with one channel where windows have different numbers of elements, else that number.
    counts: Result<Vec<usize>, i64>,
}

/// Elements of a window at most: sums of them fit into floats, so that nothing but the mean is rounded.
const MOST: i64 = 1 << 15;
/// Elements of an image at most whose mean is a pooling: its kernels add them one after the other.
const IMAGE: i64 = 256;

impl Rule for QuantizedPool {
    const NAME: &'static str = "quantized-pool";
    const WEIGHTS: bool = true;

    fn find(view: &View<'_>, root: NodeId) -> Option<QuantizedPool> {
        let g = view.g;
        let node = g.get(root).filter(|n| n.meta.precision.is_none_or(|t| greatest_code(t).is_some()))?;
        let x = Codes::of(view, input(node, 0)?)?;
        let small = matches!(g.ty(x.codes).dtype, DType::I8 | DType::U8);
        if !small || x.scale.is_none() || !x.per_tensor(g) || g.ty(*node.outputs.first()?).dtype != DType::F32
        {
            return None;
        }
        let dims = g.ty(x.codes).dims.as_slice();
        let spatial = || dims.iter().skip(2).map(|d| d.as_const()).collect::<Option<Vec<i64>>>();
        let sums = |kernel: &[i64]| Attrs::new().with("op", "sum").with(KERNEL.name, kernel);
        let (attrs, even, most) = match node.op.id() {
            POOL if PoolOp::of(node.op.attrs()) == PoolOp::Average => {
                let own = node.op.attrs();
                let padded = own.ints(PADS.name).ok()?.iter().any(|&n| n != 0);
                let explicit = own.str(PAD_MODE.name).ok()? == "explicit";
                let even = !padded && explicit && !own.bool("ceil_mode").ok()?;
                let counted = even || !own.bool("count_include_pad").ok()?;
                let linear = Layout::of(own) == Layout::Linear;
                (counted && linear)
                    .then(|| (own.clone().with("op", "sum").with("count_include_pad", false), even, MOST))?
            }
            // A mean over all of an image is a pooling with one window.
            REDUCE if (3..=5).contains(&dims.len()) => {
                let axes = view.reduced(node, "mean")?;
                let whole = axes.len() + 2 == dims.len() && axes[0] == 2;
                (sums(&spatial().filter(|_| whole)?), true, IMAGE)
            }
            _ => return None,
        };
        let taps = attrs.ints(KERNEL.name).ok()?.iter().try_fold(1i64, |n, &k| n.checked_mul(k))?;
        let sizes = || spatial()?.into_iter().map(|n| usize::try_from(n).ok()).collect::<Option<Vec<_>>>();
        let counts = if even { Err(taps) } else { Ok([1, 1].into_iter().chain(sizes()?).collect()) };
        // The mean of padding alone is 0, not that of its code.
        let filled = || {
            let axes = window::numbers(&geometry(&attrs, dims).ok()?)?;
            Some(axes.iter().all(|a| (0..a.output).all(|o| a.taps(o).next().is_some())))
        };
        if !even && filled() != Some(true) {
            return None;
        }
        (1..=most).contains(&taps).then_some(QuantizedPool { x, attrs, counts })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        w.forget_precision();
        let QuantizedPool { x, attrs, counts } = self;
        let sums = w.op(POOL, attrs.clone(), &[x.codes])?;
        let count = match counts {
            Err(taps) => w.integer(taps, DType::I32)?,
            Ok(sizes) => {
                let all = Elems::I(vec![1; sizes.iter().product()]);
                let ones = Tensor::from_elems(DType::I8, &sizes, &all);
                let wrong = || IrError::Structure(format!("a tensor of size {sizes:?}"));
                let ones = w.constant(ones.ok_or_else(wrong)?);
                w.op(POOL, attrs, &[ones])?
            }
        };
        let scale = x.scale.map(|scale| scalar(&mut w, scale)).transpose()?;
        let excess = match x.zero {
            Some(zero) => {
                let zero = wide(&mut w, zero)?;
                let zero = scalar(&mut w, zero)?;
                Some(w.op(MUL, Attrs::new(), &[count, zero])?)
            }
            None => None,
        };
        let inputs: Vec<Option<ValueId>> =
            [Some(sums), scale, excess].into_iter().filter(Option::is_some).collect();
        let real = w.node(DEQUANTIZE, Attrs::new().with("to", DType::F32), &inputs)?;
        let count = w.op(CAST, Attrs::new().with("to", DType::F32), &[count])?;
        let y = w.op(DIV, Attrs::new(), &[real, count])?;
        Ok(w.replace(root, y))
    }
}
