//! Names of weights that hold the dynamic ranges of tensors: the least and the greatest value that codes stand for.

/// The first words of these names.
const STEM: &str = "dynamic range of ";

/// The name of the weight that holds the range of a tensor.
pub fn range_name(tensor: &str) -> String {
    format!("{STEM}{tensor}")
}

/// The tensor whose range a weight of this name holds; `None` for other weights.
pub fn ranged_tensor(weight: &str) -> Option<&str> {
    weight.strip_prefix(STEM)
}
