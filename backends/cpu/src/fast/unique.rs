//! `unique`: slices in the order of their elements, equal neighbours as one.

use super::element::{Element, has, with_element};
use super::lines::Lines;
use super::{Kernel, NodeCx, TABLES, Types, kernel};
use crate::value::{Out, Val};
use kiln_backend::BackendError;
use kiln_ir::DType;
use kiln_ops::select::UNIQUE;

#[linkme::distributed_slice(TABLES)]
static KERNELS: &[Kernel] = &[kernel(UNIQUE, unique, covers)];

fn covers(t: &Types<'_>) -> bool {
    t.input(0).is_some_and(|x| has(x.dtype) || x.dtype == DType::F8E4M3)
}

/// The different slices: for each its first occurrence; and for each slice the number of its kind.
struct Kinds {
    first: Vec<usize>,
    of: Vec<usize>,
}

/// The kinds of slices, ascending. Slices with NaN are all different.
fn kinds<T: Element>(x: &[T], l: Lines, is_nan: impl Fn(&T) -> bool) -> Kinds {
    let m = l.outer * l.inner;
    let place = |i: usize, e: usize| (e / l.inner * l.n + i) * l.inner + e % l.inner;
    let elems = |i: usize| (0..m).map(move |e| place(i, e));
    let mut order: Vec<usize> = (0..l.n).collect();
    let keys = |i: usize| elems(i).map(|p| x[p].key());
    // The sort is stable: of equal slices the first comes first.
    order.sort_by(|&a, &b| keys(a).cmp(keys(b)));
    let mut kinds = Kinds { first: Vec::new(), of: vec![0; l.n] };
    for (k, &i) in order.iter().enumerate() {
        let new = k == 0 || elems(i).any(|p| is_nan(&x[p])) || !keys(i).eq(keys(order[k - 1]));
        if new {
            kinds.first.push(i);
        }
        kinds.of[i] = kinds.first.len() - 1;
    }
    kinds
}

impl Kinds {
    /// Numbered in the order of first occurrence.
    fn by_occurrence(mut self) -> Kinds {
        let mut order: Vec<usize> = (0..self.first.len()).collect();
        order.sort_by_key(|&k| self.first[k]);
        let mut rank = vec![0; order.len()];
        order.iter().enumerate().for_each(|(r, &k)| rank[k] = r);
        self.of.iter_mut().for_each(|k| *k = rank[*k]);
        self.first.sort_unstable();
        self
    }
}

fn unique(cx: &mut NodeCx<'_>) -> Result<bool, BackendError> {
    let attrs = cx.node.op.attrs();
    let (Some(x), Ok(flatten), Ok(sorted)) =
        (cx.args[0].clone(), attrs.bool("flatten"), attrs.bool("sorted"))
    else {
        return Ok(false);
    };
    let shape = if flatten { vec![x.shape().iter().product()] } else { x.shape().to_vec() };
    let axis = if flatten { Some(0) } else { cx.axis("axis", shape.len()) };
    let Some(axis) = axis else { return Ok(false) };
    let l = Lines::of(&shape, axis, axis + 1);
    fn of<T: Element>(x: &Val, l: Lines) -> Kinds {
        kinds(x.view::<T>().unwrap_or_default(), l, |x| Element::is_nan(*x))
    }
    let found = match x.dtype() {
        DType::F8E4M3 => match cx.floats(0) {
            Some(x) => kinds::<f32>(&x, l, |x| f32::is_nan(*x)),
            None => return Ok(false),
        },
        t => with_element!(t, T => of::<T>(&x, l), else return Ok(false)),
    };
    let found = if sorted { found } else { found.by_occurrence() };
    let n = found.first.len();
    let mut to = shape.clone();
    to[axis] = n;
    let run = l.inner * (x.dtype().bits() as usize / 8);
    let mut y = Out::new(cx.pool, x.dtype(), &to, &cx.node.name)?;
    if run > 0 {
        for (row, y) in y.bytes_mut().chunks_exact_mut(run).enumerate() {
            let from = (row / n * l.n + found.first[row % n]) * run;
            y.copy_from_slice(&x.bytes()[from..from + run]);
        }
    }
    cx.push(y.done());
    let mut counts = vec![0; n];
    found.of.iter().for_each(|&k| counts[k] += 1);
    for v in [&found.first, &found.of, &counts] {
        let mut out = Out::new(cx.pool, DType::I64, &[v.len()], &cx.node.name)?;
        out.elems_mut::<i64>().iter_mut().zip(v).for_each(|(y, &x)| *y = x as i64);
        cx.push(out.done());
    }
    Ok(true)
}
