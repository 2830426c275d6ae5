//! The shipped scans of digits, for examples that recognize them.

use kiln::{Tensor, arrays};
use std::collections::BTreeMap;
use std::path::Path;

/// A failed step.
pub type Failure = Box<dyn std::error::Error>;

/// The arrays of an archive by name.
pub fn arrays_of(name: &str) -> Result<BTreeMap<String, Tensor>, Failure> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/digits");
    let all = kiln_npz::read_npz(folder.join(name))?;
    all.into_iter().map(|(name, array)| Ok((name.clone(), arrays::tensor(&name, array)?))).collect()
}

/// The first test images `[count, 1, 28, 28]`, and the digits on them.
pub fn scans(count: usize) -> Result<(Tensor, Vec<i64>), Failure> {
    let all = arrays_of("digits_test.npz")?;
    let array = |name: &str| all.get(name).ok_or_else(|| format!("there is no array \"{name}\""));
    let (pixels, labels) = (array("images")?.to_vec::<f32>()?, array("labels")?.to_vec::<i64>()?);
    let few = pixels.get(..count * 28 * 28).ok_or("there are fewer images")?;
    Ok((Tensor::from_slice(&[count, 1, 28, 28], few)?, labels.into_iter().take(count).collect()))
}

/// The place of the greatest number in each row of ten.
pub fn likeliest(numbers: &Tensor) -> Result<Vec<i64>, Failure> {
    let best = |row: &[f32]| (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap_or(0) as i64;
    Ok(numbers.to_vec::<f32>()?.chunks(10).map(best).collect())
}
