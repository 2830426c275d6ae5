//! `col2im`: columns of blocks added up to an image.

use crate::conv::window::{self, Axis, DILATIONS, PADS, STRIDES};
use crate::util::{PLAIN, for_each_index, host_dims};
use kiln_ir::attr::Attrs;
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, differ};
use kiln_ir::op::{OpDef, Tolerance, input};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::{TensorType, dims_text};

kiln_ir::op_names! {
    COL2IM = "col2im",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: COL2IM,
    doc: "The transpose of taking blocks: x [N, C·block volume, L] gives [N, C, image..]. Column l of x holds block l \
          (row-major) of the windows of size `block_shape` over an image of size `image_shape`, and every element is \
          added where the block has it; padding is dropped. Integers wrap.",
    inputs: &[input("x"), input("image_shape").on_host(), input("block_shape").on_host()],
    attrs: &[STRIDES, PADS, DILATIONS],
    infer,
    eval,
    tolerance: Tolerance::Sum,
    problems,
    ..PLAIN
}];

/// The windows (blocks) over the image.
pub fn geometry(attrs: &Attrs, image: &[Dim], block: &[Dim]) -> Result<Vec<Axis<Dim>>, OpError> {
    window::windows(attrs, image, block)
}

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    cx.check_dtype(0, |d| d != DType::Bool && d != DType::I4, "a number type of whole bytes")?;
    cx.check_rank(0, 3)?;
    let x = cx.ty(0)?;
    let (image, block) = (host_dims(cx, 1, "image")?, host_dims(cx, 2, "block")?);
    if image.len() != block.len() || image.is_empty() {
        return Err(OpError::Mismatch {
            a: dims_text(&image),
            b: dims_text(&block),
            wanted: "image_shape and block_shape must have the same length, at least 1".into(),
        });
    }
    let blocks: Dim = geometry(cx.attrs, &image, &block)?.into_iter().map(|a| a.output).product();
    if differ(&x.dims[2], &blocks) {
        return Err(cx.bad_shape(0, &format!("{blocks} blocks in the last dimension")));
    }
    let volume: Dim = block.into_iter().product();
    if differ(&x.dims[1].modulo(&volume), &0.into()) {
        return Err(cx.bad_shape(0, &format!("a multiple of the block volume {volume} in dimension 1")));
    }
    let mut dims = vec![x.dims[0].clone(), x.dims[1].floor_div(&volume)];
    dims.extend(image);
    Ok(vec![Fact::of(TensorType { dtype: x.dtype, dims })])
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let x = cx.input(0)?;
    let shape = cx.out_shape(0)?;
    let block: Vec<Dim> = cx.input(2)?.to_i64().into_iter().map(Dim::new).collect();
    let axes = window::known(&geometry(cx.attrs(), &window::dims(&shape[2..]), &block)?)?;
    let elems = match x.elems() {
        Elems::F(v) => Elems::F(add_up(&v, &shape, &axes, 0.0, |a, b| a + b)),
        Elems::I(v) => Elems::I(add_up(&v, &shape, &axes, 0, i64::wrapping_add)),
    };
    Ok(vec![cx.make(0, &shape, elems)?])
}

fn add_up<T: Copy>(x: &[T], shape: &[usize], axes: &[Axis<i64>], zero: T, add: fn(T, T) -> T) -> Vec<T> {
    let volume = |f: fn(&Axis<i64>) -> i64| axes.iter().map(|a| f(a) as usize).product::<usize>();
    let (image, block, blocks) = (volume(|a| a.input), volume(|a| a.kernel), volume(|a| a.output));
    let counts: Vec<usize> = axes.iter().map(|a| a.output as usize).collect();
    let mut y = vec![zero; shape.iter().product()];
    for plane in 0..shape[0] * shape[1] {
        let mut l = 0;
        for_each_index(&counts, |at| {
            window::for_each_tap(axes, at, |tap, position| {
                let out = &mut y[plane * image + position];
                *out = add(*out, x[(plane * block + tap) * blocks + l]);
            });
            l += 1;
        });
    }
    y
}

fn problems(rng: &mut Rng) -> Vec<Problem> {
    struct Case(&'static str, [usize; 3], &'static [i64], &'static [i64], [&'static [i64]; 3]);
    let cases = [
        Case("blocks side by side", [2, 15, 4], &[2, 10], &[1, 5], [&[1, 5], &[], &[]]),
        Case("overlapping", [1, 18, 12], &[5, 6], &[3, 3], [&[], &[], &[]]),
        Case("padded", [1, 8, 6], &[3, 4], &[2, 2], [&[2, 1], &[1, 0, 1, 0], &[]]),
        Case("dilated", [2, 8, 4], &[4, 4], &[2, 2], [&[], &[], &[2, 2]]),
        Case("1-D", [1, 6, 4], &[6], &[3], [&[], &[], &[]]),
        Case("3-D", [1, 8, 8], &[3, 3, 3], &[2, 2, 2], [&[], &[], &[]]),
        Case("batch 0", [0, 4, 4], &[3, 3], &[2, 2], [&[], &[], &[]]),
    ];
    let mut out = Vec::new();
    for Case(label, x, image, block, [strides, pads, dilations]) in cases {
        for t in [DType::F32, DType::F16, DType::I32] {
            let attrs = Attrs::new().with("strides", strides).with("pads", pads).with("dilations", dilations);
            let inputs =
                [rng.tensor(t, &x), rng.i64s(&[image.len()], image), rng.i64s(&[block.len()], block)];
            out.push(Problem::of(&format!("{label} {t}"), "col2im", attrs, inputs.map(Some)));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, ints, iota, run, run_all};

    fn shape(v: &[i64]) -> Tensor {
        ints(DType::I64, &[v.len()], v)
    }

    /// Example of the ONNX documentation.
    #[test]
    fn blocks_side_by_side() {
        let rows: Vec<f64> = (0..5).flat_map(|r| (0..5).map(move |c| f64::from(c * 5 + r + 1))).collect();
        let attrs = Attrs::new().with("strides", vec![1i64, 5]);
        let y = run("col2im", attrs, &[f32s(&[1, 5, 5], &rows), shape(&[5, 5]), shape(&[1, 5])]);
        assert_near(&y, &[1, 1, 5, 5], &(1..=25).map(f64::from).collect::<Vec<_>>(), 0.0);
    }

    #[test]
    fn overlaps_add_and_padding_is_dropped() {
        let x = f32s(&[1, 2, 3], &[1.0, 2.0, 3.0, 10.0, 20.0, 30.0]);
        let y = run("col2im", Attrs::new(), &[x.clone(), shape(&[4]), shape(&[2])]);
        assert_near(&y, &[1, 1, 4], &[1.0, 12.0, 23.0, 30.0], 0.0);
        let padded = Attrs::new().with("pads", vec![1i64, 1]);
        assert_near(&run("col2im", padded, &[x, shape(&[2]), shape(&[2])]), &[1, 1, 2], &[12.0, 23.0], 0.0);
    }

    #[test]
    fn wrong_numbers_of_blocks_are_refused() {
        let fails = |x: [usize; 3], image: &[i64], block: &[i64]| {
            let inputs = [iota(&x), shape(image), shape(block)].map(Some);
            run_all("col2im", Attrs::new(), &inputs).unwrap_err().to_string()
        };
        assert!(fails([1, 4, 5], &[3, 3], &[2, 2]).contains("4 blocks"));
        assert!(fails([1, 5, 4], &[3, 3], &[2, 2]).contains("a multiple of the block volume 4"));
        assert!(fails([1, 4, 4], &[3], &[2, 2]).contains("the same length"));
        assert!(fails([1, 4, 4], &[3, 3], &[0, 2]).contains("size 0"));
    }
}
