//! The oracle of control flow: trips one by one, and the branch that is taken.

use super::super::Node;
use super::{LoopOut, LoopOutputKind, LoopShape, infer};
use crate::error::{IrError, OpError};
use crate::eval::MAX_BYTES;
use crate::infer::Fact;
use crate::ops::util::strides;
use crate::tensor::{Elems, Tensor, volume};
use crate::ty::TensorType;

impl Node {
    /// Runs the node on the oracle, regions included.
    pub fn eval(&self, inputs: &[Option<Tensor>]) -> Result<Vec<Tensor>, IrError> {
        let wrap = |e| IrError::layer(&self.name, self.op.name(), e);
        if !matches!(self.op.name(), "loop" | "if") {
            return self.op.eval(inputs).map_err(wrap);
        }
        let missing = || wrap(OpError::MissingInput { input: 0, name: "inputs".into() });
        let ins = inputs.iter().cloned().collect::<Option<Vec<Tensor>>>().ok_or_else(missing)?;
        let types: Vec<TensorType> = ins.iter().map(Tensor::ty).collect();
        let types: Vec<&TensorType> = types.iter().collect();
        if self.op.is("if") {
            let captures = infer::check_if(&self.op, &self.regions, &types).map_err(wrap)?;
            let taken = usize::from(truth(&ins[0]).map_err(wrap)? == 0);
            return self.regions[taken].eval(&ins[captures[taken].clone()]);
        }
        let shape = infer::check_loop(&self.op, &self.regions, &types).map_err(wrap)?;
        Trips { node: self, shape, ins: &ins }.run()
    }
}

fn truth(t: &Tensor) -> Result<i64, OpError> {
    t.scalar_i64()
        .ok_or_else(|| OpError::Value(format!("a condition of shape {:?}, wants one element", t.shape())))
}

/// One run of a loop.
struct Trips<'a> {
    node: &'a Node,
    shape: LoopShape,
    ins: &'a [Tensor],
}

impl Trips<'_> {
    fn run(&self) -> Result<Vec<Tensor>, IrError> {
        let wrap = |e| IrError::layer(&self.node.name, "loop", e);
        let s = &self.shape;
        let count = match s.count {
            true => Some(truth(&self.ins[0]).map_err(wrap)?.max(0)),
            false => None,
        };
        let lengths = self.lengths(count).map_err(wrap)?;
        let mut carried = self.ins[s.initials()].to_vec();
        let mut scans: Vec<Vec<Tensor>> = vec![Vec::new(); s.scans()];
        let (mut trip, mut bytes) = (0i64, 0u64);
        while count.is_none_or(|n| trip < n) && self.goes_on(&carried)? {
            let mut ins = carried;
            for (t, &(axis, reverse)) in self.ins[s.iterables()].iter().zip(&s.iterated) {
                let at = if reverse { count.unwrap_or(0) - 1 - trip } else { trip };
                ins.push(slice(t, axis, at).map_err(wrap)?);
            }
            ins.extend_from_slice(&self.ins[s.captures()]);
            let mut outs = self.node.regions[0].eval(&ins)?;
            let values = outs.split_off(s.carried);
            carried = outs;
            for (kept, v) in scans.iter_mut().zip(values) {
                bytes = bytes.saturating_add(v.bytes().len() as u64);
                kept.push(v);
            }
            if bytes > MAX_BYTES {
                return Err(wrap(OpError::TooLarge(format!("more than {MAX_BYTES} bytes of loop outputs"))));
            }
            trip += 1;
        }
        let types = if trip == 0 { self.types() } else { Vec::new() };
        let outs = s.outs.iter().zip(lengths).enumerate().map(|(i, (o, length))| match o.kind {
            LoopOutputKind::LastValue => Ok(carried[o.index].clone()),
            _ if trip == 0 => none(o, types.get(i), length.unwrap_or(0)),
            _ => stack(o, &scans[o.index], length),
        });
        outs.collect::<Result<_, _>>().map_err(wrap)
    }

    /// The types of the outputs, as far as they are known without a trip.
    fn types(&self) -> Vec<TensorType> {
        let facts: Vec<_> = self.ins.iter().map(|t| Some(Fact::constant(t.clone()))).collect();
        let inferred = infer::infer(&self.node.name, &self.node.op, &self.node.regions, &facts);
        inferred.map_or(Vec::new(), |i| i.outputs.into_iter().map(|f| f.ty).collect())
    }

    fn goes_on(&self, carried: &[Tensor]) -> Result<bool, IrError> {
        let Some(condition) = self.node.regions.get(1) else { return Ok(true) };
        let mut ins = carried.to_vec();
        ins.extend_from_slice(&self.ins[self.shape.captures().end..]);
        let asked = condition.eval(&ins)?;
        let wrap = |e| IrError::layer(&self.node.name, "loop", e);
        let missing = || wrap(OpError::Value("the condition gives nothing".into()));
        Ok(truth(asked.first().ok_or_else(missing)?).map_err(wrap)? != 0)
    }

    /// The length of each output, if it has one; refused where the count is known to be greater.
    fn lengths(&self, count: Option<i64>) -> Result<Vec<Option<usize>>, OpError> {
        let mut given = self.shape.lengths();
        let mut of = |o: &LoopOut| {
            let Some(i) = o.length.then(|| given.next()).flatten() else { return Ok(None) };
            let n = truth(&self.ins[i])?;
            let n =
                usize::try_from(n).map_err(|_| OpError::Value(format!("a loop output has length {n}")))?;
            match count.filter(|&c| !self.shape.condition && c as u64 > n as u64) {
                Some(c) => Err(too_short(n, c as usize)),
                None => Ok(Some(n)),
            }
        };
        self.shape.outs.iter().map(&mut of).collect()
    }
}

fn too_short(length: usize, trips: usize) -> OpError {
    OpError::Value(format!("a loop output has length {length}, but there are {trips} trips; make it longer"))
}

/// Rows before the axis, the length of the axis, elements after it.
fn split(shape: &[usize], axis: usize) -> (usize, usize, usize) {
    let after = strides(shape).get(axis).copied().unwrap_or(1);
    (shape[..axis].iter().product(), shape.get(axis).copied().unwrap_or(1), after)
}

/// Element `at` along an axis, which is dropped.
fn slice(t: &Tensor, axis: usize, at: i64) -> Result<Tensor, OpError> {
    let (rows, len, inner) = split(t.shape(), axis);
    let i = usize::try_from(at).ok().filter(|&i| i < len).ok_or_else(|| {
        OpError::Value(format!("iterates to element {at} of axis {axis}, which has {len}; make fewer trips"))
    })?;
    fn pick<T: Copy>(v: &[T], rows: usize, len: usize, inner: usize, i: usize) -> Vec<T> {
        (0..rows).flat_map(|r| v[(r * len + i) * inner..][..inner].iter().copied()).collect()
    }
    let elems = match t.elems() {
        Elems::F(v) => Elems::F(pick(&v, rows, len, inner, i)),
        Elems::I(v) => Elems::I(pick(&v, rows, len, inner, i)),
    };
    let mut shape = t.shape().to_vec();
    shape.remove(axis);
    made(t, &shape, &elems)
}

fn made(like: &Tensor, shape: &[usize], elems: &Elems) -> Result<Tensor, OpError> {
    let wrong = || OpError::Value(format!("{}{shape:?} could not be made", like.dtype()));
    Tensor::from_elems(like.dtype(), shape, elems).ok_or_else(wrong)
}

/// What a loop without trips stacks: zeros, if the length is not 0. Dimensions that only a trip tells are 0.
fn none(o: &LoopOut, ty: Option<&TensorType>, length: usize) -> Result<Tensor, OpError> {
    let unknown = || OpError::Value("makes no trip, and the type of what it stacks is not known".into());
    let ty = ty.ok_or_else(unknown)?;
    let number = |d: &crate::Dim| d.as_const().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    let mut shape: Vec<usize> = ty.dims.iter().map(number).collect();
    if let Some(d) = shape.get_mut(o.axis) {
        *d = length;
    }
    zeros(ty, &shape)
}

/// The values of all trips along a new axis of this length; zeros beyond the last.
fn stack(o: &LoopOut, values: &[Tensor], length: Option<usize>) -> Result<Tensor, OpError> {
    let length = length.unwrap_or(values.len());
    if length < values.len() {
        return Err(too_short(length, values.len()));
    }
    let first = values.first().ok_or_else(|| OpError::Value("a loop output of no trips".into()))?;
    if let Some(odd) = values.iter().find(|v| v.shape() != first.shape()) {
        return Err(OpError::Mismatch {
            a: format!("{:?}", first.shape()),
            b: format!("{:?}", odd.shape()),
            wanted: "what is concatenated has the same shape in every trip".into(),
        });
    }
    let mut shape = first.shape().to_vec();
    shape.insert(o.axis, length);
    let zero = zeros(&first.ty(), &shape)?;
    let (rows, _, inner) = split(&shape, o.axis);
    let place = |trip: usize| if o.kind == LoopOutputKind::Reverse { values.len() - 1 - trip } else { trip };
    let mut elems = zero.elems();
    for (trip, v) in values.iter().enumerate() {
        for r in 0..rows {
            let (to, from) = ((r * length + place(trip)) * inner, r * inner);
            match (&mut elems, v.elems()) {
                (Elems::F(y), Elems::F(v)) => y[to..to + inner].copy_from_slice(&v[from..from + inner]),
                (Elems::I(y), Elems::I(v)) => y[to..to + inner].copy_from_slice(&v[from..from + inner]),
                _ => return Err(OpError::Value("a loop output changes its type".into())),
            }
        }
    }
    made(first, &shape, &elems)
}

fn zeros(ty: &TensorType, shape: &[usize]) -> Result<Tensor, OpError> {
    let bytes = volume(shape).and_then(|n| ty.dtype.bytes_for(n as u64)).filter(|&b| b <= MAX_BYTES);
    bytes.ok_or_else(|| OpError::TooLarge(format!("{}{shape:?}", ty.dtype)))?;
    Tensor::zeros(ty.dtype, shape)
}
