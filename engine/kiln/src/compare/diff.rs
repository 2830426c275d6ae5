//! Difference of two tensors.

use kiln_backend::compare::ulp_distance;
use kiln_ir::{Elems, Tensor};
use serde_json::{Value, json};

/// Tolerance of elements: |found − wanted| ≤ atol + rtol·|wanted|; integers: |found − wanted| ≤ atol.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Relative tolerance.
    pub rtol: f64,
    /// Absolute tolerance.
    pub atol: f64,
}

impl Default for Tolerance {
    fn default() -> Tolerance {
        Tolerance { rtol: 1e-3, atol: 1e-5 }
    }
}

/// The distance of two tensors of one type and shape, or that they are not.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Diff {
    /// The tensor.
    pub name: String,
    /// Type or shape differ: what was found and what was wanted.
    pub unlike: Option<String>,
    /// Greatest |found − wanted|.
    pub abs: f64,
    /// Greatest |found − wanted| / |wanted|, where wanted is not 0.
    pub rel: f64,
    /// Greatest distance in units in the last place, of floats.
    pub ulp: f64,
    /// Elements beyond the tolerance.
    pub off: usize,
    /// The first such element: its index, what was found and what was wanted.
    pub first: Option<(usize, f64, f64)>,
    /// Elements in all.
    pub count: usize,
}

impl Diff {
    /// Compares what was found with what was wanted.
    pub fn of(name: &str, found: &Tensor, wanted: &Tensor, tolerance: &Tolerance) -> Diff {
        let mut d = Diff {
            name: name.to_owned(),
            unlike: None,
            abs: 0.0,
            rel: 0.0,
            ulp: 0.0,
            off: 0,
            first: None,
            count: wanted.len(),
        };
        if found.dtype() != wanted.dtype() || found.shape() != wanted.shape() {
            d.unlike = Some(format!("is {}, wanted {}", found.ty(), wanted.ty()));
            return d;
        }
        match (found.elems(), wanted.elems()) {
            (Elems::F(f), Elems::F(w)) => {
                for (i, (&f, &w)) in f.iter().zip(&w).enumerate() {
                    d.float(i, f, w, found, tolerance);
                }
            }
            _ => {
                for (i, (f, w)) in found.to_i64().into_iter().zip(wanted.to_i64()).enumerate() {
                    let abs = f.abs_diff(w) as f64;
                    d.add(i, f as f64, w as f64, abs, abs <= tolerance.atol);
                }
            }
        }
        d
    }

    fn float(&mut self, i: usize, f: f64, w: f64, found: &Tensor, t: &Tolerance) {
        self.ulp = self.ulp.max(ulp_distance(f, w, found.dtype()));
        if f == w || (f.is_nan() && w.is_nan()) {
            return;
        }
        let abs = (f - w).abs();
        let abs = if abs.is_nan() { f64::INFINITY } else { abs };
        self.add(i, f, w, abs, abs.is_finite() && abs <= t.atol + t.rtol * w.abs());
    }

    fn add(&mut self, i: usize, f: f64, w: f64, abs: f64, ok: bool) {
        self.abs = self.abs.max(abs);
        if w != 0.0 {
            let rel = abs / w.abs();
            self.rel = self.rel.max(if rel.is_nan() { f64::INFINITY } else { rel });
        }
        if !ok {
            self.off += 1;
            self.first.get_or_insert((i, f, w));
        }
    }

    /// Whether they agree.
    pub fn ok(&self) -> bool {
        self.unlike.is_none() && self.off == 0
    }

    /// The difference as JSON, with the keys of `kiln compare --json`. Numbers without a JSON form (infinite, not a number) are null.
    pub fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "agrees": self.ok(),
            "unlike": self.unlike,
            "max_abs_error": self.abs,
            "max_rel_error": self.rel,
            "max_ulp": self.ulp,
            "off": self.off,
            "elements": self.count,
            "first": self.first.map(|(i, f, w)| json!({"index": i, "found": f, "wanted": w})),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Tolerance = Tolerance { rtol: 0.1, atol: 0.01 };

    fn of(f: &[f32], w: &[f32]) -> Diff {
        let t = |v: &[f32]| Tensor::f32(&[v.len()], v).unwrap();
        Diff::of("x", &t(f), &t(w), &T)
    }

    #[test]
    fn the_worst_element_counts() {
        let d = of(&[1.05, 2.0, 0.005], &[1.0, 2.0, 0.0]);
        assert!(d.ok() && (d.abs - 0.05).abs() < 1e-6 && (d.rel - 0.05).abs() < 1e-6, "{d:?}");
        let d = of(&[1.0, 3.0, 5.0], &[1.0, 2.0, 4.0]);
        assert_eq!((d.off, d.first, d.rel), (2, Some((1, 3.0, 2.0)), 0.5));
    }

    #[test]
    fn special_values_agree_with_themselves_only() {
        let (n, i) = (f32::NAN, f32::INFINITY);
        assert!(of(&[n, i, -i], &[n, i, -i]).ok());
        assert_eq!(of(&[n, 1.0, i, i], &[1.0, n, -i, 1.0]).off, 4);
    }

    #[test]
    fn other_types_and_shapes_differ() {
        let (a, b) = (Tensor::f32(&[1], &[1.0]).unwrap(), Tensor::i64(&[1], &[1]).unwrap());
        let d = Diff::of("x", &a, &b, &T);
        assert!(!d.ok() && d.unlike.is_some_and(|u| u.contains("f32[1]") && u.contains("i64[1]")));
        let (a, b) = (Tensor::i64(&[1], &[i64::MAX]).unwrap(), Tensor::i64(&[1], &[i64::MAX - 1]).unwrap());
        assert!(!Diff::of("x", &a, &b, &T).ok());
    }
}
