//! Layers of constants, computed by all processors and without a second form of all elements in 64 bits. Every result has the bits of
//! the oracle's. What there is no quick way for is left to the oracle.

mod cast;
mod infinite;
mod joined;
mod lanes;
mod pointwise;
mod recipe;
mod transpose;

pub use infinite::has_infinity;
pub use recipe::evaluate;

use kiln_ir::{Op, OpError, Tensor};

/// Results of an operator on constants.
///
/// # Errors
/// As of [`Op::eval`].
pub fn layer(op: &Op, inputs: &[Option<Tensor>]) -> Result<Vec<Tensor>, OpError> {
    match quick(op, inputs) {
        Some(t) => Ok(vec![t]),
        None => op.eval(inputs),
    }
}

/// Result of an operator that there is a quick way for; none of others, and where the oracle has to say why it refuses.
pub fn quick(op: &Op, inputs: &[Option<Tensor>]) -> Option<Tensor> {
    let first = inputs.first()?.as_ref()?;
    cast::converted(op, first)
        .or_else(|| transpose::transposed(op, first))
        .or_else(|| joined::joined(op, inputs))
        .or_else(|| pointwise::computed(op, inputs))
}
