//! The chain between the softmax and the second product.

use super::super::view::{View, input};
use super::parts::folds;
use super::scores::filled;
use kiln_ir::{DType, NodeId, ValueId};
use kiln_ops::cast::{CAST, IDENTITY};
use kiln_ops::pointwise::binary::{EQUAL, GREATER};
use kiln_ops::pointwise::select::SELECT;
use kiln_ops::pointwise::unary::{ISNAN, NOT};
use kiln_ops::reduce::REDUCE;
use kiln_ops::softmax::SOFTMAX;

/// A softmax over keys, what guards it, and what it reads.
pub struct Weights {
    /// Left operand of the second product.
    pub value: ValueId,
    /// Input of the softmax.
    pub scores: ValueId,
    /// Probabilities that are NaN are taken as 0.
    pub zero_nan: bool,
    /// All probabilities of a row without keys are taken as 0.
    pub zero_empty: bool,
    /// The values on the way that have the layout of scores.
    pub levels: Vec<ValueId>,
}

/// Layers of a chain, at most.
const LONG: usize = 12;

impl Weights {
    /// Follows a value to its softmax.
    pub fn of(view: &View<'_>, value: ValueId, inside: &mut Vec<NodeId>) -> Option<Weights> {
        let mut found =
            Weights { value, scores: value, zero_nan: false, zero_empty: false, levels: Vec::new() };
        let mut at = value;
        for _ in 0..LONG {
            let (id, node) = view.g.producer(at)?;
            inside.push(id);
            found.levels.push(at);
            match node.op.id() {
                SOFTMAX => {
                    let rank = view.g.ty(at).rank() as i64;
                    let axis = node.op.attrs().int("axis").ok()?;
                    found.scores = input(node, 0)?;
                    return (axis == -1 || axis == rank - 1).then_some(found);
                }
                CAST if view.g.ty(at).dtype.is_float() => at = input(node, 0)?,
                SELECT => {
                    let (cond, a, b) = (input(node, 0)?, input(node, 1)?, input(node, 2)?);
                    let zero = |v: ValueId| filled(view, v) == Some(0.0);
                    let (drops, own) = if zero(a) { (true, b) } else { (false, a) };
                    if !(drops || zero(b)) || view.dims(own) != view.dims(at) {
                        return None;
                    }
                    let mut nodes = Vec::new();
                    match tested(view, cond, own, drops, &mut nodes)? {
                        Test::Nan => found.zero_nan = true,
                        Test::Empty => found.zero_empty = true,
                    }
                    inside.extend(nodes);
                    at = own;
                }
                _ => at = folds(view, node)?,
            }
            if !view.g.ty(at).dtype.is_float() {
                return None;
            }
        }
        None
    }
}

enum Test {
    /// A probability is NaN.
    Nan,
    /// All scores of a row are −∞.
    Empty,
}

/// Test that a condition makes of probabilities, or of the scores under them. `drops`: probabilities are
/// dropped where it is true, otherwise where it is false.
fn tested(
    view: &View<'_>,
    cond: ValueId,
    own: ValueId,
    drops: bool,
    nodes: &mut Vec<NodeId>,
) -> Option<Test> {
    if let Some((id, n)) = view.made_by(cond, ISNAN).filter(|_| drops)
        && input(n, 0)? == own
    {
        nodes.push(id);
        return Some(Test::Nan);
    }
    let mut scores = own;
    while let Some((_, n)) = view.made_by(scores, CAST) {
        scores = input(n, 0)?;
    }
    let (_, softmax) = view.made_by(scores, SOFTMAX)?;
    let truth = truth(view, cond, input(softmax, 0)?, LONG, nodes)?;
    (truth == Truth { of_row: true, hidden: drops }).then_some(Test::Empty)
}

/// Meaning of a value that is true, or not 0.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Truth {
    /// Whether it is about a whole row, not about one score.
    of_row: bool,
    /// One score, or all scores of the row, are −∞; otherwise one, or any of the row, is not.
    hidden: bool,
}

/// The meaning of a value that is computed from the scores alone.
fn truth(view: &View<'_>, v: ValueId, scores: ValueId, far: usize, nodes: &mut Vec<NodeId>) -> Option<Truth> {
    let far = far.checked_sub(1)?;
    let (id, n) = view.g.producer(v)?;
    nodes.push(id);
    let x = input(n, 0)?;
    match n.op.id() {
        EQUAL => {
            let y = input(n, 1)?;
            let of_scores =
                |a: ValueId, b: ValueId| a == scores && filled(view, b) == Some(f64::NEG_INFINITY);
            if of_scores(x, y) || of_scores(y, x) {
                return Some(Truth { of_row: false, hidden: true });
            }
            let t = truth(view, x, scores, far, nodes)?;
            (number(view, y)? == 0.0).then_some(Truth { hidden: !t.hidden, ..t })
        }
        GREATER => {
            let t = truth(view, x, scores, far, nodes)?;
            (number(view, input(n, 1)?)? == 0.0).then_some(t)
        }
        NOT => {
            let t = truth(view, x, scores, far, nodes)?;
            Some(Truth { hidden: !t.hidden, ..t })
        }
        CAST | IDENTITY => truth(view, x, scores, far, nodes),
        REDUCE => {
            let t = truth(view, x, scores, far, nodes).filter(|t| !t.of_row)?;
            let rank = view.g.ty(x).rank();
            // All are hidden, or any is not: the least and the greatest. Counts stay within what their type holds exactly.
            let kinds: &[&str] = if t.hidden { &["min", "prod"] } else { &["max", "sum"] };
            let sums = |k: &&&str| {
                **k != "sum" || matches!(view.g.ty(x).dtype, DType::I32 | DType::I64 | DType::F32)
            };
            let mut kinds = kinds.iter().filter(sums);
            kinds.any(|k| view.reduced(n, k) == Some(vec![rank - 1])).then_some(Truth { of_row: true, ..t })
        }
        _ => None,
    }
}

/// The number in a constant of one element, of any type.
fn number(view: &View<'_>, v: ValueId) -> Option<f64> {
    let t = &view.g.weight(v)?.tensor;
    (t.len() == 1).then(|| t.to_f64().first().copied()).flatten()
}
