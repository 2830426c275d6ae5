//! Loops over the elements of a sequence whose body is an LSTM, GRU or RNN cell, or several of these in layers, become
//! the recurrent operators; what the body does before and behind the cells is done for all elements at once.

use super::view::{View, input};
use super::{Rule, Writer};
use kiln_ir::infer::Value;
use kiln_ir::{
    Attr, Attrs, Dim, Fact, Graph, IrError, LoopOutputKind, LoopShape, Node, NodeId, Tensor, ValueId,
};
use std::collections::HashMap;

pub struct Recurrence;

impl Rule for Recurrence {
    const NAME: &'static str = "recurrence";
    const WEIGHTS: bool = true;

    fn find(view: &View<'_>, root: NodeId) -> Option<Recurrence> {
        view.g.get(root).filter(|n| n.op.is("loop"))?;
        let mut tried = view.g.clone();
        let found = Walk::new(&tried, root)?.run(Writer::before(&mut tried, root), root);
        found.is_ok_and(|f| f.is_some()).then_some(Recurrence)
    }

    fn write(self, w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        match Walk::new(w.g, root) {
            Some(walk) => Ok(walk.run(w, root)?.is_some()),
            None => Ok(false),
        }
    }
}

/// What a value of the body is for the graph around it.
#[derive(Clone, Copy, PartialEq)]
enum Class {
    /// The same in all trips.
    Fixed(ValueId),
    /// One element a trip, along a new first dimension.
    Each(ValueId),
}

/// A part of a sum: a product of the state or of a sequence with a matrix, or a vector; of these the columns of a gate.
#[derive(Clone, Copy)]
struct Term {
    what: What,
    from: i64,
    width: i64,
}

#[derive(Clone, Copy, PartialEq)]
enum What {
    /// Matrix, and whether its rows are the columns of the product.
    State(ValueId, bool),
    Input(ValueId, ValueId, bool),
    Bias(ValueId),
}

/// A cell that was written: its sequence of states, and the last ones.
struct Cell {
    h: usize,
    c: Option<usize>,
    last: [Option<ValueId>; 2],
}

struct Walk {
    body: Graph,
    shape: LoopShape,
    inputs: Vec<ValueId>,
    known: HashMap<ValueId, Option<Class>>,
    cells: Vec<Cell>,
}

type Found<T> = Result<Option<T>, IrError>;

/// Takes what is there, or gives up on the site.
macro_rules! take {
    ($e:expr) => {
        match $e {
            Some(v) => v,
            None => return Ok(None),
        }
    };
}

/// The number that a fact's only element is, as a dimension.
fn number(f: &Fact) -> Option<Dim> {
    match f.value.as_ref()? {
        Value::Const(t) => Some(Dim::new(t.scalar_i64()?)),
        Value::Dims(d) => d.first().cloned().filter(|_| d.len() == 1),
    }
}

impl Walk {
    /// A loop that goes forward through all elements of its tensors.
    fn new(g: &Graph, root: NodeId) -> Option<Walk> {
        let node = g.get(root)?;
        let shape = node.loop_shape(node.inputs.len()).ok()?;
        let inputs: Vec<ValueId> = node.inputs.iter().copied().collect::<Option<_>>()?;
        let plain = shape.count && !shape.condition && !shape.iterated.is_empty();
        let trips = number(&g.value(*inputs.first()?).fact)?;
        let all = |v: &ValueId| g.ty(*v).dims.first() == Some(&trips);
        let forward = shape.iterated.iter().all(|&(axis, reverse)| axis == 0 && !reverse);
        let stacked = shape.outs.iter().all(|o| match o.kind {
            LoopOutputKind::LastValue => true,
            LoopOutputKind::Concatenate => o.axis == 0 && !o.length,
            LoopOutputKind::Reverse => false,
        });
        let fits = plain && forward && stacked && inputs.get(shape.iterables())?.iter().all(all);
        let body = node.regions.first()?.clone();
        fits.then_some(Walk { body, shape, inputs, known: HashMap::new(), cells: Vec::new() })
    }

    /// Writes everything; nothing where something does not fit.
    fn run(mut self, mut w: Writer<'_>, root: NodeId) -> Found<()> {
        let s = self.shape.clone();
        for (i, &v) in self.body.inputs.clone().iter().enumerate() {
            let class = match i.checked_sub(s.carried) {
                None => None,
                Some(k) if k < s.iterated.len() => {
                    self.inputs.get(s.iterables().start + k).map(|v| Class::Each(*v))
                }
                Some(k) => {
                    self.inputs.get(s.captures().start + k - s.iterated.len()).map(|v| Class::Fixed(*v))
                }
            };
            self.known.insert(v, class);
        }
        for i in 0..s.carried {
            self.cell(&mut w, i)?;
        }
        if self.cells.is_empty() {
            return Ok(None);
        }
        let mut results = Vec::new();
        for o in &s.outs {
            results.push(match o.kind {
                LoopOutputKind::LastValue => take!(self.last(o.index)),
                _ => {
                    let v = *take!(self.body.outputs.get(s.carried + o.index));
                    match self.class(&mut w, v)? {
                        Some(Class::Each(all)) => all,
                        _ => return Ok(None),
                    }
                }
            });
        }
        Ok(put(w.g, root, &results).then_some(()))
    }

    /// A carried value after the last trip.
    fn last(&self, i: usize) -> Option<ValueId> {
        self.cells.iter().find_map(|cell| match i {
            _ if cell.h == i => cell.last[0],
            _ if cell.c == Some(i) => cell.last[1],
            _ => None,
        })
    }

    fn producer(&self, v: ValueId) -> Option<&Node> {
        self.body.producer(v).map(|p| p.1).filter(|n| n.outputs.len() == 1)
    }

    /// The two inputs of an operator.
    fn pair(&self, v: ValueId, op: &str) -> Option<[ValueId; 2]> {
        let n = self.producer(v).filter(|n| n.op.is(op))?;
        Some([input(n, 0)?, input(n, 1)?])
    }

    fn single(&self, v: ValueId, op: &str) -> Option<ValueId> {
        self.producer(v).filter(|n| n.op.is(op)).and_then(|n| input(n, 0))
    }

    /// A value by what it is made of, written if it has to be.
    fn class(&mut self, w: &mut Writer<'_>, v: ValueId) -> Found<Class> {
        if let Some(known) = self.known.get(&v) {
            return Ok(*known);
        }
        // What depends on itself depends on a state.
        self.known.insert(v, None);
        let made = self.make(w, v)?;
        self.known.insert(v, made);
        Ok(made)
    }

    fn make(&mut self, w: &mut Writer<'_>, v: ValueId) -> Found<Class> {
        if let Some(weight) = self.body.weight(v) {
            let name = w.g.unique_name(&self.body.value(v).name);
            return Ok(Some(Class::Fixed(w.g.add_weight(&name, weight.clone()))));
        }
        let node = take!(self.producer(v)).clone();
        if !node.regions.is_empty()
            || !node.op.def().traits.must_alias.is_empty()
            || node.op.def().traits.random
        {
            return Ok(None);
        }
        let (mut given, mut varies) = (Vec::new(), false);
        for (i, x) in node.inputs.iter().enumerate() {
            let Some(x) = x else {
                given.push(None);
                continue;
            };
            let class = take!(self.class(w, *x)?);
            given.push(Some(match class {
                Class::Fixed(x) => x,
                Class::Each(all) => {
                    if !self.follows(&node, i, *x, v) {
                        return Ok(None);
                    }
                    varies = true;
                    all
                }
            }));
        }
        let y = w.node(node.op.name(), node.op.attrs().clone(), &given)?;
        Ok(Some(if varies { Class::Each(y) } else { Class::Fixed(y) }))
    }

    /// May input `i` of a layer get a further first dimension, so that its result gets it, too?
    fn follows(&self, node: &Node, i: usize, x: ValueId, y: ValueId) -> bool {
        let rank = |v: ValueId| self.body.ty(v).rank();
        let attrs = node.op.attrs();
        match node.op.name() {
            _ if node.op.is_pointwise() => rank(x) == rank(y),
            "matmul" => {
                let matrix = input(node, 1).is_some_and(|m| rank(m) == 2 && self.fixed(m));
                i == 0 && rank(x) >= 2 && matrix && attrs.bool("trans_a") == Ok(false)
            }
            "gather" => i == 1 && attrs.int("axis") == Ok(0) && attrs.int("batch_dims") == Ok(0),
            _ => false,
        }
    }

    fn fixed(&self, v: ValueId) -> bool {
        matches!(self.known.get(&v), Some(Some(Class::Fixed(_)))) || self.body.weight(v).is_some()
    }

    /// The cell whose new state is carried value `i`, if it is one.
    fn cell(&mut self, w: &mut Writer<'_>, i: usize) -> Found<()> {
        let (h, old) = (take!(self.body.outputs.get(i).copied()), take!(self.body.inputs.get(i).copied()));
        let ty = self.body.ty(old);
        let size = ty.dims.get(1).and_then(Dim::as_const).filter(|_| ty.rank() == 2 && ty.dtype.is_float());
        let size = take!(size);
        if let Some((gates, c)) = self.lstm(h, old) {
            return self.write(w, "lstm", (i, Some(c)), size, &gates, Attrs::new());
        }
        if let Some(gates) = self.gru(h, old) {
            return self.write(
                w,
                "gru",
                (i, None),
                size,
                &gates,
                Attrs::new().with("linear_before_reset", true),
            );
        }
        for f in ["tanh", "relu"] {
            if let Some(sum) = self.single(h, f) {
                let attrs = Attrs::new().with("activations", Attr::Strs(vec![f.to_owned()]));
                return self.write(w, "rnn", (i, None), size, &[vec![sum]], attrs);
            }
        }
        Ok(None)
    }

    /// h = σ(o) tanh(c), c = σ(f) c₀ + σ(i) tanh(g): the sums i o f g, and which carried value c is.
    fn lstm(&self, h: ValueId, _old: ValueId) -> Option<(Vec<Vec<ValueId>>, usize)> {
        let two = |v: ValueId, op: &str| self.pair(v, op).map(|[a, b]| [[a, b], [b, a]]);
        two(h, "mul")?.into_iter().find_map(|[o, tanh]| {
            let (o, c) = (self.single(o, "sigmoid")?, self.single(tanh, "tanh")?);
            let at = self.body.outputs.get(..self.shape.carried)?.iter().position(|&v| v == c)?;
            let before = *self.body.inputs.get(at)?;
            two(c, "add")?.into_iter().find_map(|[keep, add]| {
                let f = two(keep, "mul")?.into_iter().find(|p| p[1] == before)?[0];
                let f = self.single(f, "sigmoid")?;
                two(add, "mul")?.into_iter().find_map(|[i, g]| {
                    let (i, g) = (self.single(i, "sigmoid")?, self.single(g, "tanh")?);
                    Some((vec![vec![i], vec![o], vec![f], vec![g]], at))
                })
            })
        })
    }

    /// h = (1 − z) n + z h₀, n = tanh(x + r y): the sums z, r, and x with y.
    fn gru(&self, h: ValueId, old: ValueId) -> Option<Vec<Vec<ValueId>>> {
        let two = |v: ValueId, op: &str| self.pair(v, op).map(|[a, b]| [[a, b], [b, a]]);
        two(h, "add")?.into_iter().find_map(|[new, keep]| {
            let gate = two(keep, "mul")?.into_iter().find(|p| p[1] == old)?[0];
            let n = two(new, "mul")?.into_iter().find_map(|[rest, n]| {
                let [one, z] = self.pair(rest, "sub")?;
                (z == gate && self.one(one)).then_some(n)
            })?;
            let (z, n) = (self.single(gate, "sigmoid")?, self.single(n, "tanh")?);
            two(n, "add")?.into_iter().find_map(|[x, product]| {
                two(product, "mul")?
                    .into_iter()
                    .find_map(|[r, y]| Some(vec![vec![z], vec![self.single(r, "sigmoid")?], vec![x, y]]))
            })
        })
    }

    fn one(&self, v: ValueId) -> bool {
        let t = self.body.weight(v).map(|w| &w.tensor).or_else(|| self.body.value(v).fact.as_const());
        t.is_some_and(|t: &Tensor| t.len() == 1 && t.scalar_f64() == Some(1.0))
    }

    /// The columns of a value that a slice along its last dimension gives.
    fn columns(&self, v: ValueId) -> Option<(ValueId, i64, i64)> {
        let n = self.producer(v).filter(|n| n.op.is("slice"))?;
        let ints = |i: usize| match input(n, i) {
            Some(v) => Some(
                self.body
                    .weight(v)
                    .map(|w| &w.tensor)
                    .or_else(|| self.body.value(v).fact.as_const())?
                    .to_i64(),
            ),
            None => None,
        };
        let x = input(n, 0)?;
        let (rank, all) = (self.body.ty(x).rank() as i64, self.body.ty(x).dims.last()?.as_const()?);
        let (&[from], &[to], &[axis]) = (&ints(1)?[..], &ints(2)?[..], &ints(3)?[..]) else { return None };
        let step = if input(n, 4).is_some() { ints(4)? } else { vec![1] };
        let fits = (axis == rank - 1 || axis == -1) && step == [1] && (0..=all).contains(&from) && from <= to;
        fits.then_some((x, from, to.min(all) - from))
    }

    /// The terms of a sum, of these columns.
    fn terms(
        &mut self,
        w: &mut Writer<'_>,
        state: ValueId,
        v: ValueId,
        (from, width): (i64, i64),
        out: &mut Vec<Term>,
    ) -> Found<()> {
        if out.len() > 16 {
            return Ok(None);
        }
        if let Some((x, start, n)) = self.columns(v) {
            return match from + width <= n {
                true => self.terms(w, state, x, (start + from, width), out),
                false => Ok(None),
            };
        }
        if let Some([a, b]) = self.pair(v, "add") {
            let last = |v: ValueId| self.body.ty(v).dims.last().cloned();
            if last(a) != last(v) || last(b) != last(v) {
                return Ok(None);
            }
            take!(self.terms(w, state, a, (from, width), out)?);
            return self.terms(w, state, b, (from, width), out);
        }
        let what = match self.producer(v).filter(|n| n.op.is("matmul")).cloned() {
            Some(n) => {
                let (a, m) = (take!(input(&n, 0)), take!(input(&n, 1)));
                let attrs = n.op.attrs();
                if attrs.bool("trans_a") != Ok(false)
                    || self.body.ty(m).rank() != 2
                    || self.body.ty(a).rank() != 2
                {
                    return Ok(None);
                }
                let across = attrs.bool("trans_b") == Ok(true);
                let Some(Class::Fixed(m)) = self.class(w, m)? else { return Ok(None) };
                match a == state {
                    true => What::State(m, across),
                    false => match self.class(w, a)? {
                        Some(Class::Each(all)) => What::Input(all, m, across),
                        _ => return Ok(None),
                    },
                }
            }
            None => match self.class(w, v)? {
                Some(Class::Fixed(b)) if w.g.ty(b).rank() == 1 => What::Bias(b),
                _ => return Ok(None),
            },
        };
        out.push(Term { what, from, width });
        Ok(Some(()))
    }

    /// Writes a recurrent operator for these gates: each a sum, or the two sums of a product with the state behind a
    /// reset gate.
    fn write(
        &mut self,
        w: &mut Writer<'_>,
        op: &str,
        (h, c): (usize, Option<usize>),
        size: i64,
        gates: &[Vec<ValueId>],
        attrs: Attrs,
    ) -> Found<()> {
        let state = take!(self.body.inputs.get(h).copied());
        let (mut ws, mut rs, mut xb, mut hb, mut x) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), None);
        for sums in gates {
            let mut parts = Vec::new();
            for &v in sums {
                let mut terms = Vec::new();
                take!(self.terms(w, state, v, (0, size), &mut terms)?);
                parts.push(terms);
            }
            // Behind a reset gate the state's product must be alone with its bias.
            let apart = parts.len() == 2;
            let of_state = |t: &Term| matches!(t.what, What::State(..));
            let of_input = |t: &Term| matches!(t.what, What::Input(..));
            if apart && (parts[0].iter().any(of_state) || parts[1].iter().any(of_input)) {
                return Ok(None);
            }
            let (mut biases, mut late) = (Vec::new(), Vec::new());
            let (before, inputs) = (rs.len(), ws.len());
            for (k, t) in parts.iter().enumerate().flat_map(|(k, p)| p.iter().map(move |t| (k, t))) {
                match t.what {
                    What::State(m, across) => rs.push(rows(w, m, across, t)?),
                    What::Input(all, m, across) => {
                        if x.is_some_and(|x| x != all) {
                            return Ok(None);
                        }
                        x = Some(all);
                        ws.push(rows(w, m, across, t)?);
                    }
                    What::Bias(b) => {
                        let b = slice(w, b, 0, t)?;
                        if apart && k == 1 { late.push(b) } else { biases.push(b) }
                    }
                }
            }
            if rs.len() != before + 1 || ws.len() != inputs + 1 {
                return Ok(None);
            }
            xb.push(biases);
            hb.push(late);
        }
        let x = take!(x);
        let dtype = w.g.ty(x).dtype;
        let zeros = |w: &mut Writer<'_>| -> Result<ValueId, IrError> {
            let zero = w.scalar(0.0, dtype)?;
            let shape = w.ints(&[size])?;
            w.op("expand", Attrs::new(), &[zero, shape])
        };
        let mut all = Vec::new();
        for part in xb.iter().chain(&hb) {
            let mut sum = None;
            for &b in part {
                sum = Some(match sum {
                    None => b,
                    Some(s) => w.op("add", Attrs::new(), &[s, b])?,
                });
            }
            all.push(match sum {
                Some(s) => s,
                None => zeros(w)?,
            });
        }
        let stack = |w: &mut Writer<'_>, parts: &[ValueId]| -> Result<ValueId, IrError> {
            let one = match parts {
                [one] => *one,
                _ => w.op("concat", Attrs::new().with("axis", 0i64), parts)?,
            };
            first(w, one)
        };
        let (weights, recurrent, bias) = (stack(w, &ws)?, stack(w, &rs)?, stack(w, &all)?);
        let start = self.shape.initials().start;
        let initial = |i: usize| self.inputs.get(start + i).copied();
        let h0 = first(w, take!(initial(h)))?;
        let mut inputs = vec![Some(x), Some(weights), Some(recurrent), Some(bias), None, Some(h0)];
        if let Some(c) = c {
            inputs.push(Some(first(w, take!(initial(c)))?));
        }
        let same = inputs.iter().flatten().all(|&v| w.g.ty(v).dtype == dtype) && w.g.ty(x).rank() == 3;
        if !same {
            return Ok(None);
        }
        let y = w.node(op, attrs, &inputs)?;
        let outputs = w.g.producer(y).map(|(_, n)| n.outputs.clone()).unwrap_or_default();
        let each = without(w, y, 1)?;
        let mut last = [None, None];
        for (to, &v) in last.iter_mut().zip(outputs.iter().skip(1)) {
            *to = Some(without(w, v, 0)?);
        }
        if let Some(&new) = self.body.outputs.get(h) {
            self.known.insert(new, Some(Class::Each(each)));
        }
        self.cells.push(Cell { h, c, last });
        Ok(Some(()))
    }
}

/// The rows of a gate of a matrix [columns, depth], or the columns of its transpose, as rows.
fn rows(w: &mut Writer<'_>, m: ValueId, across: bool, t: &Term) -> Result<ValueId, IrError> {
    let part = slice(w, m, i64::from(!across), t)?;
    match across {
        true => Ok(part),
        false => w.op("transpose", Attrs::new().with("perm", vec![1i64, 0]), &[part]),
    }
}

fn slice(w: &mut Writer<'_>, v: ValueId, axis: i64, t: &Term) -> Result<ValueId, IrError> {
    let whole = w.g.ty(v).dims.get(axis as usize).and_then(Dim::as_const) == Some(t.width);
    if whole && t.from == 0 {
        return Ok(v);
    }
    let bounds = [w.ints(&[t.from])?, w.ints(&[t.from + t.width])?, w.ints(&[axis])?];
    w.op("slice", Attrs::new(), &[v, bounds[0], bounds[1], bounds[2]])
}

/// With a first dimension of 1.
fn first(w: &mut Writer<'_>, v: ValueId) -> Result<ValueId, IrError> {
    let axes = w.ints(&[0])?;
    w.op("unsqueeze", Attrs::new(), &[v, axes])
}

/// Without a dimension of 1.
fn without(w: &mut Writer<'_>, v: ValueId, axis: i64) -> Result<ValueId, IrError> {
    let axes = w.ints(&[axis])?;
    w.op("squeeze", Attrs::new(), &[v, axes])
}

/// Puts values in the place of a node's outputs; not where one would stand for two outputs of the graph.
fn put(g: &mut Graph, root: NodeId, results: &[ValueId]) -> bool {
    let Some(old) = g.get(root).map(|n| n.outputs.clone()) else { return false };
    let taken = |k: usize, v: &ValueId| results.iter().take(k).any(|r| r == v) || g.producer(*v).is_none();
    let shared = results.iter().enumerate().any(|(k, v)| taken(k, v));
    let alike = old
        .iter()
        .zip(results)
        .all(|(a, b)| (g.ty(*a).dtype, g.ty(*a).rank()) == (g.ty(*b).dtype, g.ty(*b).rank()));
    if old.len() != results.len() || shared || !alike {
        return false;
    }
    for (&y, &new) in old.iter().zip(results) {
        let dims = g.ty(y).dims.clone();
        g.value_mut(new).fact.ty.dims = dims;
        g.replace_uses(y, new);
    }
    g.remove_node(root);
    for (&y, &new) in old.iter().zip(results) {
        let name = std::mem::take(&mut g.value_mut(y).name);
        g.value_mut(new).name = name;
    }
    true
}
