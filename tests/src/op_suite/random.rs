//! Random numbers: every backend may draw its own, so they are judged by range, mean and spread.

use super::problems::ints;
use kiln_ir::problem::Problem;
use kiln_ir::{Attrs, DType, Tensor};

/// Draws of both distributions, from a seed and without one.
pub fn problems() -> Vec<Problem> {
    let shape = [16, 256];
    let of = |dist: &str, to: DType, seed: i64| {
        let attrs =
            Attrs::new().with("dist", dist).with("a", -1.0).with("b", 3.0).with("to", to).with("seed", seed);
        Problem::of(dist, "random", attrs, [Some(ints(&[2], &shape))])
    };
    let types = [DType::F32, DType::F16];
    types
        .into_iter()
        .flat_map(|t| ["uniform", "normal"].map(|d| [of(d, t, 0), of(d, t, 7)]))
        .flatten()
        .flatten()
        .collect()
}

/// Do the numbers look like the problem's distribution? The bounds are six standard errors wide.
pub fn check(p: &Problem, found: &[Tensor]) -> Result<(), String> {
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
        assert_eq!(check(uniform, &draw(uniform)), Ok(()));
        assert!(check(uniform, &draw(normal)).unwrap_err().contains("range"));
        assert!(check(normal, &draw(uniform)).unwrap_err().contains("mean"));
        let same = Tensor::from_elems(DType::F32, &[16, 256], &Elems::F(vec![1.0; 4096])).unwrap();
        assert!(check(uniform, &[same]).unwrap_err().contains("deviation"));
    }
}
