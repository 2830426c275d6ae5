//! Ways in which operations read constant weights that may be kept as panels alone.

/// The right matrices that an operation reads of a weight: one a group, one behind the other. All elements belong to one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Form {
    /// Rows and columns of a matrix.
    pub k: usize,
    pub n: usize,
    /// Elements from row to row, and from column to column.
    pub row: usize,
    pub col: usize,
    pub groups: usize,
}

impl Form {
    /// The form, if there is anything to multiply.
    pub fn not_empty(self) -> Option<Form> {
        (self.k > 0 && self.n > 0 && self.groups > 0).then_some(self)
    }

    /// Elements of the weight.
    pub fn len(&self) -> usize {
        self.groups * self.k * self.n
    }
}
