//! The comparison rule of the suite.

use kiln_ir::{Elems, Tensor};

const RELATIVE: f64 = 1e-3;
const ABSOLUTE: f64 = 1e-7;

/// Types and shapes equal, integers and truth values exact, floats within the tolerance, NaN equal to NaN.
pub fn compare(found: &Tensor, wanted: &Tensor) -> Result<(), String> {
    if (found.dtype(), found.shape()) != (wanted.dtype(), wanted.shape()) {
        let text = |t: &Tensor| format!("{}{:?}", t.dtype(), t.shape());
        return Err(format!("{}, wanted {}", text(found), text(wanted)));
    }
    let differs = match (found.elems(), wanted.elems()) {
        (Elems::F(a), Elems::F(b)) => {
            let at = (0..a.len()).find(|&i| !close(a[i], b[i]));
            at.map(|i| format!("element {i} is {}, wanted {}", a[i], b[i]))
        }
        (Elems::I(a), Elems::I(b)) => {
            let at = (0..a.len()).find(|&i| a[i] != b[i]);
            at.map(|i| format!("element {i} is {}, wanted {}", a[i], b[i]))
        }
        _ => Some("elements of another kind".into()),
    };
    differs.map_or(Ok(()), Err)
}

fn close(a: f64, b: f64) -> bool {
    a == b || (a.is_nan() && b.is_nan()) || b.is_finite() && (a - b).abs() <= ABSOLUTE + RELATIVE * b.abs()
}

#[test]
fn tolerance_is_that_of_the_suite() {
    assert!(close(1.0009, 1.0) && !close(1.0011, 1.0));
    assert!(close(0.9e-7, 0.0) && !close(1.1e-7, 0.0));
    assert!(close(f64::NAN, f64::NAN) && !close(f64::NAN, 1.0));
    assert!(close(f64::INFINITY, f64::INFINITY) && !close(f64::INFINITY, f64::NEG_INFINITY));
}
