//! Work of the oracle for an operator, counted from shapes and attributes before it is evaluated.
//!
//! Most operators make a few passes over their inputs and outputs. The others say in their record
//! (`Traits::work`) how many operations they need beside that.

use crate::attr::Attrs;
use crate::ty::TensorType;

/// The rule of an operator: operations beyond one pass over its inputs and outputs.
pub type Rule = fn(&Shapes<'_>) -> u64;

/// Attributes and sizes of one application of an operator, for its rule.
#[derive(Debug)]
pub struct Shapes<'a> {
    /// The attributes.
    pub attrs: &'a Attrs,
    inputs: Vec<Vec<u64>>,
    outputs: Vec<Vec<u64>>,
}

/// Cost of one application of an operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Elements of inputs and outputs.
    pub elements: u64,
    /// Operations beyond one pass over these.
    pub beyond: u64,
}

impl Work {
    /// Both together.
    pub fn total(self) -> u64 {
        self.elements.saturating_add(self.beyond)
    }
}

impl<'a> Shapes<'a> {
    /// The sizes of these types. Dimensions that are not numbers yet count as 1.
    pub(crate) fn new(
        attrs: &'a Attrs,
        inputs: &[Option<&TensorType>],
        outputs: &[&TensorType],
    ) -> Shapes<'a> {
        let sizes = |ty: &TensorType| -> Vec<u64> {
            ty.dims.iter().map(|d| d.as_const().map_or(1, |n| n.max(0).unsigned_abs())).collect()
        };
        Shapes {
            attrs,
            inputs: inputs.iter().map(|ty| ty.map(sizes).unwrap_or_default()).collect(),
            outputs: outputs.iter().map(|ty| sizes(ty)).collect(),
        }
    }

    /// Elements of all inputs and outputs.
    pub(crate) fn elements(&self) -> u64 {
        let all = self.inputs.iter().chain(&self.outputs);
        all.fold(0, |n: u64, d| n.saturating_add(product(d)))
    }

    /// Dimensions of an input; none if it is absent.
    pub fn dims(&self, input: usize) -> &[u64] {
        self.inputs.get(input).map_or(&[], Vec::as_slice)
    }

    /// Dimensions of all inputs.
    pub fn inputs(&self) -> &[Vec<u64>] {
        &self.inputs
    }

    /// A dimension of an input, counted from the last one; 1 if there is none.
    pub fn from_last(&self, input: usize, back: usize) -> u64 {
        self.dims(input).iter().rev().nth(back).copied().unwrap_or(1)
    }

    /// Elements of an input; 1 if it is absent.
    pub fn volume(&self, input: usize) -> u64 {
        product(self.dims(input))
    }

    /// Elements of an output; 1 if their number depends on data.
    pub fn made(&self, output: usize) -> u64 {
        self.outputs.get(output).map_or(1, |d| product(d))
    }

    /// Dimensions of an output; those that depend on data are 1.
    pub fn made_dims(&self, output: usize) -> &[u64] {
        self.outputs.get(output).map_or(&[], Vec::as_slice)
    }

    /// A dimension of an output, counted from the last one; 1 if there is none.
    pub fn made_from_last(&self, output: usize, back: usize) -> u64 {
        self.made_dims(output).iter().rev().nth(back).copied().unwrap_or(1)
    }

    /// Elements of a weight for each of its first dimension: products of one result of a convolution.
    pub fn filter(&self, input: usize) -> u64 {
        product(self.dims(input).get(1..).unwrap_or(&[]))
    }
}

/// The product of sizes, at most `u64::MAX`.
pub fn product(sizes: &[u64]) -> u64 {
    // A product with zero is zero, whatever the others are.
    if sizes.contains(&0) { 0 } else { sizes.iter().fold(1, |n, &d| n.saturating_mul(d)) }
}
