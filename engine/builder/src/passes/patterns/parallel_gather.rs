//! Rows of several constant tables side by side (embeddings of many features): one gather of all tables, one below the other. Their
//! indices, side by side, are moved to where each table begins. The rows may be reduced over axes of the indices (bags).

use super::view::{View, input};
use super::{Rule, Writer};
use kiln_ir::infer::normalize_axis;
use kiln_ir::{Attrs, Dim, Elems, Graph, IrError, Node, NodeId, Op, Tensor, TensorType, ValueId};
use kiln_ops::gather::GATHER;
use kiln_ops::pointwise::binary::{ADD, LESS};
use kiln_ops::pointwise::select::SELECT;
use kiln_ops::reduce::REDUCE;
use kiln_ops::shape::squeeze::UNSQUEEZE;
use kiln_ops::slice::SLICE;
use kiln_ops::slice::concat::CONCAT;
use kiln_ops::transpose::TRANSPOSE;

/// Rows of all tables together, so that indices of 32 bits can be moved behind the last one.
const MOST_ROWS: i64 = 1 << 30;

/// A run of inputs of a concatenation that are rows of tables.
pub struct ParallelGather {
    /// Place of the first among the inputs of the concatenation.
    at: usize,
    tables: Vec<Table>,
    /// Dimensions of what is concatenated, without that of the rows.
    dims: Vec<Dim>,
    width: i64,
    form: Form,
}

/// Layers between the rows of a table and the concatenation.
#[derive(Clone, PartialEq)]
struct Form {
    /// A reduction over these axes of the indices.
    bag: Option<(Op, Vec<i64>)>,
    /// Whether the concatenation is along a new axis, and not along the rows.
    stacked: bool,
}

/// A constant table and the indices of the rows that are read.
#[derive(Clone, Copy)]
struct Table {
    table: ValueId,
    rows: i64,
    indices: ValueId,
}

/// One index of an axis of a tensor.
#[derive(Clone, Copy, PartialEq)]
struct Column {
    of: ValueId,
    axis: usize,
    index: i64,
}

impl Rule for ParallelGather {
    const NAME: &'static str = "parallel-gather";
    const WEIGHTS: bool = true;
    // Few large gathers gain less than their indices cost.
    const ALWAYS: bool = false;

    /// The root is the concatenation. The longest run counts.
    fn find(view: &View<'_>, root: NodeId) -> Option<ParallelGather> {
        let node = view.g.get(root).filter(|n| n.op.is(CONCAT))?;
        let all: Vec<Option<(Table, Form)>> = node.inputs.iter().map(|v| rows_of(view, (*v)?)).collect();
        let mut best: Option<(usize, usize)> = None;
        let mut at = 0;
        for run in all.chunk_by(|a, b| alike(view.g, a.as_ref(), b.as_ref())) {
            let longest = best.is_none_or(|(_, n)| run.len() > n);
            best = if run.len() > 1 && longest { Some((at, run.len())) } else { best };
            at += run.len();
        }
        let (at, n) = best?;
        let run: Vec<(Table, Form)> = all.get(at..at + n)?.iter().cloned().collect::<Option<_>>()?;
        let (first, form) = run.first().cloned()?;
        let reduced = |axis: usize| form.bag.as_ref().is_some_and(|(_, axes)| axes.contains(&(axis as i64)));
        let indices = view.dims(first.indices).iter().enumerate();
        let dims: Vec<Dim> = indices.filter(|(axis, _)| !reduced(*axis)).map(|(_, d)| d.clone()).collect();
        let rank = dims.len() + 1 + usize::from(form.stacked);
        let axis = normalize_axis(node.op.attrs().int("axis").ok()?, rank, "axis");
        let total: i64 = run.iter().map(|(t, _)| t.rows).sum();
        let unknown = dims.iter().filter(|d| d.as_const().is_none()).count();
        let empty = dims.iter().any(|d| d.as_const() == Some(0));
        let width = view.g.ty(first.table).static_dims()?.get(1).copied()? as i64;
        let fits = axis.ok()? == dims.len() && total <= MOST_ROWS && unknown <= 1 && !empty && width > 0;
        let tables = run.into_iter().map(|(t, _)| t).collect();
        fits.then_some(ParallelGather { at, tables, dims, width, form })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let Some(node) = w.g.get(root).cloned() else { return Ok(false) };
        let weights: Vec<ValueId> = self.tables.iter().map(|t| t.table).collect();
        let all = w.op(CONCAT, Attrs::new().with("axis", 0i64), &weights)?;
        let side_by_side = self.indices(&mut w)?;
        let moved = self.moved(&mut w, side_by_side)?;
        let mut y = w.op(GATHER, Attrs::new().with("axis", 0i64), &[all, moved])?;
        if let Some((op, axes)) = &self.form.bag {
            let axes = w.ints(axes)?;
            y = w.op(op.id(), op.attrs().clone(), &[y, axes])?;
        }
        if !self.form.stacked {
            let known = |d: &Dim| d.as_const().unwrap_or(-1);
            let mut shape: Vec<i64> = self.dims.iter().map(known).collect();
            shape.push(self.tables.len() as i64 * self.width);
            y = w.reshape(y, &shape)?;
        }
        let rest: Vec<ValueId> = node.inputs.iter().copied().flatten().collect();
        let (before, behind) = (&rest[..self.at], &rest[self.at + self.tables.len()..]);
        if !before.is_empty() || !behind.is_empty() {
            y = w.op(CONCAT, node.op.attrs().clone(), &[before, &[y], behind].concat())?;
        }
        Ok(w.replace(root, y))
    }
}

impl ParallelGather {
    /// The indices of all tables along a new last axis: of columns in order a part of what they are columns of.
    fn indices(&self, w: &mut Writer<'_>) -> Result<ValueId, IrError> {
        let columns: Option<Vec<Column>> = self.tables.iter().map(|t| column(w.g, t.indices)).collect();
        if let Some(columns) = columns
            && let Some(first) = columns.first().copied()
            && columns.iter().zip(first.index..).all(|(c, index)| *c == Column { index, ..first })
        {
            let ends = [first.index, first.index + columns.len() as i64, first.axis as i64];
            let [from, to, axis] = [w.ints(&ends[..1])?, w.ints(&ends[1..2])?, w.ints(&ends[2..])?];
            let part = w.op(SLICE, Attrs::new(), &[first.of, from, to, axis])?;
            let rank = w.g.ty(part).rank();
            if first.axis + 1 == rank {
                return Ok(part);
            }
            let axes = (0..rank).filter(|&a| a != first.axis).chain([first.axis]).map(|a| a as i64);
            return w.op(TRANSPOSE, Attrs::new().with("perm", axes.collect::<Vec<_>>()), &[part]);
        }
        let rank = self.tables.first().map_or(0, |t| w.g.ty(t.indices).rank()) as i64;
        let last = w.ints(&[rank])?;
        let parts = self.tables.iter().map(|t| w.op(UNSQUEEZE, Attrs::new(), &[t.indices, last]));
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        w.op(CONCAT, Attrs::new().with("axis", rank), &parts)
    }

    /// Indices into all tables. Negative ones count from the end of their own table. One outside of it is moved outside of all, so
    /// that it stays an error.
    fn moved(&self, w: &mut Writer<'_>, indices: ValueId) -> Result<ValueId, IrError> {
        let dtype = w.g.ty(indices).dtype;
        let total: i64 = self.tables.iter().map(|t| t.rows).sum();
        let mut vector = |f: &dyn Fn(&Table, i64) -> i64| {
            let mut start = 0;
            let each = self.tables.iter().map(|t| {
                start += t.rows;
                f(t, start - t.rows)
            });
            let t = Tensor::from_elems(dtype, &[self.tables.len()], &Elems::I(each.collect()));
            let t = t.ok_or_else(|| IrError::Structure("a vector could not be made".into()))?;
            Ok::<_, IrError>(w.constant(t))
        };
        let rows = vector(&|t, _| t.rows)?;
        let least = vector(&|t, _| -t.rows)?;
        let start = vector(&|_, start| start)?;
        let end = vector(&|t, start| start + t.rows)?;
        let (zero, out, under) = (w.integer(0, dtype)?, w.integer(total, dtype)?, w.integer(-total, dtype)?);
        let fits = w.op(LESS, Attrs::new(), &[indices, rows])?;
        let by = w.op(SELECT, Attrs::new(), &[fits, start, out])?;
        let negative = w.op(LESS, Attrs::new(), &[indices, zero])?;
        let by = w.op(SELECT, Attrs::new(), &[negative, end, by])?;
        let short = w.op(LESS, Attrs::new(), &[indices, least])?;
        let by = w.op(SELECT, Attrs::new(), &[short, under, by])?;
        w.op(ADD, Attrs::new(), &[indices, by])
    }
}

/// The table that a value has rows of, and the layers behind these.
fn rows_of(view: &View<'_>, v: ValueId) -> Option<(Table, Form)> {
    let lone = |v: ValueId, op| view.made_by(v, op).filter(|(_, n)| view.read_once(v) && plain(n));
    let (mut x, mut form) = (v, Form { bag: None, stacked: false });
    if let Some((_, node)) = lone(x, UNSQUEEZE) {
        x = input(node, 0)?;
        let rank = view.g.ty(x).rank() as i64;
        let axes = view.ints(input(node, 1)?)?;
        form.stacked = axes == [rank - 1] || axes == [-2];
        if !form.stacked {
            return None;
        }
    }
    if let Some((_, node)) = lone(x, REDUCE) {
        x = input(node, 0)?;
        let rank = view.g.ty(x).rank();
        let axes = view.ints(input(node, 1)?)?;
        let mask = kiln_ops::reduce::mask(node.op.attrs(), Some(&axes), rank).ok()?;
        let axes: Vec<i64> = (0..rank).filter(|&i| mask[i]).map(|i| i as i64).collect();
        let rows = mask.last().copied()? || node.op.attrs().bool("keep_dims").ok()?;
        if rows || axes.is_empty() {
            return None;
        }
        form.bag = Some((node.op.clone(), axes));
    }
    Some((table(view, x)?, form))
}

fn table(view: &View<'_>, v: ValueId) -> Option<Table> {
    let (_, node) = view.made_by(v, GATHER).filter(|(_, n)| view.read_once(v) && plain(n))?;
    let attrs = node.op.attrs();
    let (table, indices) = (input(node, 0)?, input(node, 1)?);
    let dims = view.g.ty(table).static_dims().filter(|d| d.len() == 2)?;
    let constant = view.g.weight(table).is_some() && view.g.weight(indices).is_none();
    let first = matches!(attrs.int("axis"), Ok(0 | -2)) && matches!(attrs.int("batch_dims"), Ok(0));
    let rows = i64::try_from(dims[0]).ok().filter(|&n| n > 0 && n <= MOST_ROWS)?;
    (constant && first).then_some(Table { table, rows, indices })
}

fn plain(node: &Node) -> bool {
    node.meta.precision.is_none() && node.meta.output_types.iter().all(Option::is_none)
}

/// Whether two inputs of a concatenation can be rows of one table.
fn alike(g: &Graph, a: Option<&(Table, Form)>, b: Option<&(Table, Form)>) -> bool {
    let (Some((a, form)), Some((b, other))) = (a, b) else { return false };
    let row = |t: &Table| (g.ty(t.table).dtype, g.ty(t.table).dims.get(1).cloned());
    let same = |a: &TensorType, b: &TensorType| a.dtype == b.dtype && a.dims == b.dims;
    form == other && row(a) == row(b) && same(g.ty(a.indices), g.ty(b.indices))
}

/// One index of an axis, if that is how a value was made.
fn column(g: &Graph, v: ValueId) -> Option<Column> {
    let (_, node) = g.producer(v).filter(|(_, n)| n.op.is(GATHER))?;
    let (of, at) = (input(node, 0)?, input(node, 1)?);
    let axis = normalize_axis(node.op.attrs().int("axis").ok()?, g.ty(of).rank(), "axis").ok()?;
    let index = g.weight(at).filter(|_| g.ty(at).rank() == 0)?.tensor.to_i64().first().copied()?;
    let inside = index >= 0 && g.ty(of).dims.get(axis)?.as_const()? > index;
    (inside && matches!(node.op.attrs().int("batch_dims"), Ok(0))).then_some(Column { of, axis, index })
}
