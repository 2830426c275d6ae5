//! The suite's comparison: floats within a tolerance, all else exact, shape and type equal.

use kiln_ir::{Elems, Tensor};
use std::path::Path;

/// Largest error of a float: `absolute + relative * |wanted|`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Share of the wanted value.
    pub relative: f64,
    /// Error allowed at 0.
    pub absolute: f64,
}

impl Tolerance {
    /// The tolerance of every case that has none of its own.
    pub const USUAL: Tolerance = Tolerance { relative: 1e-3, absolute: 1e-7 };

    /// Reads the tolerance of a case: that of its `data.json`, where there is one.
    pub fn of_case(folder: &Path) -> Result<Tolerance, String> {
        let path = folder.join("data.json");
        let Ok(text) = std::fs::read(&path) else { return Ok(Tolerance::USUAL) };
        let json: serde_json::Value =
            serde_json::from_slice(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        let read = |name: &str, usual: f64| match json.get(name) {
            None => Ok(usual),
            Some(v) => v.as_f64().ok_or_else(|| format!("{}: {name} is not a number", path.display())),
        };
        Ok(Tolerance {
            relative: read("rtol", Tolerance::USUAL.relative)?,
            absolute: read("atol", Tolerance::USUAL.absolute)?,
        })
    }
}

/// Reports the first difference and how many there are.
pub fn compare(found: &Tensor, wanted: &Tensor, within: Tolerance) -> Result<(), String> {
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
            x == y
                || (x.is_nan() && y.is_nan())
                || (y.is_finite() && (x - y).abs() <= within.absolute + within.relative * y.abs())
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
    assert!(compare(&up, &up, Tolerance::USUAL).is_ok() && compare(&up, &down, Tolerance::USUAL).is_err());
}
