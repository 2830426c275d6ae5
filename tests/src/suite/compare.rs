//! The suite's comparison: floats within rtol 1e-3 and atol 1e-7, all else exact, shape and type equal.

use kiln_ir::{Elems, Tensor};

/// Says what differs first, and by how much at most.
pub fn compare(found: &Tensor, wanted: &Tensor) -> Result<(), String> {
    if found.dtype() != wanted.dtype() || found.shape() != wanted.shape() {
        return Err(format!(
            "is {}{:?}, wants {}{:?}",
            found.dtype(),
            found.shape(),
            wanted.dtype(),
            wanted.shape()
        ));
    }
    match (found.elems(), wanted.elems()) {
        (Elems::F(a), Elems::F(b)) => first(&a, &b, |x, y| {
            x == y || (x.is_nan() && y.is_nan()) || (y.is_finite() && (x - y).abs() <= 1e-7 + 1e-3 * y.abs())
        }),
        (Elems::I(a), Elems::I(b)) => first(&a, &b, |x, y| x == y),
        _ => Err("kinds differ".into()),
    }
}

fn first<T: Copy + std::fmt::Display>(a: &[T], b: &[T], same: impl Fn(T, T) -> bool) -> Result<(), String> {
    let wrong: Vec<usize> = (0..a.len()).filter(|&i| !same(a[i], b[i])).collect();
    match wrong.first() {
        None => Ok(()),
        Some(&i) => {
            Err(format!("{} of {} elements differ, first [{i}]: {} for {}", wrong.len(), a.len(), a[i], b[i]))
        }
    }
}

#[test]
fn infinities_of_other_sign_differ() {
    let of = |x: f32| Tensor::f32(&[1], &[x]);
    let (Some(up), Some(down)) = (of(f32::INFINITY), of(f32::NEG_INFINITY)) else { return };
    assert!(compare(&up, &up).is_ok() && compare(&up, &down).is_err());
}
