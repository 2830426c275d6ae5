//! Results of several layers in a row.

use super::interval::Interval;
use super::{miss, values};
use kiln_ir::expr::Num;
use kiln_ir::{DType, Tensor};

/// Compares results of a network of several layers, whose inputs are not known here: 1e-4 of the value, and 2e-5 of the
/// greatest of its tensor.
pub fn check_chain(wanted: &[Tensor], found: &[Tensor]) -> Result<(), String> {
    if wanted.len() != found.len() {
        return Err(format!("{} outputs, wants {}", found.len(), wanted.len()));
    }
    for (i, (w, f)) in wanted.iter().zip(found).enumerate() {
        output(w, f).map_err(|e| format!("output {i}: {e}"))?;
    }
    Ok(())
}

fn output(wanted: &Tensor, found: &Tensor) -> Result<(), String> {
    if wanted.dtype() != found.dtype() || wanted.shape() != found.shape() {
        return Err(format!("is {}, wants {}", found.ty(), wanted.ty()));
    }
    let all = values(wanted);
    let greatest = super::bounds::greatest(&all);
    let last = if wanted.dtype() == DType::F32 { 0.0 } else { 1.01 };
    for (at, (&w, f)) in all.iter().zip(values(found)).enumerate() {
        let error = match w {
            Num::F(x) => 1e-4 * x.abs() + 2e-5 * greatest + last * super::ulp(x, wanted.dtype()),
            Num::I(_) => 0.0,
        };
        let interval = Interval::around(w, error, wanted.dtype());
        if !interval.holds(f) {
            return Err(miss(wanted, at, f, interval));
        }
    }
    Ok(())
}
