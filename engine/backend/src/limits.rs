//! Greatest size of a kernel's tensors. Kernels count elements in 32 bits, except where a tactic counts
//! positions in the first input in 64 bits.

use crate::{BackendError, Tactic};
use kiln_ir::{Fact, TensorType};

/// Elements that 32 bits count.
pub const MAX_ELEMENTS: u64 = u32::MAX as u64;

/// The parameter of tactics that count positions in the first input in 64 bits.
pub const FAR: &str = "far";

/// Whether a tactic counts positions in the first input in 64 bits.
pub fn is_far(tactic: &Tactic) -> bool {
    tactic.params.contains_key(FAR)
}

/// The reason why a kernel cannot count the elements of a tensor, and what to do; `None` if it can, or if sizes are not known.
/// `far`: positions in the tensor have 64 bits.
pub fn too_large(ty: &TensorType, far: bool) -> Option<String> {
    const ADVICE: &str = "split it along an axis, or run the network on a backend without this limit";
    let dims = ty.static_dims()?;
    // With a dimension of 0 there is nothing to count.
    let elements = match dims.contains(&0) {
        true => 0,
        false => dims.iter().fold(1u64, |n, &d| n.saturating_mul(d as u64)),
    };
    let most = dims.iter().copied().max().unwrap_or(0) as u64;
    if elements > MAX_ELEMENTS && !far {
        return Some(format!("({ty}) has {elements} elements, kernels count up to {MAX_ELEMENTS}: {ADVICE}"));
    }
    if elements > 0 && most > MAX_ELEMENTS {
        return Some(format!(
            "({ty}) has a dimension of {most}, kernels count up to {MAX_ELEMENTS}: {ADVICE}"
        ));
    }
    None
}

/// Refuses tensors with more elements than a kernel can count, once all sizes are known. `layer` is what the error names.
pub fn check_sizes(
    inputs: &[Option<&Fact>],
    outputs: &[&Fact],
    tactic: &Tactic,
    layer: &str,
) -> Result<(), BackendError> {
    let far = is_far(tactic);
    let inputs = inputs.iter().enumerate().filter_map(|(i, f)| Some((i == 0 && far, (*f)?)));
    let outputs = outputs.iter().map(|f| (false, *f));
    match inputs.chain(outputs).find_map(|(far, f)| too_large(&f.ty, far)) {
        None => Ok(()),
        Some(reason) => {
            let message = format!("a tensor {reason}");
            Err(BackendError::Execution { layer: layer.to_owned(), message })
        }
    }
}
