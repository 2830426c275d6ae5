//! Queries, keys and values of two products, brought to [batch, heads, length, size].

use super::super::Writer;
use super::super::view::{View, input};
use super::groups::Groups;
use super::parts::{Product, factor, folds, reshape, shape_of};
use kiln_ir::{Attrs, DType, Dim, IrError, NodeId, ValueId};
use kiln_ops::cast::CAST;
use kiln_ops::shape::squeeze::SQUEEZE;
use kiln_ops::transpose::TRANSPOSE;

/// Layers in front of a product that are looked through, at most.
const FAR: usize = 8;

/// An operand without the factors, casts and transposes in front of its product.
pub struct Peeled {
    x: ValueId,
    /// The order of axes that makes [.., length, size] of it.
    perm: Vec<usize>,
    /// Factor of the multiplication.
    pub factor: f64,
}

impl Peeled {
    /// Values: they are taken as they are.
    pub fn bare(view: &View<'_>, x: ValueId) -> Peeled {
        Peeled { x, perm: (0..view.g.ty(x).rank()).collect(), factor: 1.0 }
    }

    /// Queries, in the type of the values if they were widened.
    pub fn plain(view: &View<'_>, x: ValueId, kind: DType, inside: &mut Vec<NodeId>) -> Peeled {
        let mut found = Peeled::bare(view, x);
        for _ in 0..FAR {
            if !found.scaled(view, inside) && !found.widened(view, kind) {
                break;
            }
        }
        found
    }

    /// Keys as [.., keys, size]. Keys that are stored as [.., size, keys] are left to the product.
    pub fn keys(view: &View<'_>, p: &Product, kind: DType, inside: &mut Vec<NodeId>) -> Option<Peeled> {
        let mut found = Peeled::plain(view, p.b, kind, inside);
        if p.trans_b {
            return Some(found);
        }
        let n = found.perm.len().checked_sub(2)?;
        found.perm.swap(n, n + 1);
        let mut moved = false;
        for _ in 0..FAR {
            let done = found.perm.is_sorted();
            if done || !(found.moved(view)) {
                break;
            }
            moved = true;
            while found.scaled(view, inside) || found.widened(view, kind) {}
        }
        moved.then_some(found)
    }

    /// Takes a constant factor off, if nobody else reads the product with it.
    fn scaled(&mut self, view: &View<'_>, inside: &mut Vec<NodeId>) -> bool {
        let Some((id, by, x)) = factor(view, self.x).filter(|_| view.read_once(self.x)) else { return false };
        inside.push(id);
        (self.factor, self.x) = (self.factor * by, x);
        true
    }

    /// Takes a cast from the type of the values off.
    fn widened(&mut self, view: &View<'_>, kind: DType) -> bool {
        let cast = view.made_by(self.x, CAST).and_then(|(_, n)| input(n, 0));
        let Some(x) = cast.filter(|&x| view.g.ty(x).dtype == kind && widens(kind, view.g.ty(self.x).dtype))
        else {
            return false;
        };
        self.x = x;
        true
    }

    /// Takes a transpose off.
    fn moved(&mut self, view: &View<'_>) -> bool {
        let before = || {
            let (_, n) = view.made_by(self.x, TRANSPOSE)?;
            let order = view.perm(n)?;
            let perm = self.perm.iter().map(|&p| order.get(p).copied()).collect::<Option<Vec<_>>>()?;
            Some((input(n, 0)?, perm))
        };
        let Some((x, perm)) = before() else { return false };
        (self.x, self.perm) = (x, perm);
        true
    }

    fn dims(&self, view: &View<'_>) -> Vec<Dim> {
        self.perm.iter().map(|&p| view.dims(self.x)[p].clone()).collect()
    }
}

/// Whether a cast between these keeps every value.
fn widens(from: DType, to: DType) -> bool {
    matches!((from, to), (DType::F16 | DType::BF16, DType::F32))
}

/// Map from the leading dimensions of scores to those of attention.
pub struct Heads {
    /// Batch and heads, or both in one.
    pub lead: Vec<Dim>,
    /// Heads of keys, and queries of a group, where scores have both.
    split: Option<[Dim; 2]>,
}

impl Heads {
    /// Dimensions of values with the layout of scores. Where all have batch and heads in one dimension, what operands are reshapes
    /// of may know them apart.
    pub fn of(view: &View<'_>, levels: impl Iterator<Item = ValueId>, operands: &[&Peeled]) -> Option<Heads> {
        let mut lead = None;
        let mut split = None;
        for v in levels {
            let (own, parts) = match view.dims(v) {
                [bh, _, _] => (vec![bh.clone()], None),
                [b, h, _, _] => (vec![b.clone(), h.clone()], None),
                [b, a, g, _, _] => (vec![b.clone(), a.clone() * g.clone()], Some([a.clone(), g.clone()])),
                _ => return None,
            };
            if lead.as_ref().is_none_or(|l: &Vec<Dim>| l.len() < own.len()) {
                lead = Some(own);
            }
            split = split.or(parts);
        }
        let lead = lead?;
        let apart = || {
            operands.iter().find_map(|p| match view.dims(before(view, p.x)?) {
                [b, h, _, _] => Some(vec![b.clone(), h.clone()]),
                _ => None,
            })
        };
        let lead = if lead.len() == 1 { apart().unwrap_or(lead) } else { lead };
        Some(Heads { lead, split })
    }

    /// Dimensions of attention's operands.
    pub fn rank(&self) -> usize {
        self.lead.len() + 2
    }

    /// Queries, keys and values of this rank. Keys and values are of the fewest heads that serve both.
    pub fn operands(&self, view: &View<'_>, q: Peeled, k: Peeled, v: Peeled) -> Option<[Operand; 3]> {
        let q = self.plain(view, &q, false)?;
        let of = |p: &Peeled| [self.grouped(view, p), self.plain(view, p, true)];
        let (keys, values) = (of(&k), of(&v));
        let heads = |o: &Operand| o.dims.get(1).cloned();
        let pairs = keys.iter().flatten().flat_map(|k| values.iter().flatten().map(move |v| (k, v)));
        let (k, v) = pairs.into_iter().find(|(k, v)| self.lead.len() == 1 || heads(k) == heads(v))?;
        Some([q, k.clone(), v.clone()])
    }

    /// An operand whose heads are those of the scores, or (`shared`) those of the groups of five dimensions.
    fn plain(&self, view: &View<'_>, p: &Peeled, shared: bool) -> Option<Operand> {
        let dims = p.dims(view);
        if dims.len() == self.rank() {
            let perm = (!p.perm.is_sorted()).then(|| p.perm.clone());
            return Some(Operand { x: p.x, perm, shape: None, squeeze: None, dims, grouped: false });
        }
        p.perm.is_sorted().then_some(())?;
        let tail = &dims[dims.len() - 2..];
        let (target, grouped) = match (&dims[..dims.len() - 2], &self.split) {
            ([_], None) => ([&self.lead[..], tail].concat(), false),
            ([b, a, g], Some([heads, group])) => {
                let own = a == heads && (g == group || (shared && g.is(1)));
                own.then_some(())?;
                ([&[b.clone(), a.clone() * g.clone()], tail].concat(), g != group)
            }
            _ => return None,
        };
        if grouped {
            let squeeze = Some(2);
            return Some(Operand { x: p.x, perm: None, shape: None, squeeze, dims: target, grouped });
        }
        let (x, shape) = unfolded(view, p.x, &target)?;
        Some(Operand { x, perm: None, shape, squeeze: None, dims: target, grouped })
    }

    /// An operand whose heads were repeated.
    fn grouped(&self, view: &View<'_>, p: &Peeled) -> Option<Operand> {
        (self.lead.len() == 2 && p.perm.is_sorted()).then_some(())?;
        let source = match view.g.ty(p.x).rank() {
            3 => before(view, p.x)?,
            _ => p.x,
        };
        // Repeated heads are those of the scores.
        let all = match view.dims(source) {
            [_, h, _, _] => h.clone(),
            [_, a, g, _, _] => a.clone() * g.clone(),
            _ => return None,
        };
        let found = Groups::of(view, source).filter(|_| all == self.lead[1])?;
        let dims = found.dims(view);
        Some(Operand { x: found.x, perm: None, shape: None, squeeze: found.squeeze, dims, grouped: true })
    }
}

/// Source of a value's reshape that keeps the last two dimensions.
fn before(view: &View<'_>, v: ValueId) -> Option<ValueId> {
    folds(view, view.g.producer(v)?.1)
}

/// A value with these dimensions: what a value is a reshape of, or a reshape.
pub fn unfolded(view: &View<'_>, x: ValueId, target: &[Dim]) -> Option<(ValueId, Option<Vec<i64>>)> {
    if view.dims(x) == target {
        return Some((x, None));
    }
    match before(view, x).filter(|&s| view.dims(s) == target) {
        Some(s) => Some((s, None)),
        None => Some((x, Some(shape_of(view.dims(x), target)?))),
    }
}

/// Operand of attention, and how it is made of a value of the graph: a transpose, a reshape, or an axis of 1
/// left out.
#[derive(Clone)]
pub struct Operand {
    x: ValueId,
    perm: Option<Vec<usize>>,
    shape: Option<Vec<i64>>,
    squeeze: Option<usize>,
    /// Dimensions of the operand.
    pub dims: Vec<Dim>,
    /// Whether each of its heads serves a group of heads of queries.
    pub grouped: bool,
}

impl Operand {
    /// Element type of the operand.
    pub fn dtype(&self, view: &View<'_>) -> DType {
        view.g.ty(self.x).dtype
    }

    /// Writes it.
    pub fn write(&self, w: &mut Writer<'_>) -> Result<ValueId, IrError> {
        let mut x = self.x;
        if let Some(perm) = &self.perm {
            x = w.transpose(x, perm)?;
        }
        if let Some(shape) = &self.shape {
            x = reshape(w, x, shape)?;
        }
        if let Some(axis) = self.squeeze {
            let axes = w.ints(&[axis as i64])?;
            x = w.op(SQUEEZE, Attrs::new(), &[x, axes])?;
        }
        Ok(x)
    }
}
