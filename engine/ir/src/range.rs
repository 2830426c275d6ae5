//! Ranges of the contents of index inputs.
//!
//! An operator declares once, in its schema (`OpDef::ranges`), which values the elements of an input may have. The
//! declaration is checked where a constant meets a known shape, by the oracle before each evaluation, and by kernels
//! that backends derive from it. A violation is [`OpError::Index`] everywhere.

use crate::attr::Attrs;
use crate::axis::normalize_axis;
use crate::error::OpError;
use crate::tensor::Tensor;

/// The size of a dimension that is not known yet: no index is out of its range.
pub const UNKNOWN: i64 = i64::MAX;

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

/// Arguments of a rule: attributes, and dimensions of the inputs.
pub struct RangeCx<'a> {
    /// The attributes.
    pub attrs: &'a Attrs,
    dims: &'a [Option<Vec<i64>>],
}

impl<'a> RangeCx<'a> {
    pub(crate) fn new(attrs: &'a Attrs, dims: &'a [Option<Vec<i64>>]) -> RangeCx<'a> {
        RangeCx { attrs, dims }
    }

    /// The dimensions of an input, [`UNKNOWN`] where they are not numbers; none of an absent input.
    pub fn dims(&self, i: usize) -> &'a [i64] {
        self.dims.get(i).and_then(Option::as_deref).unwrap_or_default()
    }

    /// Whether the input is present.
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
}
