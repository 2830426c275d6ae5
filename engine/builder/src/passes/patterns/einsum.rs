//! An einsum that is one matrix product of a batch: transposes, where its operands need any, and `matmul`.

use super::matmul_flags::swaps_last;
use super::view::{View, input};
use super::{Rule, Writer};
use kiln_ir::{Attrs, IrError, NodeId, ValueId};
use kiln_ops::matmul::MATMUL;
use kiln_ops::matmul::einsum::EINSUM;

pub struct Einsum {
    operands: [Operand; 2],
    /// The order of the product's axes in the result, if it is another.
    perm: Option<Vec<usize>>,
}

/// An operand as [batch.., rows, columns], but for a flag of the product.
struct Operand {
    x: ValueId,
    perm: Option<Vec<usize>>,
    flag: bool,
}

impl Operand {
    /// Operand with labels `own` in the order `wanted`.
    fn of(x: ValueId, own: &[u8], wanted: &[u8]) -> Option<Operand> {
        let perm = order(own, wanted)?;
        if perm.is_sorted() {
            return Some(Operand { x, perm: None, flag: false });
        }
        if swaps_last(&perm) {
            return Some(Operand { x, perm: None, flag: true });
        }
        // The last axis stays where it is if that is possible: such transposes are cheaper.
        let n = perm.len() - 2;
        if perm[n] + 1 == perm.len() {
            let mut perm = perm;
            perm.swap(n, n + 1);
            return Some(Operand { x, perm: Some(perm), flag: true });
        }
        Some(Operand { x, perm: Some(perm), flag: false })
    }
}

impl Rule for Einsum {
    const NAME: &'static str = "einsum";

    fn find(view: &View<'_>, root: NodeId) -> Option<Einsum> {
        let node = view.g.get(root).filter(|n| n.op.is(EINSUM) && n.inputs.len() == 2)?;
        let (x, y) = (input(node, 0)?, input(node, 1)?);
        let text: String = node.op.attrs().str("equation").ok()?.split_whitespace().collect();
        let (left, out) = text.split_once("->")?;
        let (a, b) = left.split_once(',')?;
        let [a, b, out] = [a, b, out].map(labels);
        let (a, b, out) = (a?, b?, out?);
        let ranks = [(x, &a), (y, &b)].iter().all(|(v, l)| view.g.ty(*v).rank() == l.len());
        let same = |l: u8| {
            let at =
                |v: ValueId, own: &[u8]| own.iter().position(|&o| o == l).and_then(|i| view.dims(v).get(i));
            at(x, &a).is_none_or(|d| at(y, &b).is_none_or(|e| d == e))
        };
        if !ranks || !a.iter().all(|&l| same(l)) || !out.iter().all(|l| a.contains(l) || b.contains(l)) {
            return None;
        }
        let batch: Vec<u8> = out.iter().copied().filter(|l| a.contains(l) && b.contains(l)).collect();
        let only = |of: &[u8], other: &[u8], kept: bool| {
            let mut all = of.iter().filter(|l| other.contains(l) != kept && out.contains(l) == kept);
            all.next().copied().filter(|_| all.next().is_none())
        };
        // Rows, columns, and what is summed over: one label each.
        let (m, n, k) = (only(&a, &b, true)?, only(&b, &a, true)?, only(&a, &b, false)?);
        if [a.len(), b.len(), out.len()] != [batch.len() + 2; 3] {
            return None;
        }
        let with = |pair: [u8; 2]| [&batch[..], &pair].concat();
        let operands = [Operand::of(x, &a, &with([m, k]))?, Operand::of(y, &b, &with([k, n]))?];
        let perm = order(&with([m, n]), &out).filter(|p| !p.is_sorted());
        Some(Einsum { operands, perm })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let mut inputs = Vec::new();
        let mut attrs = Attrs::new();
        for (o, name) in self.operands.iter().zip(["trans_a", "trans_b"]) {
            inputs.push(match &o.perm {
                Some(perm) => w.transpose(o.x, perm)?,
                None => o.x,
            });
            if o.flag {
                attrs.set(name, true);
            }
        }
        let mut y = w.op(MATMUL, attrs, &inputs)?;
        if let Some(perm) = &self.perm {
            y = w.transpose(y, perm)?;
        }
        Ok(w.replace(root, y))
    }
}

/// Letters, each once.
fn labels(text: &str) -> Option<Vec<u8>> {
    let all: Vec<u8> = text.bytes().collect();
    let once = |i: usize| all[i].is_ascii_alphabetic() && !all[..i].contains(&all[i]);
    (0..all.len()).all(once).then_some(all)
}

/// Position of each wanted label among the own ones.
fn order(own: &[u8], wanted: &[u8]) -> Option<Vec<usize>> {
    wanted.iter().map(|w| own.iter().position(|o| o == w)).collect()
}
