//! Bounds of the sizes of outputs.

use super::ExecutionContext;
use crate::engine::unknown;
use crate::{IoTensor, RuntimeError};
use kiln_ir::dim::Symbol;
use kiln_ir::{Dim, TensorType};
use kiln_plan::Profile;
use kiln_plan::profile::host_symbol;
use std::collections::HashMap;
use std::sync::Arc;

impl ExecutionContext {
    /// The most bytes that an output can have with the shapes that are set. While one is missing, any shapes of the profile that is
    /// set count, or those of all profiles if none is.
    ///
    /// # Errors
    /// [`RuntimeError::UnknownTensor`], or [`RuntimeError::State`] for an output whose size nothing bounds.
    pub fn max_output_size(&mut self, name: &str) -> Result<u64, RuntimeError> {
        let result = self.output_bound(name);
        self.recorder.note(result)
    }

    fn output_bound(&mut self, name: &str) -> Result<u64, RuntimeError> {
        let outputs = self.engine.output_tensors();
        let at = outputs.iter().position(|t| t.name == name);
        let at = at.ok_or_else(|| unknown(outputs, "output", name))?;
        let unbounded = |ty: &TensorType| {
            RuntimeError::State(format!("nothing bounds the size of output \"{name}\" ({ty}) before a run"))
        };
        if self.underspecified().is_empty() {
            let v = self.loaded.program.graph.outputs[at];
            let ty = self.shapes()?.fact(v).ty.clone();
            return most(&ty, &Ranges::new()).ok_or_else(|| unbounded(&ty));
        }
        let t = &outputs[at];
        let number = |n: u64| Dim::new(i64::try_from(n).unwrap_or(i64::MAX));
        let ty = TensorType { dtype: t.dtype, dims: t.packing.physical(&t.dims, number) };
        let chosen = self.profile.and_then(|p| self.engine.profiles.get(p));
        let profiles: Vec<&Profile> = match chosen {
            Some(one) => vec![one],
            None => self.engine.profiles.iter().collect(),
        };
        let sizes = profiles.iter().map(|p| most(&ty, &ranges(self.engine.input_tensors(), p)));
        let largest = sizes.collect::<Option<Vec<u64>>>().and_then(|all| all.into_iter().max());
        largest.ok_or_else(|| unbounded(&ty))
    }
}

/// Least and greatest values of dimensions by name.
pub(super) type Ranges = HashMap<Arc<str>, (i64, i64)>;

/// Ranges of the named dimensions of inputs in a profile.
fn ranges(inputs: &[IoTensor], profile: &Profile) -> Ranges {
    let mut all = Ranges::new();
    for t in inputs {
        let Some(r) = profile.shapes.get(&t.name) else { continue };
        for (d, (&min, &max)) in t.dims.iter().zip(r.min.iter().zip(&r.max)) {
            if let Some(symbol) = host_symbol(d) {
                let own = all.entry(symbol).or_insert((min, max));
                *own = (own.0.max(min), own.1.min(max));
            }
        }
    }
    all
}

/// Bytes of a tensor at its largest.
pub(super) fn most(ty: &TensorType, ranges: &Ranges) -> Option<u64> {
    let known = |s: &Symbol| ranges.get(&s.name).copied();
    let size = |d: &Dim| d.interval(&known).hi().map(|n| n.max(0).unsigned_abs());
    let count = ty.dims.iter().try_fold(1u64, |n, d| n.checked_mul(size(d)?))?;
    ty.dtype.bytes_for(count)
}
