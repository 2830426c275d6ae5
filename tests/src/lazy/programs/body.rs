//! Contents of a body: operators that were wished for, and more constructs.

use super::super::coverage::Pair;
use super::super::families::FAMILIES;
use super::super::grow::Val;
use super::{DEPTH, Program};
use kiln_ir::{Attrs, DType};
use kiln_network::NetworkError;
use std::collections::BTreeMap;

impl Program {
    /// Fills the innermost frame.
    pub(super) fn body(&mut self, wishes: &[Pair], depth: usize) -> Result<(), NetworkError> {
        let half = wishes.len() / 2;
        self.apply(&wishes[..half])?;
        while depth < DEPTH && self.left > 0 && self.g.rng.int(0, 2) > 0 {
            let made = self.construct(depth)?;
            self.g.frame().extend(made);
        }
        self.apply(&wishes[half..])
    }

    fn apply(&mut self, wishes: &[Pair]) -> Result<(), NetworkError> {
        for &(family, _, dtype) in wishes {
            let of_type: Vec<Val> = self.g.frame().iter().filter(|v| v.dtype() == dtype).cloned().collect();
            // Late values are likelier; what one does not suit, another may.
            let tries = of_type.len().min(3);
            for v in of_type.iter().rev().take(tries) {
                let Ok(y) = (FAMILIES[family].make)(&mut self.g, v) else { continue };
                let y = self.g.cut(y, 2)?;
                self.g.frame().push(y);
                break;
            }
        }
        Ok(())
    }

    /// The types that wishes are about, and f32.
    pub(super) fn types(wishes: &[Pair]) -> Vec<DType> {
        let mut types = vec![DType::F32];
        for w in wishes {
            if !types.contains(&w.2) {
                types.push(w.2);
            }
        }
        types
    }

    /// A value from around the innermost frame that operators of this type can begin with, or a new one.
    pub(super) fn source(&mut self, dtype: DType) -> Result<Val, NetworkError> {
        let around = &self.g.frames[..self.g.frames.len().saturating_sub(1)];
        let of_type: Vec<Val> = around.iter().flatten().filter(|v| v.dtype() == dtype).cloned().collect();
        if self.g.rng.int(0, 2) > 0 && !of_type.is_empty() {
            let last = of_type.len() as i64 - 1;
            return Ok(of_type[self.g.rng.int(0, last) as usize].clone());
        }
        let shape = match self.g.rng.int(0, 2) {
            0 => self.g.shape(),
            _ => vec![2, 3],
        };
        self.g.fresh(dtype, &shape)
    }

    /// All values of the innermost frame that nothing reads, one list for each type. A value that is alone of
    /// its type stays as it is.
    pub(super) fn rest(&mut self) -> Result<Vec<Val>, NetworkError> {
        let mut open: BTreeMap<DType, Vec<Val>> = BTreeMap::new();
        for v in self.g.frame().clone() {
            if !self.g.is_read(&v) {
                open.entry(v.dtype()).or_default().push(v);
            }
        }
        let one = |all: Vec<Val>| match &all[..] {
            [alone] => Ok(alone.clone()),
            _ => self.list(&all),
        };
        open.into_values().map(one).collect()
    }

    /// Several values of one type as one list.
    pub(super) fn list(&mut self, all: &[Val]) -> Result<Val, NetworkError> {
        let flat = all.iter().map(|v| self.g.flat(v)).collect::<Result<Vec<_>, _>>()?;
        match &flat[..] {
            [one] => Ok(one.clone()),
            _ => self.g.op("concat", Attrs::new().with("axis", 0), &flat.iter().collect::<Vec<_>>()),
        }
    }
}
