//! Comparing two graphs by the oracle.

use super::Settings;
use kiln_ir::problem::Rng;
use kiln_ir::{Bindings, DType, Elems, Graph, Tensor};

/// Whether both graphs give the same outputs on random inputs. Names, types and, for each of the sizes that symbols may have,
/// elements are compared.
pub fn same_results(before: &Graph, after: &Graph, settings: &Settings) -> Result<(), String> {
    let io = |g: &Graph| -> Vec<(String, DType)> {
        let all = g.inputs.iter().chain(&g.outputs);
        all.map(|&v| (g.value(v).name.clone(), g.ty(v).dtype)).collect()
    };
    if io(before) != io(after) {
        return Err(format!("inputs and outputs were {:?} and are {:?}", io(before), io(after)));
    }
    for (seed, &size) in settings.sizes.iter().enumerate() {
        let inputs = inputs(before, size, seed as u64, settings)?;
        let a = before.eval(&inputs).map_err(|e| format!("the oracle, before: {e}"))?;
        let b = after.eval(&inputs).map_err(|e| format!("the oracle, after: {e}"))?;
        for (i, (a, b)) in a.iter().zip(&b).enumerate() {
            near(a, b, settings.tolerance).map_err(|e| format!("output {i} for size {size}: {e}"))?;
        }
    }
    Ok(())
}

/// Random inputs. The first symbol of a dimension is `size`, each other one greater than the one before.
pub fn inputs(g: &Graph, size: i64, seed: u64, settings: &Settings) -> Result<Vec<Tensor>, String> {
    let mut rng = Rng::new(seed + 1);
    let (mut out, mut known, mut next) = (Vec::new(), Bindings::default(), size);
    for &v in &g.inputs {
        let mut shape = Vec::new();
        for d in &g.ty(v).dims {
            d.visit(&mut |s| {
                if known.get(&s.name).is_none() && known.bind(&s.name, next).is_ok() {
                    next += 1;
                }
            });
            let n = d.eval(&known).map_err(|s| format!("symbol {s} has no size"))?;
            shape.push(usize::try_from(n).map_err(|_| format!("a dimension of {n}"))?);
        }
        let dtype = g.ty(v).dtype;
        out.push(match dtype {
            t if t.is_float() && settings.positive => rng.tensor_in(t, &shape, 0.5, 2.0, 1),
            t if t.is_float() || t == DType::Bool => rng.tensor(t, &shape),
            // Indices and sizes: small and not negative.
            _ => {
                let n = shape.iter().product();
                let v = (0..n).map(|_| rng.int(0, 1)).collect();
                Tensor::from_elems(dtype, &shape, &Elems::I(v)).ok_or("an input could not be made")?
            }
        });
    }
    Ok(out)
}

/// Whether all elements are near each other, relative where they are greater than 1. NaN and infinities must be equal.
pub fn near(a: &Tensor, b: &Tensor, tolerance: f64) -> Result<(), String> {
    if (a.dtype(), a.shape()) != (b.dtype(), b.shape()) {
        return Err(format!("{} was {}", b.ty(), a.ty()));
    }
    let equal = |x: f64, y: f64| {
        x == y || (x.is_nan() && y.is_nan()) || (x - y).abs() <= tolerance * x.abs().max(1.0)
    };
    match a.to_f64().into_iter().zip(b.to_f64()).enumerate().find(|(_, (x, y))| !equal(*x, *y)) {
        Some((i, (x, y))) => Err(format!("element {i} was {x} and is {y}")),
        None => Ok(()),
    }
}
