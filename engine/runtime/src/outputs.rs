//! Outputs of a run, by name.

use crate::RuntimeError;
use kiln_ir::Tensor;
use std::ops::{Deref, DerefMut};

/// Outputs of a run: names and tensors in the engine's order. Dereferences to that list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outputs(Vec<(String, Tensor)>);

impl Outputs {
    /// The output of this name.
    ///
    /// # Errors
    /// [`RuntimeError::UnknownTensor`], which lists the names that exist.
    pub fn get(&self, name: &str) -> Result<&Tensor, RuntimeError> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, t)| t).ok_or_else(|| self.unknown(name))
    }

    /// Removes and returns the output of this name.
    ///
    /// # Errors
    /// [`RuntimeError::UnknownTensor`], which lists the names that are left.
    pub fn take(&mut self, name: &str) -> Result<Tensor, RuntimeError> {
        match self.0.iter().position(|(n, _)| n == name) {
            Some(i) => Ok(self.0.remove(i).1),
            None => Err(self.unknown(name)),
        }
    }

    /// The list of names and tensors.
    pub fn into_vec(self) -> Vec<(String, Tensor)> {
        self.0
    }

    fn unknown(&self, name: &str) -> RuntimeError {
        let known: Vec<&str> = self.0.iter().map(|(n, _)| n.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        RuntimeError::UnknownTensor { name: name.to_owned(), mode: "output", known }
    }
}

impl Deref for Outputs {
    type Target = Vec<(String, Tensor)>;

    fn deref(&self) -> &Vec<(String, Tensor)> {
        &self.0
    }
}

impl DerefMut for Outputs {
    fn deref_mut(&mut self) -> &mut Vec<(String, Tensor)> {
        &mut self.0
    }
}

impl FromIterator<(String, Tensor)> for Outputs {
    fn from_iter<I: IntoIterator<Item = (String, Tensor)>>(all: I) -> Outputs {
        Outputs(all.into_iter().collect())
    }
}

impl IntoIterator for Outputs {
    type Item = (String, Tensor);
    type IntoIter = std::vec::IntoIter<(String, Tensor)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Outputs {
    type Item = &'a (String, Tensor);
    type IntoIter = std::slice::Iter<'a, (String, Tensor)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    #[test]
    fn outputs_are_found_by_name_and_others_listed() {
        let one = |v| Tensor::from_slice(&[1], &[v]).unwrap();
        let mut all: Outputs =
            [("a".to_owned(), one(1.0f32)), ("b".to_owned(), one(2.0))].into_iter().collect();
        assert_eq!(all.get("b").unwrap(), &one(2.0));
        let e = all.get("c").unwrap_err().to_string();
        assert!(e.contains("no output \"c\"") && e.contains("a, b"), "{e}");
        assert_eq!(all.take("a").unwrap(), one(1.0));
        assert!(all.take("a").is_err());
        assert_eq!((all.len(), all[0].0.as_str()), (1, "b"));
    }
}
