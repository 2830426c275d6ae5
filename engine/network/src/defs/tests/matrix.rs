//! Matrix multiply, fully connected, einsum.

use crate::tests::{f32s, ints, refused, through};
use crate::*;
use kiln_ir::DType;
use kiln_ir::tensor::Tensor;

fn matmul(a: Tensor, oa: MatrixOp, b: Tensor, ob: MatrixOp) -> Result<Tensor, NetworkError> {
    through(&[a, b], |n, x| n.add_matrix_multiply(x[0], oa, x[1], ob)?.output(0))
}

#[test]
fn matrices_transposes_and_vectors() {
    use MatrixOp as M;
    let (a, b) = (|| f32s(&[2, 2], &[1.0, 2.0, 3.0, 4.0]), || f32s(&[2, 2], &[5.0, 6.0, 7.0, 8.0]));
    let ok = |a, oa, b, ob| matmul(a, oa, b, ob).unwrap();
    assert_eq!(ok(a(), M::None, b(), M::None), f32s(&[2, 2], &[19.0, 22.0, 43.0, 50.0]));
    assert_eq!(ok(a(), M::Transpose, b(), M::None), f32s(&[2, 2], &[26.0, 30.0, 38.0, 44.0]));
    assert_eq!(ok(a(), M::None, b(), M::Transpose), f32s(&[2, 2], &[17.0, 23.0, 39.0, 53.0]));
    let v = || f32s(&[2], &[1.0, 10.0]);
    assert_eq!(ok(v(), M::Vector, a(), M::None), f32s(&[2], &[31.0, 42.0]));
    assert_eq!(ok(a(), M::None, v(), M::Vector), f32s(&[2], &[21.0, 43.0]));
    assert_eq!(ok(v(), M::Vector, v(), M::Vector), f32s(&[], &[101.0]));
    // Batches of length 1 are stretched.
    let many = ok(
        f32s(&[2, 1, 2], &[1.0, 0.0, 0.0, 1.0]),
        M::None,
        f32s(&[1, 2, 2], &[1.0, 2.0, 3.0, 4.0]),
        M::None,
    );
    assert_eq!(many, f32s(&[2, 1, 2], &[1.0, 2.0, 3.0, 4.0]));
    let rows =
        ok(f32s(&[2, 2], &[1.0, 0.0, 0.0, 1.0]), M::Vector, f32s(&[2, 2, 1], &[5.0, 6.0, 7.0, 8.0]), M::None);
    assert_eq!(rows, f32s(&[2, 1], &[5.0, 8.0]));
}

#[test]
fn matrices_that_do_not_fit() {
    use MatrixOp as M;
    let a = || f32s(&[2, 2], &[0.0; 4]);
    refused(matmul(a(), M::None, f32s(&[3, 2], &[0.0; 6]), M::None), "layer \"matrix_multiply\"");
    refused(
        matmul(f32s(&[1, 2, 2], &[0.0; 4]), M::None, a(), M::None),
        "as many dimensions before the matrix",
    );
    refused(matmul(f32s(&[2], &[0.0; 2]), M::None, a(), M::None), "at least 2 dimensions");
    let n = ints(DType::I32, &[2, 2], &[0; 4]);
    refused(matmul(n.clone(), M::None, n, M::None), "is i32, wants a float type");
}

#[test]
fn fully_connected_flattens_three_dimensions() {
    let go = |outputs, w: Tensor, bias: Option<Tensor>| {
        through(&[f32s(&[2, 2, 1, 1], &[1.0, 2.0, 3.0, 4.0])], |n, x| {
            n.add_fully_connected(x[0], outputs, w, bias)?.output(0)
        })
    };
    let w = f32s(&[6], &[1.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
    let y = go(3, w.clone(), Some(f32s(&[3], &[0.0, 0.0, 10.0]))).unwrap();
    assert_eq!(y, f32s(&[2, 3, 1, 1], &[1.0, 2.0, 13.0, 3.0, 4.0, 17.0]));
    refused(go(2, w, None), "6 numbers, wants as many as [2, 2] holds");
}

#[test]
fn einsums_take_lower_case_letters() {
    let go = |e: &str| {
        let (a, b) = (f32s(&[2, 2], &[1.0, 2.0, 3.0, 4.0]), f32s(&[2, 2], &[5.0, 6.0, 7.0, 8.0]));
        through(&[a, b], |n, x| n.add_einsum(x, e)?.output(0))
    };
    assert_eq!(go("ij,jk->ik").unwrap(), f32s(&[2, 2], &[19.0, 22.0, 43.0, 50.0]));
    assert_eq!(go("ii,jj").unwrap(), f32s(&[], &[65.0]));
    refused(go("iJ,jk->ik"), "lower-case letters only");
    refused(go("ij,jkl->ik"), "layer \"einsum\"");
}
