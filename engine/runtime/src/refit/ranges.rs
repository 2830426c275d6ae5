//! Dynamic ranges of engines that run on codes of 8 bits.

use super::Refitter;
use crate::RuntimeError;
use crate::error::listed;
use crate::weights::{held, refused};
use kiln_backend::{Program, range_name, ranged_tensor};
use kiln_ir::Tensor;
use std::collections::BTreeMap;

impl Refitter {
    /// Sets the least and the greatest value of a tensor whose codes follow from its range. Nothing changes before
    /// [`Refitter::refit`], which makes the steps between codes of it, and all that depends on them.
    ///
    /// # Errors
    /// [`RuntimeError::Refit`] if no code of the engine follows from the range of such a tensor, or the range is not one of finite
    /// numbers.
    pub fn set_dynamic_range(&mut self, tensor: &str, least: f32, greatest: f32) -> Result<(), RuntimeError> {
        let result = self.try_set_range(tensor, [least, greatest]);
        self.noted(result)
    }

    fn try_set_range(&mut self, tensor: &str, ends: [f32; 2]) -> Result<(), RuntimeError> {
        let name = range_name(tensor);
        if !self.ranges().contains_key(tensor) {
            let known = self.tensors_with_dynamic_range();
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            let known = if known.is_empty() { "none".to_owned() } else { listed(&known) };
            return Err(refused(format!(
                "no code of the engine follows from the dynamic range of \"{tensor}\"; those of these tensors can be set: {known}"
            )));
        }
        let [least, greatest] = ends;
        if !(least.is_finite() && greatest.is_finite() && least <= greatest) {
            return Err(refused(format!(
                "the dynamic range of \"{tensor}\" cannot be {least} to {greatest}: wants finite numbers in order"
            )));
        }
        let elements = Tensor::f32(&[2], &ends);
        let elements = elements.ok_or_else(|| refused("a range could not be made".into()))?;
        self.set.insert(name.into(), elements);
        Ok(())
    }

    /// The least and the greatest value of a tensor: those that were set, else those of the engine. `None` for tensors from whose range
    /// no code follows.
    pub fn dynamic_range(&self, tensor: &str) -> Option<[f32; 2]> {
        let set = self.set.get(range_name(tensor).as_str()).and_then(ends);
        set.or_else(|| self.ranges().get(tensor).copied())
    }

    /// Tensors whose dynamic range can be set, in the order of their names.
    pub fn tensors_with_dynamic_range(&self) -> Vec<String> {
        self.ranges().into_keys().collect()
    }

    fn ranges(&self) -> BTreeMap<String, [f32; 2]> {
        let of = |p: &Program| {
            let named = held(p).into_iter();
            named.filter_map(|(name, t)| Some((ranged_tensor(&name)?.to_owned(), ends(&t)?))).collect()
        };
        self.subject.with_program(of)
    }
}

fn ends(t: &Tensor) -> Option<[f32; 2]> {
    match t.to_f64()[..] {
        [least, greatest] => Some([least as f32, greatest as f32]),
        _ => None,
    }
}
