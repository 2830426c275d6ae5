//! Helpers for tests of operators: tensors from lists, one operator on the oracle, comparison.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

use kiln_ir::attr::Attrs;
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::infer::Fact;
use kiln_ir::op::Op;
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;

/// A tensor of floats, stored as `dtype`.
pub fn floats(dtype: DType, shape: &[usize], v: &[f64]) -> Tensor {
    Tensor::from_elems(dtype, shape, &Elems::F(v.to_vec())).unwrap()
}

/// A tensor of f32.
pub fn f32s(shape: &[usize], v: &[f64]) -> Tensor {
    floats(DType::F32, shape, v)
}

/// A tensor of integers, stored as `dtype`.
pub fn ints(dtype: DType, shape: &[usize], v: &[i64]) -> Tensor {
    Tensor::from_elems(dtype, shape, &Elems::I(v.to_vec())).unwrap()
}

/// An f32 tensor of 0, 1, 2, ….
pub fn iota(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    f32s(shape, &(0..n).map(|i| i as f64).collect::<Vec<_>>())
}

/// All outputs of one operator on the oracle.
pub fn run_all(name: &str, attrs: Attrs, inputs: &[Option<Tensor>]) -> Result<Vec<Tensor>, OpError> {
    Op::new(name, attrs).unwrap().eval(inputs)
}

/// The first output of one operator with all inputs present.
pub fn run(name: &str, attrs: Attrs, inputs: &[Tensor]) -> Tensor {
    let inputs: Vec<_> = inputs.iter().cloned().map(Some).collect();
    run_all(name, attrs, &inputs).unwrap().swap_remove(0)
}

/// Inferred facts for inputs of which nothing is known but the type.
pub fn infer(name: &str, attrs: Attrs, inputs: &[(DType, Vec<Dim>)]) -> Result<Vec<Fact>, OpError> {
    let facts: Vec<_> =
        inputs.iter().map(|(t, d)| Some(Fact::of(TensorType { dtype: *t, dims: d.clone() }))).collect();
    Op::new(name, attrs).unwrap().infer(&facts, "t")
}

/// Whether both have this shape and elements that differ by no more than `tol` (NaN equals NaN).
#[track_caller]
pub fn assert_near(x: &Tensor, shape: &[usize], want: &[f64], tol: f64) {
    assert_eq!(x.shape(), shape);
    for (i, (a, b)) in x.to_f64().iter().zip(want).enumerate() {
        let near = (a - b).abs() <= tol || a == b || (a.is_nan() && b.is_nan());
        assert!(near, "element {i} is {a}, wanted {b} in {:?}", x.to_f64());
    }
    assert_eq!(x.len(), want.len());
}
