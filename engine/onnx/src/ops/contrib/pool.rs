//! Pooling and convolution of codes, also with channels last.

use kiln_ir::Attrs;
use kiln_network::TensorId;

use crate::convert::{Cx, Outs, Refusal};
use crate::ops::Operator;
use crate::ops::contrib::quantize::one;
use crate::ops::matmul::integer::qlinear_conv_of;
use crate::ops::pool::window;
use crate::ops::reduce::{over, spatial};

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("com.microsoft.NhwcMaxPool", &[1], |cx| {
        let x = cx.input(0)?;
        let attrs = window(cx)?.with("op", "max");
        let y = channels_first(cx, x, true, |cx, x| cx.layer("pool", attrs, &[Some(x)]))?;
        Ok(vec![y])
    }),
    Operator::new("com.microsoft.QLinearAveragePool", &[1], average),
    Operator::new("com.microsoft.QLinearConv", &[1], |cx| {
        let (x, last) = (cx.input(0)?, cx.flag("channels_last", false)?);
        Ok(vec![channels_first(cx, x, last, qlinear_conv_of)?])
    }),
    Operator::new("com.microsoft.QLinearGlobalAveragePool", &[1], global_average),
];

/// Result of `f` on an image with its channels in front, in the layout of the image.
fn channels_first(
    cx: &mut Cx<'_>,
    x: TensorId,
    last: bool,
    f: impl FnOnce(&mut Cx<'_>, TensorId) -> Result<TensorId, Refusal>,
) -> Result<TensorId, Refusal> {
    if !last {
        return f(cx, x);
    }
    let rank = cx.rank(x) as i64;
    let order = |axes: &[i64]| axes.iter().copied().filter(|a| *a < rank).collect::<Vec<_>>();
    let first = [order(&[0, rank - 1]), (1..rank - 1).collect()].concat();
    let x = cx.transpose(x, first)?;
    let y = f(cx, x)?;
    let back = [vec![0], (2..rank).collect(), vec![1]].concat();
    cx.transpose(y, back)
}

fn average(cx: &mut Cx<'_>) -> Outs {
    let attrs: Attrs =
        window(cx)?.with("op", "average").with("count_include_pad", cx.flag("count_include_pad", false)?);
    let last = cx.flag("channels_last", false)?;
    one(cx, |cx, x| channels_first(cx, x, last, |cx, x| cx.layer("pool", attrs, &[Some(x)])))
}

fn global_average(cx: &mut Cx<'_>) -> Outs {
    let last = cx.flag("channels_last", false)?;
    one(cx, |cx, x| {
        let rank = cx.rank(x) as i64;
        let axes = if last { (1..rank - 1).collect() } else { spatial(cx, x) };
        if axes.is_empty() { Ok(x) } else { over(cx, "mean", x, &axes) }
    })
}
