//! The definition of control flow, element by element and on demand.
//!
//! Inside of a loop a tensor X is a sequence ⟨X₀, X₁, …⟩. An iterator is ⟨X\[0\], X\[1\], …⟩ on its axis, from the end
//! (element M−1−i, M the count) if reversed. A recurrence of x and Y is ⟨x, Y₀, Y₁, …⟩. Other layers apply per index; what
//! does not depend on the loop is the same at every index. The number of iterations n is the count (0 if negative), or the
//! least n whose condition is false, whichever is less. A last value is X_n; a concatenation is X₀ … X_{n−1} along a new
//! axis, padded by zeros to the length given, which must not be less than n; a reversed one X_{n−1} … X₀, padded at the
//! same end. A conditional is its first or its second value, and the other is never asked for.

use super::describe::{Description, What};
use kiln_ir::{Dim, Elems, Fact, Tensor, TensorType};
use kiln_network::{IfId, LoopId, LoopOutputKind, Network, TensorId};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Index of the wanted element of each loop's sequences; loops are numbered as they were added.
type Index = BTreeMap<usize, i64>;

/// One run of a network by the definition.
pub struct Spec<'a> {
    net: &'a Network,
    said: Description,
    numbers: HashMap<LoopId, usize>,
    /// The loops that each layer's elements may differ in.
    varies: Vec<BTreeSet<usize>>,
    given: HashMap<TensorId, Tensor>,
    known: HashMap<(usize, Vec<(usize, i64)>), Vec<Tensor>>,
    /// Names of the layers of operators that were computed, in the order in which they were asked for.
    pub ran: Vec<String>,
}

impl<'a> Spec<'a> {
    /// Reads a network; `inputs` are its inputs in order. An error for layers whose meaning is not given here: only
    /// operators of the graph and the layers of control flow have one.
    pub fn new(net: &'a Network, inputs: &[Tensor]) -> Result<Spec<'a>, String> {
        let said = Description::of(net)?;
        let mut numbers = HashMap::new();
        for layer in &said.layers {
            let of = match layer.what {
                What::Iterator { of, .. } | What::Recurrence { of } | What::Output { of, .. } => of,
                _ => continue,
            };
            let next = numbers.len();
            numbers.entry(of).or_insert(next);
        }
        let given = net.inputs().iter().copied().zip(inputs.iter().cloned()).collect();
        let varies = vec![BTreeSet::new(); said.layers.len()];
        let mut spec = Spec { net, said, numbers, varies, given, known: HashMap::new(), ran: Vec::new() };
        while (0..spec.varies.len()).fold(false, |changed, l| spec.spread(l) | changed) {}
        Ok(spec)
    }

    /// Adds the loops that a layer's operands vary in to its own. Returns whether there were more.
    fn spread(&mut self, l: usize) -> bool {
        let layer = &self.said.layers[l];
        let mut reads: Vec<TensorId> = layer.inputs.iter().flatten().copied().collect();
        let (mut own, mut left) = (None, None);
        match layer.what {
            What::Iterator { of, .. } | What::Recurrence { of } => own = Some(of),
            What::Output { of, .. } => left = Some(of),
            What::IfOutput { of } => reads.extend(self.said.conditions.get(&of)),
            _ => (),
        }
        let limits = own.or(left).and_then(|of| self.said.loops.get(&of));
        reads.extend(limits.into_iter().flat_map(|s| s.count.into_iter().chain(s.condition)));
        let mut all = self.varies[l].clone();
        all.extend(reads.iter().filter_map(|t| self.said.makers.get(t)).flat_map(|m| &self.varies[m.0]));
        all.extend(own.map(|of| self.numbers[&of]));
        if let Some(of) = left {
            all.remove(&self.numbers[&of]);
        }
        std::mem::replace(&mut self.varies[l], all.clone()) != all
    }

    /// The outputs of the network, in order.
    pub fn run(&mut self) -> Result<Vec<Tensor>, String> {
        let outputs = self.net.outputs().to_vec();
        outputs.into_iter().map(|t| self.tensor(t, &Index::new())).collect()
    }

    fn tensor(&mut self, t: TensorId, at: &Index) -> Result<Tensor, String> {
        if let Some(w) = self.net.weights(t) {
            return Ok(w.tensor.clone());
        }
        if let Some(x) = self.given.get(&t) {
            return Ok(x.clone());
        }
        let lost = || format!("nothing makes \"{}\"", self.net.tensor_name(t));
        let &(layer, output) = self.said.makers.get(&t).ok_or_else(lost)?;
        let key: Vec<(usize, i64)> =
            at.iter().filter(|(n, _)| self.varies[layer].contains(n)).map(|(&n, &i)| (n, i)).collect();
        if let Some(all) = self.known.get(&(layer, key.clone())) {
            return Ok(all[output].clone());
        }
        let made = self.layer(layer, at)?;
        let one = made.get(output).cloned().ok_or_else(|| "too few outputs".to_owned());
        self.known.insert((layer, key), made);
        one
    }

    fn layer(&mut self, l: usize, at: &Index) -> Result<Vec<Tensor>, String> {
        let layer = self.said.layers[l].clone();
        let input = |i: usize| {
            let unset = || format!("layer \"{}\" lacks input {i}", layer.name);
            layer.inputs.get(i).copied().flatten().ok_or_else(unset)
        };
        let one = match layer.what {
            What::Op(op) => {
                let ins = layer.inputs.iter().map(|t| t.map(|t| self.tensor(t, at)).transpose());
                let ins = ins.collect::<Result<Vec<_>, _>>()?;
                self.ran.push(layer.name.clone());
                return op.eval(&ins).map_err(|e| format!("{}: {e}", layer.name));
            }
            What::Limit | What::Condition => return Ok(Vec::new()),
            What::IfInput => self.tensor(input(0)?, at)?,
            What::IfOutput { of } => {
                let taken = usize::from(!self.truth(of, at)?);
                self.tensor(input(taken)?, at)?
            }
            What::Iterator { of, axis, reverse } => {
                let i =
                    at.get(&self.numbers[&of]).copied().ok_or("an element of a loop is asked for outside")?;
                let x = self.tensor(input(0)?, at)?;
                let i = if reverse { self.count(of, at)?.unwrap_or(0) - 1 - i } else { i };
                element(&x, axis, i)
                    .ok_or_else(|| format!("{}: no element {i} of axis {axis} of {}", layer.name, x.ty()))?
            }
            What::Recurrence { of } => {
                let n = self.numbers[&of];
                let i = at.get(&n).copied().ok_or("an element of a loop is asked for outside")?;
                match i {
                    0 => self.tensor(input(0)?, at)?,
                    _ => self.tensor(input(1)?, &with(at, n, i - 1))?,
                }
            }
            What::Output { of, kind, axis } => self.output(of, kind, axis, (input(0)?, input(1).ok()), at)?,
        };
        Ok(vec![one])
    }

    fn truth(&mut self, of: IfId, at: &Index) -> Result<bool, String> {
        let t = self.said.conditions.get(&of).copied().ok_or("a conditional without a condition")?;
        Ok(self.tensor(t, at)?.scalar_i64() == Some(1))
    }

    fn count(&mut self, of: LoopId, at: &Index) -> Result<Option<i64>, String> {
        let count = self.said.loops.get(&of).and_then(|l| l.count);
        let n = count.map(|t| self.tensor(t, at)).transpose()?;
        Ok(n.map(|t| t.scalar_i64().unwrap_or(0).max(0)))
    }

    /// The number of iterations.
    fn iterations(&mut self, of: LoopId, at: &Index) -> Result<i64, String> {
        let count = self.count(of, at)?;
        let Some(condition) = self.said.loops.get(&of).and_then(|l| l.condition) else {
            return count.ok_or_else(|| "a loop without an end".to_owned());
        };
        let number = self.numbers[&of];
        let mut n = 0;
        while count.is_none_or(|c| n < c)
            && self.tensor(condition, &with(at, number, n))?.scalar_i64() == Some(1)
        {
            n += 1;
        }
        Ok(n)
    }

    fn output(
        &mut self,
        of: LoopId,
        kind: LoopOutputKind,
        axis: usize,
        (value, length): (TensorId, Option<TensorId>),
        at: &Index,
    ) -> Result<Tensor, String> {
        let (n, number) = (self.iterations(of, at)?, self.numbers[&of]);
        // Earlier elements first, so that long recurrences are not gone down at once.
        let upto = if kind == LoopOutputKind::LastValue { n + 1 } else { n };
        let mut all = Vec::new();
        if kind != LoopOutputKind::LastValue {
            let name = self.said.loops.get(&of).map_or("", |l| l.name.as_str()).to_owned();
            let given = length.map(|t| self.tensor(t, at)).transpose()?.and_then(|t| t.scalar_i64());
            let length = given.unwrap_or(n);
            if length < n {
                return Err(format!("loop \"{name}\": length {length}, {n} iterations"));
            }
            for i in 0..upto {
                all.push(self.tensor(value, &with(at, number, i))?);
            }
            if kind == LoopOutputKind::Reverse {
                all.reverse();
            }
            let ty = match n {
                0 => self.fact(value, at, number)?.ty,
                _ => all[0].ty(),
            };
            return stacked(&all, axis, length as usize, &ty);
        }
        for i in 0..upto {
            all = vec![self.tensor(value, &with(at, number, i))?];
        }
        all.pop().ok_or_else(|| "no value".into())
    }
}

impl Spec<'_> {
    /// Facts that a tensor inside of a loop would have if there were an iteration. Lengths that only an
    /// iteration decides stay unknown.
    fn fact(&mut self, t: TensorId, at: &Index, inside: usize) -> Result<Fact, String> {
        // An index that varies only in loops that an element is asked of is known.
        let unknown =
            |m: &(usize, usize)| self.varies[m.0].iter().any(|n| *n == inside || !at.contains_key(n));
        let maker = self.said.makers.get(&t).copied().filter(unknown);
        let Some((l, output)) = maker else { return self.tensor(t, at).map(Fact::constant) };
        let layer = self.said.layers[l].clone();
        let mut facts = Vec::new();
        for (i, t) in layer.inputs.iter().enumerate() {
            // The next value of a recurrence is like the first.
            let back = matches!(layer.what, What::Recurrence { .. }) && i == 1;
            facts.push(t.filter(|_| !back).map(|t| self.fact(t, at, inside)).transpose()?);
        }
        let first = |i: usize| facts.get(i).cloned().flatten().ok_or("an input is missing");
        let one = match layer.what {
            What::Op(op) => {
                let made = op.infer(&facts, &layer.name).map_err(|e| format!("{}: {e}", layer.name))?;
                return made.into_iter().nth(output).ok_or_else(|| "too few outputs".into());
            }
            What::Limit | What::Condition => return Err("a limit has no value".into()),
            What::IfInput => first(0)?,
            What::Recurrence { .. } => Fact::of(first(0)?.ty),
            What::IfOutput { of } => {
                let asked =
                    self.said.conditions.get(&of).copied().ok_or("a conditional without a condition")?;
                let asked = self.fact(asked, at, inside)?.as_const().and_then(Tensor::scalar_i64);
                match asked {
                    Some(c) => first(usize::from(c == 0))?,
                    None => Fact::of(either(&first(0)?.ty, &first(1)?.ty, &layer.name)),
                }
            }
            What::Iterator { axis, .. } => {
                let mut ty = first(0)?.ty;
                ty.dims.remove(axis);
                Fact::of(ty)
            }
            What::Output { kind: LoopOutputKind::LastValue, .. } => first(0)?,
            What::Output { of, axis, .. } => {
                let limits = self.said.loops.get(&of).cloned().unwrap_or_default();
                let count = limits.count.filter(|_| limits.condition.is_none());
                let exact = count.map(|t| self.fact(t, at, inside)).transpose()?;
                let length = facts.get(1).cloned().flatten().or(exact);
                let length = length.and_then(|f| f.as_const()?.scalar_i64()).map(|n| Dim::new(n.max(0)));
                let mut ty = first(0)?.ty;
                ty.dims.insert(axis, length.unwrap_or_else(|| Dim::device(layer.name.clone(), None)));
                Fact::of(ty)
            }
        };
        Ok(one)
    }
}

/// The type of one of two values: lengths that differ are unknown.
fn either(a: &TensorType, b: &TensorType, name: &str) -> TensorType {
    let unknown = |i: usize| Dim::device(format!("{name}.{i}"), None);
    let dims = a.dims.iter().zip(&b.dims).enumerate();
    TensorType::new(a.dtype, dims.map(|(i, (a, b))| if a == b { a.clone() } else { unknown(i) }))
}

fn with(at: &Index, number: usize, i: i64) -> Index {
    let mut at = at.clone();
    at.insert(number, i);
    at
}

/// Elements before an axis, along it, and behind it.
fn parts(shape: &[usize], axis: usize) -> (usize, usize, usize) {
    (shape[..axis].iter().product(), shape[axis], shape[axis + 1..].iter().product())
}

/// Picks elements by their place: of each element of the result, which of the input, or none for zero.
fn picked(from: &Elems, n: usize, place: impl Fn(usize) -> Option<usize>) -> Elems {
    match from {
        Elems::F(v) => Elems::F((0..n).map(|i| place(i).map_or(0.0, |j| v[j])).collect()),
        Elems::I(v) => Elems::I((0..n).map(|i| place(i).map_or(0, |j| v[j])).collect()),
    }
}

fn element(x: &Tensor, axis: usize, i: i64) -> Option<Tensor> {
    let mut shape = x.shape().to_vec();
    let extent = *shape.get(axis)?;
    let i = usize::try_from(i).ok().filter(|&i| i < extent)?;
    let (_, len, inner) = parts(&shape, axis);
    shape.remove(axis);
    let place = |o: usize| Some((o / inner * len + i) * inner + o % inner);
    Tensor::from_elems(x.dtype(), &shape, &picked(&x.elems(), shape.iter().product(), place))
}

/// Stack of elements along an axis. Without an element the type decides the shape; lengths that it leaves
/// open are 0.
fn stacked(all: &[Tensor], axis: usize, length: usize, ty: &TensorType) -> Result<Tensor, String> {
    let dtype = ty.dtype;
    let mut shape: Vec<usize> = ty.dims.iter().map(|d| d.as_const().unwrap_or(0) as usize).collect();
    let one: usize = shape.iter().product();
    shape.insert(axis, length);
    let (_, _, inner) = parts(&shape, axis);
    let joined = if dtype.is_float() {
        Elems::F(all.iter().flat_map(Tensor::to_f64).collect())
    } else {
        Elems::I(all.iter().flat_map(Tensor::to_i64).collect())
    };
    if all.iter().any(|t| t.len() != one) {
        return Err("elements of a concatenation differ in shape".into());
    }
    let place = |o: usize| {
        let (row, iteration, rest) = (o / (inner * length), o / inner % length, o % inner);
        (iteration < all.len()).then(|| iteration * one + row * inner + rest)
    };
    let elems = picked(&joined, shape.iter().product(), place);
    Tensor::from_elems(dtype, &shape, &elems).ok_or_else(|| "no tensor".into())
}
