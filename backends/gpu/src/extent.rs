//! Sizes that a run decides on the device, within a bound that is known before: by the branch that it takes, or by its number of
//! iterations. The device leaves them in words, which the host reads together with the outputs.

use crate::value::bytes_of;
use kiln_backend::{BackendError, Shapes};
use kiln_ir::{TensorType, ValueId};
use std::collections::HashMap;

/// The type of a tensor, or what it follows from.
#[derive(Clone, Debug, PartialEq)]
pub enum Extent {
    /// Known before the run.
    Known(TensorType),
    /// Decided by a conditional.
    Branch {
        /// Address of a word: not zero where the first branch was taken.
        word: u64,
        /// The extents of both branches.
        of: Box<[Extent; 2]>,
    },
    /// Length along one dimension: the number of iterations that a loop made.
    Iterations {
        /// Address of the number of iterations.
        word: u64,
        /// The dimension.
        axis: usize,
        /// The type at the greatest number.
        most: TensorType,
    },
}

/// Bytes of a word.
pub const WORD: usize = 8;

fn lost(what: &str) -> BackendError {
    BackendError::Internal(format!("the device reported no {what}"))
}

impl Extent {
    /// The extent of a result of two branches.
    pub fn either(word: u64, of: [Extent; 2]) -> Extent {
        match of {
            [a, b] if a == b => a,
            of => Extent::Branch { word, of: Box::new(of) },
        }
    }

    /// The greatest number of bytes.
    pub fn bytes(&self) -> Result<u64, BackendError> {
        match self {
            Extent::Known(ty) | Extent::Iterations { most: ty, .. } => bytes_of(ty),
            Extent::Branch { of, .. } => Ok(of[0].bytes()?.max(of[1].bytes()?)),
        }
    }

    fn words(&self, all: &mut Vec<u64>) {
        match self {
            Extent::Known(_) => (),
            Extent::Iterations { word, .. } => all.push(*word),
            Extent::Branch { word, of } => {
                all.push(*word);
                of.iter().for_each(|e| e.words(all));
            }
        }
    }

    /// The dimensions, if the words are these.
    fn dims(&self, word: &impl Fn(u64) -> Option<i64>) -> Result<Vec<usize>, BackendError> {
        let of = |ty: &TensorType| ty.static_dims().ok_or_else(|| lost("size"));
        match self {
            Extent::Known(ty) => of(ty),
            Extent::Branch { word: at, of } => match word(*at).ok_or_else(|| lost("branch"))? {
                0 => of[1].dims(word),
                _ => of[0].dims(word),
            },
            Extent::Iterations { word: at, axis, most } => {
                let mut dims = of(most)?;
                let made = word(*at).and_then(|n| usize::try_from(n).ok());
                let length = dims.get_mut(*axis).zip(made).filter(|(most, made)| made <= *most);
                let (length, made) = length.ok_or_else(|| lost("number of iterations"))?;
                *length = made;
                Ok(dims)
            }
        }
    }
}

/// The values of a program whose sizes a run leaves open.
#[derive(Clone, Debug, Default)]
pub struct Open(HashMap<ValueId, Extent>);

impl Open {
    /// Forgets all.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Leaves a size open.
    pub fn insert(&mut self, v: ValueId, extent: Extent) {
        self.0.insert(v, extent);
    }

    /// Takes back that a size is open.
    pub fn remove(&mut self, v: ValueId) {
        self.0.remove(&v);
    }

    /// The extent of a value whose size is open.
    pub fn get(&self, v: ValueId) -> Option<&Extent> {
        self.0.get(&v)
    }

    /// Whether all sizes are known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Addresses of the words that decide sizes, each once.
    pub fn words(&self) -> Vec<u64> {
        let mut all = Vec::new();
        self.0.values().for_each(|e| e.words(&mut all));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Records the shapes that follow from words by their addresses.
    pub fn settle(&self, words: &[(u64, i64)], shapes: &mut Shapes) -> Result<(), BackendError> {
        let word = |at: u64| words.iter().find(|w| w.0 == at).map(|w| w.1);
        for (&v, e) in &self.0 {
            shapes.set_shape(v, &e.dims(&word)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::{DType, Fact};

    fn ty(dims: &[i64]) -> TensorType {
        TensorType::new(DType::F32, dims.iter().copied())
    }

    fn known(dims: &[i64]) -> Extent {
        Extent::Known(ty(dims))
    }

    fn dims(e: &Extent, words: &[(u64, i64)]) -> Option<Vec<usize>> {
        e.dims(&|at| words.iter().find(|w| w.0 == at).map(|w| w.1)).ok()
    }

    #[test]
    fn branches_that_give_the_same_are_known() {
        assert_eq!(Extent::either(8, [known(&[2, 3]), known(&[2, 3])]), known(&[2, 3]));
    }

    #[test]
    fn the_branch_taken_decides_the_size() {
        let inner = Extent::either(16, [known(&[7]), known(&[0])]);
        let e = Extent::either(8, [known(&[3]), inner]);
        assert_eq!(e.bytes().ok(), Some(28));
        assert_eq!(dims(&e, &[(8, 1), (16, 0)]), Some(vec![3]));
        assert_eq!(dims(&e, &[(8, 0), (16, 1)]), Some(vec![7]));
        assert_eq!(dims(&e, &[(8, 0), (16, 0)]), Some(vec![0]));
        assert_eq!(dims(&e, &[(8, 0)]), None, "the inner word lacks");
    }

    #[test]
    fn the_number_of_iterations_is_the_length() {
        let e = Extent::Iterations { word: 8, axis: 1, most: ty(&[1, 5, 2]) };
        assert_eq!(e.bytes().ok(), Some(40));
        assert_eq!(dims(&e, &[(8, 0)]), Some(vec![1, 0, 2]));
        assert_eq!(dims(&e, &[(8, 5)]), Some(vec![1, 5, 2]));
        assert_eq!(dims(&e, &[(8, 6)]), None, "more than there is room for");
        assert_eq!(dims(&e, &[(8, -1)]), None);
    }

    #[test]
    fn words_are_read_once_and_settle_all_values() {
        let mut open = Open::default();
        open.insert(ValueId(0), Extent::either(64, [known(&[3]), known(&[5])]));
        open.insert(ValueId(1), Extent::either(64, [known(&[4, 1]), known(&[1, 1])]));
        assert_eq!(open.words(), [64]);
        let mut shapes = Shapes::new(vec![Fact::of(ty(&[-1])), Fact::of(ty(&[-1, 1]))]);
        open.settle(&[(64, 0)], &mut shapes).expect("both words");
        assert_eq!(shapes.shape(ValueId(0)), Some(vec![5]));
        assert_eq!(shapes.shape(ValueId(1)), Some(vec![1, 1]));
        assert!(open.settle(&[], &mut shapes).is_err());
    }
}
