//! Checks of the contents of index inputs against the ranges that operators declare.

use crate::dim::Dim;
use crate::error::OpError;
use crate::infer::Fact;
use crate::op::{Op, OpDef};
use crate::range::{IndexRange, RangeCx, UNKNOWN};
use crate::tensor::Tensor;

/// Index inputs that are longer are not checked when types are inferred, which happens many times.
const MAX_CHECKED: usize = 1 << 16;

impl IndexRange {
    /// Refuses a tensor that holds an element out of range.
    pub fn check(&self, def: &OpDef, t: &Tensor) -> Result<(), OpError> {
        self.first_outside(t).map_or(Ok(()), |(at, found)| Err(self.error(def, at as u64, found)))
    }

    /// The error for an element out of range.
    pub fn error(&self, def: &OpDef, at: u64, found: i64) -> OpError {
        let count = self.bounds.len().max(1) as u64;
        let (least, greatest) = self.bounds.get((at % count) as usize).copied().unwrap_or((0, -1));
        OpError::Index {
            op: def.name.as_str().into(),
            input: self.input,
            name: def.inputs.get(self.input).map_or(String::new(), |p| p.name.into()),
            at,
            found,
            least,
            greatest,
        }
    }
}

impl Op {
    /// The ranges of its index inputs for inputs of these dimensions; absent inputs are `None`.
    pub fn index_ranges(&self, dims: &[Option<Vec<i64>>]) -> Result<Vec<IndexRange>, OpError> {
        let Some(rule) = self.def().ranges else { return Ok(Vec::new()) };
        let cx = RangeCx::new(self.attrs(), dims);
        let mut ranges = rule(&cx)?;
        ranges.retain(|r| cx.has(r.input) && !r.bounds.is_empty());
        Ok(ranges)
    }

    /// The ranges of its index inputs as far as dimensions are numbers.
    pub fn ranges_of_facts(&self, inputs: &[Option<&Fact>]) -> Result<Vec<IndexRange>, OpError> {
        if self.def().ranges.is_none() {
            return Ok(Vec::new());
        }
        let sizes = |f: &Fact| f.ty.dims.iter().map(|d| Dim::as_const(d).unwrap_or(UNKNOWN)).collect();
        self.index_ranges(&inputs.iter().map(|f| f.map(sizes)).collect::<Vec<_>>())
    }

    /// Refuses contents of index inputs that are known and out of range.
    pub(crate) fn check_known_indices(&self, inputs: &[Option<Fact>]) -> Result<(), OpError> {
        let facts: Vec<Option<&Fact>> = inputs.iter().map(Option::as_ref).collect();
        for range in self.ranges_of_facts(&facts)? {
            let known = facts.get(range.input).copied().flatten().and_then(Fact::as_const);
            if let Some(t) = known.filter(|t| t.len() <= MAX_CHECKED) {
                range.check(self.def(), t)?;
            }
        }
        Ok(())
    }

    /// Refuses tensors whose contents are out of range. Only shapes of inputs that are not index inputs matter: `get`
    /// returns the tensor of an input.
    pub fn check_indices(
        &self,
        shapes: &[Option<Vec<usize>>],
        get: impl Fn(usize) -> Option<Tensor>,
    ) -> Result<(), OpError> {
        if self.def().ranges.is_none() {
            return Ok(());
        }
        let sizes = |s: &Vec<usize>| s.iter().map(|&n| n as i64).collect();
        let dims: Vec<Option<Vec<i64>>> = shapes.iter().map(|s| s.as_ref().map(sizes)).collect();
        for range in self.index_ranges(&dims)? {
            if let Some(t) = get(range.input) {
                range.check(self.def(), &t)?;
            }
        }
        Ok(())
    }
}
