//! Conditionals: two bodies, of which one runs.

use super::super::coverage::Place;
use super::super::grow::Val;
use super::Program;
use kiln_ir::{Attrs, DType, Elems};
use kiln_network::{IfId, NetworkError};

impl Program {
    pub(super) fn conditional(&mut self, depth: usize) -> Result<Vec<Val>, NetworkError> {
        let of = self.g.net.add_if_conditional()?;
        let condition = self.decision()?;
        self.g.mark_read(&condition);
        self.g.net.set_condition(of, condition.id)?;
        let wishes = [self.wanted(Place::Branch), self.wanted(Place::Branch)];
        let around = self.g.frame().last().cloned();
        let mut rests = Vec::new();
        for wishes in &wishes {
            self.g.frames.push(Vec::new());
            if let Some(v) = &around {
                self.pass(of, v)?;
            }
            for dtype in Program::types(wishes) {
                let v = self.source(dtype)?;
                self.pass(of, &v)?;
            }
            self.body(wishes, depth + 1)?;
            rests.push(self.rest()?);
            self.g.frames.pop();
        }
        let [on_true, on_false] = &rests[..] else { return Ok(Vec::new()) };
        let mut outs = Vec::new();
        for v in on_true {
            let other = on_false.iter().find(|o| o.dtype() == v.dtype());
            outs.push(self.either(of, v, other, true)?);
        }
        for v in on_false.iter().filter(|v| !on_true.iter().any(|o| o.dtype() == v.dtype())) {
            outs.push(self.either(of, v, None, false)?);
        }
        outs.into_iter().map(|v| self.g.cut(v, 2)).collect()
    }

    /// A truth value: one from around, a comparison of a number from around, an input or a constant.
    fn decision(&mut self) -> Result<Val, NetworkError> {
        let truth = self.g.rng.int(0, 1);
        let find = |dtype: DType| move |v: &&Val| v.dtype() == dtype && v.shape().is_empty();
        let frame = self.g.frame();
        let (flag, number) = (
            frame.iter().rev().find(find(DType::Bool)).cloned(),
            frame.iter().rev().find(find(DType::I64)).cloned(),
        );
        match (self.g.rng.int(0, 4), flag, number) {
            (0 | 1, Some(v), _) => Ok(v),
            (0..=2, _, Some(v)) => {
                let limit = self.g.number(DType::I64, 1.0)?;
                self.g.op("less", Attrs::new(), &[&v, &limit])
            }
            (4, ..) => self.g.number(DType::Bool, truth as f64),
            _ => self.g.input(DType::Bool, &[], Some(Elems::I(vec![truth]))),
        }
    }

    fn pass(&mut self, of: IfId, v: &Val) -> Result<(), NetworkError> {
        self.g.mark_read(v);
        let id = self.g.net.add_if_input(of, v.id)?.output(0)?;
        self.g.frame().push(Val::new(id, v.dtype(), v.shape()));
        Ok(())
    }

    /// A result: a value of one branch, and of the other what it has of the type, or a constant (an empty branch). Lists of
    /// different lengths become their sums, where the type has sums, so that the shape is known again.
    fn either(&mut self, of: IfId, v: &Val, other: Option<&Val>, first: bool) -> Result<Val, NetworkError> {
        let (mut v, mut other) = match other {
            Some(o) => (v.clone(), o.clone()),
            None => (v.clone(), self.g.constant(v.dtype(), v.shape())?),
        };
        let sums = matches!(v.dtype(), DType::F32 | DType::I32 | DType::I64);
        let differ = v.shape() != other.shape();
        if differ && (!sums || v.shape().len() != other.shape().len() || self.g.rng.int(0, 1) == 0) {
            let least = v.volume().min(other.volume());
            (v, other) = (self.start(&v, least)?, self.start(&other, least)?);
        }
        self.g.mark_read(&v);
        self.g.mark_read(&other);
        let (a, b) = if first { (&v, &other) } else { (&other, &v) };
        let id = self.g.net.add_if_output(of, a.id, b.id)?.output(0)?;
        let either = Val::new(id, v.dtype(), v.shape());
        if v.shape() == other.shape() {
            return Ok(either);
        }
        let axes: Vec<i64> = (0..v.shape().len() as i64).collect();
        let axes = self.g.ints(&axes)?;
        let sum = Attrs::new().with("op", "sum").with("keep_dims", false);
        self.g.op("reduce", sum, &[&either, &axes])
    }

    /// The first elements, as a list.
    fn start(&mut self, v: &Val, n: usize) -> Result<Val, NetworkError> {
        let flat = self.g.flat(v)?;
        let parts = [self.g.ints(&[0])?, self.g.ints(&[n as i64])?, self.g.ints(&[0])?];
        self.g.op("slice", Attrs::new(), &[&flat, &parts[0], &parts[1], &parts[2]])
    }
}
