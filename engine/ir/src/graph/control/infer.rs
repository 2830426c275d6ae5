//! Types of control flow: through the regions, to a fixed point for values that loops carry.

use super::super::Graph;
use super::{LoopOut, LoopOutputKind, LoopShape, branch_captures};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::{IrError, OpError};
use crate::infer::Fact;
use crate::op::{LOOP, Op};
use crate::ty::TensorType;
use std::ops::Range;

/// Result of inference.
pub(crate) struct Inferred {
    /// Facts of the node's outputs.
    pub(crate) outputs: Vec<Fact>,
    /// Facts of each region's inputs.
    pub(crate) regions: Vec<Vec<Fact>>,
}

pub(crate) fn infer(
    name: &str,
    op: &Op,
    regions: &[Graph],
    inputs: &[Option<Fact>],
) -> Result<Inferred, IrError> {
    let wrap = |e| IrError::layer(name, op.name(), e);
    let facts: Option<Vec<Fact>> = inputs.iter().cloned().collect();
    let missing = || OpError::MissingInput { input: 0, name: "inputs".into() };
    let facts = facts.ok_or_else(|| wrap(missing()))?;
    let types: Vec<&TensorType> = facts.iter().map(|f| &f.ty).collect();
    if op.is(LOOP) {
        let shape = check_loop(op, regions, &types).map_err(wrap)?;
        return infer_loop(name, op, &shape, regions, &facts);
    }
    let captures = check_if(op, regions, &types).map_err(wrap)?;
    infer_if(name, op, regions, &facts, captures)
}

fn check_regions(regions: &[Graph], want: &[(usize, usize)]) -> Result<(), OpError> {
    if regions.len() != want.len() {
        return Err(OpError::Value(format!("has {} regions, wants {}", regions.len(), want.len())));
    }
    for (i, (r, &(ins, outs))) in regions.iter().zip(want).enumerate() {
        if (r.inputs.len(), r.outputs.len()) != (ins, outs) {
            let found = format!("{} inputs and {} outputs", r.inputs.len(), r.outputs.len());
            return Err(OpError::Value(format!("region {i} has {found}, wants {ins} and {outs}")));
        }
    }
    Ok(())
}

/// The layout of a loop, its regions and inputs checked against it.
pub(super) fn check_loop(op: &Op, regions: &[Graph], types: &[&TensorType]) -> Result<LoopShape, OpError> {
    let s = LoopShape::of(op.attrs())?;
    let captured = s.captures().end;
    if types.len() < captured {
        return Err(OpError::Arity { found: types.len(), wanted: format!("at least {captured}") });
    }
    let mut want = vec![(s.carried + s.iterated.len() + s.body_captures, s.carried + s.scans())];
    if s.condition {
        want.push((s.carried + types.len() - captured, 1));
    }
    check_regions(regions, &want)?;
    if let Some(o) = s.outs.iter().find(|o| o.kind == LoopOutputKind::LastValue && o.index >= s.carried) {
        return Err(OpError::Value(format!("gives out carried value {} of {}", o.index, s.carried)));
    }
    for i in s.lengths().chain(0..usize::from(s.count)) {
        single(types[i], i, |d| matches!(d, DType::I32 | DType::I64), "one i32 or i64")?;
    }
    Ok(s)
}

/// Captures of the branches of an `if`, its regions and inputs checked.
pub(super) fn check_if(
    op: &Op,
    regions: &[Graph],
    types: &[&TensorType],
) -> Result<[Range<usize>; 2], OpError> {
    let missing = || OpError::MissingInput { input: 0, name: "condition".into() };
    single(types.first().ok_or_else(missing)?, 0, |d| d == DType::Bool, "one bool")?;
    let captures = branch_captures(op.attrs(), types.len())?;
    let outs = regions.first().map_or(0, |r| r.outputs.len());
    check_regions(regions, &[(captures[0].len(), outs), (captures[1].len(), outs)])?;
    Ok(captures)
}

/// Refuses an input that is not of one element, or of another type.
fn single(ty: &TensorType, input: usize, ok: fn(DType) -> bool, wanted: &str) -> Result<(), OpError> {
    if !ok(ty.dtype) {
        return Err(OpError::DType { input, found: ty.dtype, wanted: wanted.into() });
    }
    if ty.dims.iter().all(|d| d.as_const().is_none_or(|n| n == 1)) {
        return Ok(());
    }
    Err(OpError::Shape { input, found: crate::ty::dims_text(&ty.dims), wanted: wanted.into() })
}

/// The types of a region's outputs.
fn through(region: &Graph, inputs: &[Fact]) -> Result<Vec<Fact>, IrError> {
    let facts = region.infer_from(inputs)?;
    Ok(region.outputs.iter().map(|v| facts[v.0 as usize].clone()).collect())
}

fn infer_loop(
    name: &str,
    op: &Op,
    s: &LoopShape,
    regions: &[Graph],
    facts: &[Fact],
) -> Result<Inferred, IrError> {
    let wrap = |e| IrError::layer(name, op.name(), e);
    let mut carried: Vec<Fact> = facts[s.initials()].iter().map(|f| Fact::of(f.ty.clone())).collect();
    let elements = s.iterables().zip(&s.iterated).map(|(i, &(axis, _))| element(&facts[i].ty, i, axis));
    let elements = elements.collect::<Result<Vec<_>, _>>().map_err(wrap)?;
    loop {
        let mut ins = carried.clone();
        ins.extend(elements.iter().cloned());
        ins.extend(facts[s.captures()].iter().cloned());
        let outs = through(&regions[0], &ins)?;
        if !widen(name, &mut carried, &outs).map_err(wrap)? {
            let outputs = s.outs.iter().map(|o| output(name, s, o, facts, &carried, &outs[s.carried..]));
            let outputs = outputs.collect::<Result<Vec<_>, _>>().map_err(wrap)?;
            let mut inputs = vec![ins];
            if let Some(condition) = regions.get(1) {
                let mut ins = carried.clone();
                ins.extend(facts[s.captures().end..].iter().cloned());
                let asked = through(condition, &ins)?;
                single(&asked[0].ty, 0, |d| d == DType::Bool, "one bool as the condition").map_err(wrap)?;
                inputs.push(ins);
            }
            return Ok(Inferred { outputs, regions: inputs });
        }
    }
}

/// One element of an iterated tensor.
fn element(ty: &TensorType, input: usize, axis: usize) -> Result<Fact, OpError> {
    if axis >= ty.rank() {
        let wanted = format!("a dimension {axis} to iterate over");
        return Err(OpError::Shape { input, found: crate::ty::dims_text(&ty.dims), wanted });
    }
    let mut ty = ty.clone();
    ty.dims.remove(axis);
    Ok(Fact::of(ty))
}

/// Makes dimensions that an iteration changes into device dimensions. Returns whether there were any.
fn widen(name: &str, carried: &mut [Fact], next: &[Fact]) -> Result<bool, OpError> {
    let mut changed = false;
    for (i, (c, n)) in carried.iter_mut().zip(next).enumerate() {
        if c.ty.dtype != n.ty.dtype || c.ty.rank() != n.ty.rank() {
            return Err(OpError::Mismatch {
                a: c.ty.to_string(),
                b: n.ty.to_string(),
                wanted: format!("carried value {i} keeps its type and rank from iteration to iteration"),
            });
        }
        for (j, (a, b)) in c.ty.dims.iter_mut().zip(&n.ty.dims).enumerate() {
            let symbol = Dim::device(format!("{name}.carried{i}.d{j}"), None);
            if a != b && *a != symbol {
                *a = symbol;
                changed = true;
            }
        }
    }
    Ok(changed)
}

fn output(
    name: &str,
    s: &LoopShape,
    o: &LoopOut,
    facts: &[Fact],
    carried: &[Fact],
    scans: &[Fact],
) -> Result<Fact, OpError> {
    if o.kind == LoopOutputKind::LastValue {
        return Ok(carried[o.index].clone());
    }
    let mut ty = scans[o.index].ty.clone();
    if o.axis > ty.rank() {
        return Err(super::bad("out_axes", o.axis, &format!("at most {}", ty.rank())));
    }
    let at = s.outs.iter().take_while(|p| !std::ptr::eq(*p, o)).filter(|p| p.length).count();
    let own = format!("{name}.{}{}", o.kind.name(), o.index);
    let length = match o.length {
        true => extent(&own, &facts[s.lengths().start + at]),
        false => iterations(&own, s, facts),
    };
    ty.dims.insert(o.axis, length);
    Ok(Fact::of(ty))
}

/// Dimension whose size is one integer: its value if that can't be negative, else a new one.
pub fn extent(name: &str, fact: &Fact) -> Dim {
    match fact.as_dims().as_deref() {
        Some([d]) if !d.has_content() => d.max_with(&Dim::new(0)),
        Some([d]) if d.kind() <= crate::dim::DimKind::Host => {
            Dim::host_bounded(name, Some(d.max_with(&Dim::new(0))))
        }
        _ => Dim::device(name, None),
    }
}

/// The number of iterations as a dimension.
fn iterations(name: &str, s: &LoopShape, facts: &[Fact]) -> Dim {
    match (s.count, s.condition) {
        (true, false) => extent(name, &facts[0]),
        (true, true) => Dim::device(name, Some(extent(&format!("{name}.count"), &facts[0]))),
        _ => Dim::device(name, None),
    }
}

fn infer_if(
    name: &str,
    op: &Op,
    regions: &[Graph],
    facts: &[Fact],
    captures: [Range<usize>; 2],
) -> Result<Inferred, IrError> {
    let wrap = |e| IrError::layer(name, op.name(), e);
    let ins: Vec<Vec<Fact>> = captures.into_iter().map(|c| facts[c].to_vec()).collect();
    let known = facts.first().and_then(Fact::as_const).and_then(|t| t.scalar_i64());
    if let Some(c) = known {
        let taken = usize::from(c == 0);
        return Ok(Inferred { outputs: through(&regions[taken], &ins[taken])?, regions: ins });
    }
    let (a, b) = match (through(&regions[0], &ins[0]), through(&regions[1], &ins[1])) {
        (Ok(a), Ok(b)) => (a, b),
        // A branch that does not fit these shapes is an error only where it is taken.
        (Ok(outputs), Err(_)) | (Err(_), Ok(outputs)) => return Ok(Inferred { outputs, regions: ins }),
        (Err(e), Err(_)) => return Err(e),
    };
    let outputs = a.into_iter().zip(b).enumerate();
    let outputs = outputs.map(|(i, (a, b))| join(&format!("{name}.{i}"), None, &a, &b));
    Ok(Inferred { outputs: outputs.collect::<Result<_, _>>().map_err(wrap)?, regions: ins })
}

/// Facts of a value that is either of two.
pub fn join(name: &str, condition: Option<i64>, a: &Fact, b: &Fact) -> Result<Fact, OpError> {
    let misfit =
        |wanted: &str| OpError::Mismatch { a: a.ty.to_string(), b: b.ty.to_string(), wanted: wanted.into() };
    if a.ty.dtype != b.ty.dtype {
        return Err(misfit("both branches give the same element type"));
    }
    if let Some(c) = condition {
        return Ok(if c != 0 { a.clone() } else { b.clone() });
    }
    if a.ty.rank() != b.ty.rank() {
        let (when_true, when_false) = (a.ty.to_string(), b.ty.to_string());
        return Err(OpError::BranchRanks { when_true, when_false });
    }
    let either = |(i, (a, b)): (usize, (&Dim, &Dim))| match a == b {
        true => a.clone(),
        false => Dim::device(format!("{name}.d{i}"), bound(a, b)),
    };
    let dims = a.ty.dims.iter().zip(&b.ty.dims).enumerate().map(either).collect();
    Ok(Fact::of(TensorType { dtype: a.ty.dtype, dims }))
}

fn bound(a: &Dim, b: &Dim) -> Option<Dim> {
    Some(a.upper_bound()?.max_with(&b.upper_bound()?))
}
