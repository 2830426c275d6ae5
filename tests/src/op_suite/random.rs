//! Random numbers. With a seed they are those of the oracle: uniform ones bit for bit. Without one they are judged by range,
//! mean and spread.

use kiln_backend::compare::ulp;
use kiln_ir::problem::{Problem, made};
use kiln_ir::{Attrs, DType, Tensor};

/// Draws of both distributions, with a seed and without one.
pub fn problems() -> Vec<Problem> {
    let shape = [16, 256];
    let of = |dist: &str, to: DType, seed: i64| {
        let attrs =
            Attrs::new().with("dist", dist).with("a", -1.0).with("b", 3.0).with("to", to).with("seed", seed);
        Problem::of(dist, "random", attrs, [Some(made(Tensor::i64(&[2], &shape)))])
    };
    let types = [DType::F32, DType::F16];
    types
        .into_iter()
        .flat_map(|t| ["uniform", "normal"].map(|d| [of(d, t, 0), of(d, t, 7)]))
        .flatten()
        .collect()
}

/// Checks the numbers of a problem against the oracle's if it has a seed, else against its distribution.
pub fn check(p: &Problem, found: &[Tensor]) -> Result<(), String> {
    match p.op.attrs().int("seed") {
        Ok(0) => distributed(p, found),
        _ => drawn(p, found),
    }
}

/// Uniform numbers must be the oracle's bits. Of normal ones logarithm, root and sine may be off by 16 units in the last place
/// of the deviation, whatever mean is added.
fn drawn(p: &Problem, found: &[Tensor]) -> Result<(), String> {
    let wanted = p.op.eval(&p.inputs).map_err(|e| format!("the oracle fails: {e}"))?;
    let ([w], [f]) = (&wanted[..], found) else { return Err(format!("{} outputs, wants 1", found.len())) };
    if w.dtype() != f.dtype() || w.shape() != f.shape() {
        return Err(format!("is {}, wants {}", f.ty(), w.ty()));
    }
    let normal = p.op.attrs().str("dist") == Ok("normal");
    let mean = p.op.attrs().float("a").map_err(|e| e.to_string())?;
    let bound = |w: f64| match normal {
        true => 16.0 * ulp((w - mean).abs(), DType::F32) + ulp(w.abs().max(mean.abs()), f.dtype()),
        false => 0.0,
    };
    let near = |w: f64, f: f64| (w - f).abs() <= bound(w);
    match w.to_f64().into_iter().zip(f.to_f64()).enumerate().find(|&(_, (w, f))| !near(w, f)) {
        None => Ok(()),
        Some((i, (w, f))) => Err(format!("element {i} is {f:e}, wants {w:e}")),
    }
}

/// Whether the numbers look like the problem's distribution. The bounds are six standard errors wide.
fn distributed(p: &Problem, found: &[Tensor]) -> Result<(), String> {
    let [t] = found else { return Err(format!("{} outputs, wants 1", found.len())) };
    let wanted: Vec<usize> = p.inputs[0].iter().flat_map(Tensor::to_i64).map(|d| d as usize).collect();
    if Ok(t.dtype()) != p.op.attrs().dtype("to") || t.shape() != wanted {
        return Err(format!("is {}, wants {wanted:?}", t.ty()));
    }
    let float = |name| p.op.attrs().float(name).map_err(|e| e.to_string());
    let (a, b) = (float("a")?, float("b")?);
    let normal = p.op.attrs().str("dist") == Ok("normal");
    let x = t.to_f64();
    // Of a uniform distribution a and b are the ends, of a normal one the mean and the standard deviation.
    let (mean, deviation) = if normal { (a, b) } else { ((a + b) / 2.0, (b - a) / 12f64.sqrt()) };
    if let Some(v) = x.iter().find(|v| !v.is_finite() || (!normal && (**v < a || **v > b))) {
        return Err(format!("{v} is out of range"));
    }
    let n = x.len() as f64;
    let m = x.iter().sum::<f64>() / n;
    let d = (x.iter().map(|v| (v - m).powi(2)).sum::<f64>() / n).sqrt();
    let error = 6.0 * deviation / n.sqrt();
    if (m - mean).abs() > error || (d - deviation).abs() > error {
        return Err(format!("mean {m} and deviation {d}, wants {mean} and {deviation}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::Elems;

    #[test]
    fn other_distributions_are_told_apart() {
        let all = problems();
        assert_eq!(all.len(), 8);
        let draw = |p: &Problem| p.op.eval(&p.inputs).unwrap();
        let (uniform, normal) = (&all[1], &all[3]);
        assert_eq!((uniform.label.as_str(), normal.label.as_str()), ("uniform", "normal"));
        assert_eq!(distributed(uniform, &draw(uniform)), Ok(()));
        assert!(distributed(uniform, &draw(normal)).unwrap_err().contains("range"));
        assert!(distributed(normal, &draw(uniform)).unwrap_err().contains("mean"));
        let same = Tensor::from_elems(DType::F32, &[16, 256], &Elems::F(vec![1.0; 4096])).unwrap();
        assert!(distributed(uniform, &[same]).unwrap_err().contains("deviation"));
    }

    #[test]
    fn other_numbers_of_the_distribution_are_refused_with_a_seed() {
        for p in problems().into_iter().filter(|p| p.op.attrs().int("seed") == Ok(7)) {
            let own = p.op.eval(&p.inputs).unwrap();
            assert_eq!(check(&p, &own), Ok(()));
            let mut v = own[0].to_f64();
            v.rotate_left(1);
            let other = Tensor::from_elems(own[0].dtype(), own[0].shape(), &Elems::F(v)).unwrap();
            assert!(check(&p, &[other]).is_err(), "{}", p.label);
        }
    }
}
