//! Ranges of the contents of index inputs.
//!
//! An operator declares once, in its schema ([`OpDef::ranges`]), which values the elements of an input may have. The
//! declaration is checked where a constant meets a known shape, by the oracle before each evaluation, and by kernels
//! that backends derive from it. A violation is [`OpError::Index`] everywhere.

use crate::attr::Attrs;
use crate::dim::Dim;
use crate::error::OpError;
use crate::infer::{Fact, normalize_axis};
use crate::op::{Op, OpDef};
use crate::tensor::Tensor;

/// The size of a dimension that is not known yet: no index is out of its range.
pub const UNKNOWN: i64 = i64::MAX;

/// Index inputs that are longer are not checked when types are inferred, which happens many times.
const MAX_CHECKED: usize = 1 << 16;

/// The rule of an operator.
pub type Ranges = fn(&RangeCx<'_>) -> Result<Vec<IndexRange>, OpError>;

/// The values that the elements of one input may have.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexRange {
    /// Position of the input.
    pub input: usize,
    /// Least and greatest value. Element p has the bounds of number p modulo their count.
    pub bounds: Vec<(i64, i64)>,
    /// A value that is allowed beside those.
    pub except: Option<i64>,
}

/// What a rule sees: attributes, and dimensions of the inputs.
pub struct RangeCx<'a> {
    /// The attributes.
    pub attrs: &'a Attrs,
    dims: &'a [Option<Vec<i64>>],
}

impl<'a> RangeCx<'a> {
    /// The dimensions of an input, [`UNKNOWN`] where they are not numbers; none of an absent input.
    pub fn dims(&self, i: usize) -> &'a [i64] {
        self.dims.get(i).and_then(Option::as_deref).unwrap_or_default()
    }

    /// Is the input present?
    pub fn has(&self, i: usize) -> bool {
        self.dims.get(i).is_some_and(Option::is_some)
    }

    /// The size of a dimension of an input.
    pub fn size(&self, i: usize, axis: usize) -> i64 {
        self.dims(i).get(axis).copied().unwrap_or(UNKNOWN)
    }

    /// The axis that an attribute names, of an input.
    pub fn axis(&self, name: &str, i: usize) -> Result<usize, OpError> {
        normalize_axis(self.attrs.int(name)?, self.dims(i).len(), name)
    }
}

impl IndexRange {
    /// Positions in a dimension of this size; negative ones count from its end.
    pub fn signed(input: usize, size: i64) -> IndexRange {
        IndexRange::tuples(input, &[size])
    }

    /// Tuples of positions in dimensions of these sizes; negative ones count from the end.
    pub fn tuples(input: usize, sizes: &[i64]) -> IndexRange {
        let bounds = sizes.iter().map(|&n| (-n, n - 1)).collect();
        IndexRange { input, bounds, except: None }
    }

    /// Numbers from 0 to `greatest`.
    pub fn up_to(input: usize, greatest: i64) -> IndexRange {
        IndexRange { input, bounds: vec![(0, greatest)], except: None }
    }

    /// Position and value of the first element that is out of range.
    pub fn first_outside(&self, t: &Tensor) -> Option<(usize, i64)> {
        let bounds = self.bounds.iter().cycle();
        let mut all = t.to_i64().into_iter().zip(bounds).enumerate();
        all.find(|(_, (v, (least, greatest)))| !(least..=greatest).contains(&v) && self.except != Some(*v))
            .map(|(at, (v, _))| (at, v))
    }

    /// Refuses a tensor that holds an element out of range.
    pub fn check(&self, def: &OpDef, t: &Tensor) -> Result<(), OpError> {
        self.first_outside(t).map_or(Ok(()), |(at, found)| Err(self.error(def, at as u64, found)))
    }

    /// The error for an element out of range.
    pub fn error(&self, def: &OpDef, at: u64, found: i64) -> OpError {
        let count = self.bounds.len().max(1) as u64;
        let (least, greatest) = self.bounds.get((at % count) as usize).copied().unwrap_or((0, -1));
        OpError::Index {
            op: def.name.into(),
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
        let cx = RangeCx { attrs: self.attrs(), dims };
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

    /// Refuses tensors whose contents are out of range. Only shapes of inputs that are no index inputs matter: `get`
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
