//! An einsum that is one matrix product of a batch: `matmul`, with transposes where its operands need any, and reshapes where rows,
//! columns or what is summed over are several labels or none.

use super::matmul_flags::swaps_last;
use super::view::{View, input};
use super::{Rule, Writer};
use kiln_ir::{Attrs, Dim, IrError, NodeId, ValueId};
use kiln_ops::matmul::MATMUL;
use kiln_ops::matmul::einsum::EINSUM;

pub struct Einsum {
    operands: [Operand; 2],
    /// The product's sizes before its axes are ordered, if they are others than those of its matrices.
    split: Option<Vec<i64>>,
    /// The order of the product's axes in the result, if it is another.
    perm: Option<Vec<usize>>,
}

/// An operand as [batch.., rows, columns], but for a flag of the product.
struct Operand {
    x: ValueId,
    perm: Option<Vec<usize>>,
    /// Sizes after the transpose, where labels are joined or missing.
    joined: Option<Vec<i64>>,
    flag: bool,
}

impl Operand {
    /// Operand with labels `own` in the order of batch, rows and columns.
    fn of(x: ValueId, own: &[u8], [batch, rows, columns]: [&[u8]; 3], size: Size<'_>) -> Option<Operand> {
        let perm = order(own, &[batch, rows, columns].concat())?;
        if rows.len() != 1 || columns.len() != 1 {
            let swapped = order(own, &[batch, columns, rows].concat())?;
            let flag = !perm.is_sorted() && swapped.is_sorted();
            let pair = if flag { [columns, rows] } else { [rows, columns] };
            let mut joined: Vec<i64> = batch.iter().map(|&l| size(l)).collect();
            joined.extend(pair.map(|group| volume(group, size)));
            let one = joined.iter().filter(|&&n| n < 0).count() <= 1;
            let perm = Some(perm).filter(|p| !flag && !p.is_sorted());
            return one.then_some(Operand { x, perm, joined: Some(joined), flag });
        }
        let (joined, n) = (None, batch.len());
        if perm.is_sorted() {
            return Some(Operand { x, perm: None, joined, flag: false });
        }
        if swaps_last(&perm) {
            return Some(Operand { x, perm: None, joined, flag: true });
        }
        // The last axis stays where it is if that is possible: such transposes are cheaper.
        let mut perm = perm;
        let flag = perm[n] + 1 == perm.len();
        if flag {
            perm.swap(n, n + 1);
        }
        Some(Operand { x, perm: Some(perm), joined, flag })
    }
}

/// The size of a label; -1 if it is not a number.
type Size<'a> = &'a dyn Fn(u8) -> i64;

/// The elements of a group of labels; -1 if a size is not a number.
fn volume(group: &[u8], size: Size<'_>) -> i64 {
    let mut sizes = group.iter().map(|&l| Some(size(l)).filter(|&n| n >= 0));
    sizes.try_fold(1i64, |all, n| all.checked_mul(n?)).unwrap_or(-1)
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
        let dim = |v: ValueId, own: &[u8], l: u8| -> Option<&Dim> {
            own.iter().position(|&o| o == l).and_then(|i| view.dims(v).get(i))
        };
        let ranks = [(x, &a), (y, &b)].iter().all(|(v, l)| view.g.ty(*v).rank() == l.len());
        let same = |l: u8| dim(x, &a, l).is_none_or(|d| dim(y, &b, l).is_none_or(|e| d == e));
        if !ranks || !a.iter().all(|&l| same(l)) || !out.iter().all(|l| a.contains(l) || b.contains(l)) {
            return None;
        }
        let size = |l: u8| dim(x, &a, l).or(dim(y, &b, l)).and_then(Dim::as_const).unwrap_or(-1);
        let of = |all: &[u8], f: &dyn Fn(&u8) -> bool| all.iter().copied().filter(f).collect::<Vec<u8>>();
        let batch = of(&out, &|l| a.contains(l) && b.contains(l));
        // Rows, columns, and what is summed over.
        let (m, n) = (of(&out, &|l| !b.contains(l)), of(&out, &|l| !a.contains(l)));
        let k = of(&a, &|l| b.contains(l) && !out.contains(l));
        // Labels of one operand alone that the result lacks are sums before the product.
        let summed = |own: &[u8]| own.iter().all(|l| batch.contains(l) || k.contains(l) || out.contains(l));
        let volumes = [volume(&m, &size), volume(&n, &size), volume(&k, &size)];
        if !summed(&a)
            || !summed(&b)
            || (m.is_empty() && n.is_empty())
            || k.is_empty()
            || volumes.contains(&0)
        {
            return None;
        }
        let operands =
            [Operand::of(x, &a, [&batch, &m, &k], &size)?, Operand::of(y, &b, [&batch, &k, &n], &size)?];
        let product = [&batch[..], &m, &n].concat();
        let perm = order(&product, &out).filter(|p| !p.is_sorted());
        let split =
            (m.len() != 1 || n.len() != 1).then(|| product.iter().map(|&l| size(l)).collect::<Vec<i64>>());
        let one = split.iter().flatten().filter(|&&n| n < 0).count() <= 1;
        let batched = split.is_none() || batch.iter().all(|&l| size(l) != 0);
        (one && batched).then_some(Einsum { operands, split, perm })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let mut inputs = Vec::new();
        let mut attrs = Attrs::new();
        for (o, name) in self.operands.iter().zip(["trans_a", "trans_b"]) {
            let mut x = match &o.perm {
                Some(perm) => w.transpose(o.x, perm)?,
                None => o.x,
            };
            if let Some(joined) = &o.joined {
                x = w.reshape(x, joined)?;
            }
            inputs.push(x);
            if o.flag {
                attrs.set(name, true);
            }
        }
        let mut y = w.op(MATMUL, attrs, &inputs)?;
        if let Some(split) = &self.split {
            y = w.reshape(y, split)?;
        }
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
