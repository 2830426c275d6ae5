//! Loops: what ends them, what they read and carry, what they give.

use super::super::coverage::Place;
use super::super::grow::Val;
use super::Program;
use kiln_ir::ty::MAX_DIMS;
use kiln_ir::{Attrs, DType, Elems};
use kiln_network::{LayerId, LoopId, LoopOutputKind, NetworkError, TripLimitKind};

/// A loop as it is written.
struct Writing {
    of: LoopId,
    /// Greatest number of iterations.
    most: i64,
    /// The count, where it is known which.
    iterations: Option<i64>,
    /// Length that iterated tensors must have; with a count, elements are counted from its end.
    extent: i64,
    counted: bool,
    carried: Vec<(LayerId, Val)>,
}

impl Program {
    pub(super) fn looping(&mut self, place: Place, depth: usize) -> Result<Vec<Val>, NetworkError> {
        let wishes = self.wanted(place);
        let of = self.g.net.add_loop()?;
        let most = if self.g.rng.int(0, 6) == 0 { 0 } else { self.g.rng.int(1, 3) };
        let mut w = Writing {
            of,
            most,
            iterations: None,
            extent: most,
            counted: place != Place::While,
            carried: Vec::new(),
        };
        if w.counted {
            let more = if place == Place::Both { self.g.rng.int(0, 1) } else { 0 };
            self.count(&mut w, most + more, place)?;
        }
        // Every body has something from the construct around, so that it lies in it, and a counter.
        let around = self.g.frame().last().cloned();
        self.g.frames.push(Vec::new());
        if let Some(v) = around {
            self.carry(&mut w, &v)?;
        }
        let zero = self.g.number(DType::I64, 0.0)?;
        let counter = self.carry(&mut w, &zero)?;
        if place != Place::Counted {
            self.condition(&mut w, &counter)?;
        }
        for dtype in Program::types(&wishes) {
            self.enter(&mut w, dtype)?;
        }
        self.body(&wishes, depth + 1)?;
        let one = self.g.number(DType::I64, 1.0)?;
        let next = self.g.op("add", Attrs::new(), &[&counter, &one])?;
        self.close(&w, &counter, &next)?;
        let outs = self.outputs(&w, depth)?;
        self.g.frames.pop();
        outs.into_iter().map(|v| self.g.cut(v, 2)).collect()
    }

    /// A whole number that is at most this, from around if there is one.
    fn bounded(&mut self, most: i64) -> Result<Option<Val>, NetworkError> {
        let whole = |v: &&Val| v.dtype() == DType::I64 && v.shape().is_empty();
        let Some(v) = self.g.frame().iter().rev().find(whole).cloned() else { return Ok(None) };
        let bound = self.g.number(DType::I64, most as f64)?;
        self.g.op("min", Attrs::new(), &[&v, &bound]).map(Some)
    }

    fn count(&mut self, w: &mut Writing, count: i64, place: Place) -> Result<(), NetworkError> {
        let dtype = if self.g.rng.int(0, 1) == 0 { DType::I32 } else { DType::I64 };
        // A negative count is none.
        let number = if count == 0 && self.g.rng.int(0, 1) == 0 { -1 } else { count };
        let from_around = match self.g.rng.int(0, 2) {
            0 => self.bounded(count)?,
            _ => None,
        };
        let (limit, known) = match from_around {
            Some(v) => (v, false),
            None if self.g.rng.int(0, 1) == 0 => (self.g.number(dtype, number as f64)?, true),
            None => (self.g.input(dtype, &[], Some(Elems::I(vec![number])))?, true),
        };
        self.g.mark_read(&limit);
        self.g.net.add_trip_limit(w.of, limit.id, TripLimitKind::Count)?;
        w.iterations = (known && place == Place::Counted).then_some(count);
        // Elements are counted from the count, so that one that is not known must not be reversed.
        w.counted = known;
        w.extent = count;
        Ok(())
    }

    /// Goes on while the counter is less than a number, and, perhaps, a carried truth value holds.
    fn condition(&mut self, w: &mut Writing, counter: &Val) -> Result<(), NetworkError> {
        let limit = match self.g.rng.int(0, 2) {
            0 => self.g.input(DType::I64, &[], Some(Elems::I(vec![w.most])))?,
            _ => self.g.number(DType::I64, w.most as f64)?,
        };
        let mut go = self.g.op("less", Attrs::new(), &[counter, &limit])?;
        if self.g.rng.int(0, 1) == 0 {
            let yes = self.g.number(DType::Bool, 1.0)?;
            let flag = self.carry(w, &yes)?;
            go = self.g.op("and", Attrs::new(), &[&go, &flag])?;
        }
        self.g.mark_read(&go);
        self.g.net.add_trip_limit(w.of, go.id, TripLimitKind::While)?;
        Ok(())
    }

    /// A recurrence; its value is put into the innermost frame.
    fn carry(&mut self, w: &mut Writing, initial: &Val) -> Result<Val, NetworkError> {
        self.g.mark_read(initial);
        let layer = self.g.net.add_recurrence(w.of, initial.id)?;
        let (id, value) = (layer.id(), Val::new(layer.output(0)?, initial.dtype(), initial.shape()));
        w.carried.push((id, value.clone()));
        self.g.frame().push(value.clone());
        Ok(value)
    }

    /// Brings values of a type into the body: elements of a tensor, a carried value, or both.
    fn enter(&mut self, w: &mut Writing, dtype: DType) -> Result<(), NetworkError> {
        let which = self.g.rng.int(0, 2);
        if which > 0 {
            let initial = self.source(dtype)?;
            self.carry(w, &initial)?;
        }
        if which == 1 {
            return Ok(());
        }
        let mut shape = if self.g.rng.int(0, 2) == 0 { self.g.shape() } else { vec![2, 3] };
        shape.truncate(2);
        let axis = self.g.rng.int(0, shape.len() as i64) as usize;
        let mut whole = shape.clone();
        whole.insert(axis, (w.extent + self.g.rng.int(0, 1)) as usize);
        let fits = |v: &&Val| {
            v.dtype() == dtype
                && v.shape().get(axis).is_some_and(|&d| d as i64 >= w.extent)
                && v.shape().len() < 4
        };
        let around = &self.g.frames[..self.g.frames.len() - 1];
        let there = around.iter().flatten().rfind(fits).cloned();
        let tensor = match there {
            Some(v) if self.g.rng.int(0, 1) == 0 => v,
            _ => self.g.fresh(dtype, &whole)?,
        };
        self.g.mark_read(&tensor);
        let reverse = w.counted && self.g.rng.int(0, 1) == 0;
        let layer = self.g.net.add_iterator(w.of, tensor.id, axis, reverse)?;
        let id = layer.output(0)?;
        let mut shape = tensor.shape().to_vec();
        shape.remove(axis);
        self.g.frame().push(Val::new(id, dtype, &shape));
        Ok(())
    }

    /// Sets the next value of a recurrence.
    fn close(&mut self, w: &Writing, value: &Val, next: &Val) -> Result<(), NetworkError> {
        if let Some((layer, _)) = w.carried.iter().find(|(_, v)| v.id == value.id) {
            self.g.net.set_input(*layer, 1, next.id)?;
            self.g.mark_read(next);
        }
        Ok(())
    }

    fn outputs(&mut self, w: &Writing, depth: usize) -> Result<Vec<Val>, NetworkError> {
        let mut outs = Vec::new();
        // The counter was the second value carried, or the first.
        for (layer, v) in &w.carried {
            let closed = self.g.net.layer(*layer)?.inputs().get(1).is_some_and(Option::is_some);
            if !closed {
                let alike = |n: &&Val| n.id != v.id && n.dtype() == v.dtype() && n.shape() == v.shape();
                let next = self.g.frame().iter().rev().find(alike).cloned().unwrap_or_else(|| v.clone());
                self.close(w, v, &next)?;
            }
            if !self.g.is_read(v) || self.g.rng.int(0, 1) == 0 {
                self.g.mark_read(v);
                let out = self.g.net.add_loop_output(w.of, v.id, LoopOutputKind::LastValue, 0)?;
                outs.push(Val::new(out.output(0)?, v.dtype(), v.shape()));
            }
        }
        let rest = self.rest()?;
        for v in rest {
            // A value that has all dimensions that there may be can't be stacked; nobody reads it then.
            if self.g.net.is_inside(v.id, w.of)? && v.shape().len() < MAX_DIMS {
                outs.push(self.stack(w, &v, depth)?);
            }
        }
        Ok(outs)
    }

    /// All values of the iterations, in order or reversed, padded or of the exact length.
    fn stack(&mut self, w: &Writing, v: &Val, depth: usize) -> Result<Val, NetworkError> {
        self.g.mark_read(v);
        let kind = match self.g.rng.int(0, 1) {
            0 => LoopOutputKind::Concatenate,
            _ => LoopOutputKind::Reverse,
        };
        let axis = self.g.rng.int(0, v.shape().len() as i64) as usize;
        let mut shape = v.shape().to_vec();
        let exact = self.g.rng.int(0, 1) == 0 && (w.iterations.is_some() || depth == 0);
        if let (true, Some(n)) = (exact, w.iterations) {
            let out = self.g.net.add_loop_output(w.of, v.id, kind, axis)?.set_exact_length()?;
            shape.insert(axis, n as usize);
            return Ok(Val::new(out.output(0)?, v.dtype(), &shape));
        }
        let most = w.most.max(if w.counted { w.extent } else { 0 });
        let length = most + self.g.rng.int(0, 1);
        let given = match self.g.rng.int(0, 3) {
            0 => self.g.input(DType::I32, &[], Some(Elems::I(vec![length])))?,
            _ => self.g.number(DType::I32, length as f64)?,
        };
        let out = self.g.net.add_loop_output(w.of, v.id, kind, axis)?.set_input(1, given.id)?;
        shape.insert(axis, length as usize);
        Ok(Val::new(out.output(0)?, v.dtype(), &shape))
    }
}
