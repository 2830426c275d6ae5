//! The chain between the first product and the softmax as cap(scale·product) under one mask.
//!
//! The chain is followed from the softmax to the product as a list of steps. The steps are then put together
//! from the product on. Factors multiply into the scale, the cap and the mask; a cap comes before any mask;
//! masks are summed. Choices between scores and a number select within the sum. A number that a sum would not
//! reach is the operator's own `hidden_score`, which exists for one choice without further terms.

use super::super::Writer;
use super::super::view::{View, input};
use super::operands::{Heads, unfolded};
use super::parts::{factor, folds, reshape};
use kiln_ir::{Attrs, DType, Dim, IrError, NodeId, Tensor, ValueId};
use kiln_ops::cast::{CAST, IDENTITY};
use kiln_ops::matmul::MATMUL;
use kiln_ops::pointwise::binary::{ADD, AND, DIV, MAX, MUL, SUB};
use kiln_ops::pointwise::select::SELECT;
use kiln_ops::pointwise::unary::{NEG, NOT, TANH};
use kiln_ops::shape::RESHAPE;
use kiln_ops::shape::expand::EXPAND;
use kiln_ops::shape::squeeze::{SQUEEZE, UNSQUEEZE};

/// A number at which a sum with a score is the number, in f64 as in f32.
pub const HIDES: f64 = -1e30;
/// Layers between product and softmax, at most.
const LONG: usize = 12;
/// Elements of a constant that is looked through for a triangle, at most.
pub const MOST: usize = 1 << 24;
/// Bytes of a constant that is looked through for one number, at most.
const MOST_BYTES: usize = 1 << 28;

/// Scores as attention computes them.
pub struct Scores {
    /// Input of the softmax.
    pub value: ValueId,
    /// The first product.
    pub product: ValueId,
    /// The factor of the product.
    pub scale: f64,
    /// Cap of the scaled product.
    pub cap: Option<f64>,
    /// The values on the way that have the layout of scores.
    pub levels: Vec<ValueId>,
    terms: Vec<Term>,
}

/// Step from capped scores to the softmax.
enum Term {
    /// Added, or subtracted, at a rank of the scores.
    Add {
        v: ValueId,
        minus: bool,
        rank: usize,
    },
    /// The number goes where the condition is not `keep`.
    Hide {
        cond: ValueId,
        keep: bool,
        number: f64,
        rank: usize,
    },
    /// At least this.
    Floor(f64),
    Times(f64),
}

enum Step {
    Factor(f64),
    Tanh,
    Narrow,
    Term(Term),
    Nothing,
}

/// The mask as far as it is known: what the terms so far come to.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    None,
    /// A condition: what is false is −∞.
    Keeps,
    /// A condition: what is false is this.
    Hides(f64),
    /// Added.
    Float,
}

impl Scores {
    /// Follows what a softmax reads to a product.
    pub fn of(view: &View<'_>, value: ValueId, inside: &mut Vec<NodeId>) -> Option<Scores> {
        let mut steps = Vec::new();
        let product = walk(view, value, LONG, true, &mut steps)?;
        let mut found =
            Scores { value, product, scale: 1.0, cap: None, levels: vec![product], terms: Vec::new() };
        for (id, level, step) in steps.into_iter().rev() {
            inside.push(id);
            found.levels.push(level);
            found.push(step)?;
        }
        found.kind()?;
        Some(found)
    }

    fn push(&mut self, step: Step) -> Option<()> {
        match step {
            Step::Nothing => {}
            // A bias or mask may not fit into the narrower type.
            Step::Narrow => self.terms.is_empty().then_some(())?,
            Step::Tanh => {
                (self.terms.is_empty() && self.cap.is_none()).then_some(())?;
                self.cap = Some(1.0);
            }
            Step::Factor(f) => {
                self.scale *= f;
                if let Some(cap) = &mut self.cap {
                    *cap *= f;
                }
                if !self.terms.is_empty() {
                    self.terms.push(Term::Times(f));
                }
                (f > 0.0 || (self.cap.is_none() && self.terms.is_empty())).then_some(())?;
            }
            Step::Term(t) => self.terms.push(t),
        }
        Some(())
    }

    /// Mask form that the terms add up to; `None` where the operator has no exact form.
    fn kind(&self) -> Option<Kind> {
        self.terms.iter().try_fold(Kind::None, |kind, t| match (t, kind) {
            (Term::Times(f), Kind::Hides(x)) => Some(Kind::Hides(x * f)),
            (Term::Times(_), kind) => Some(kind),
            (Term::Hide { number, .. }, Kind::None | Kind::Keeps) if *number == f64::NEG_INFINITY => {
                Some(Kind::Keeps)
            }
            (Term::Hide { number, .. }, Kind::None) => number.is_finite().then_some(Kind::Hides(*number)),
            // A float mask holds earlier choices, as long as a sum with a score is the same as the choice.
            (_, Kind::Hides(x)) if x > HIDES => None,
            (Term::Add { .. }, _) => Some(Kind::Float),
            (Term::Hide { number: x, .. } | Term::Floor(x), _) => (*x <= HIDES).then_some(Kind::Float),
        })
    }

    /// The mask, if there is one alone: a summand, or a condition with the value for which scores stay and the number of the others.
    pub fn only_mask(&self) -> Option<(ValueId, Option<(bool, f64)>)> {
        match self.terms[..] {
            [Term::Add { v, minus: false, .. }] => Some((v, None)),
            [Term::Hide { cond, keep, number, .. }] => Some((cond, Some((keep, number)))),
            _ => None,
        }
    }

    /// The score of what the mask hides, if it is a number.
    pub fn hidden(&self) -> Option<f64> {
        match self.kind() {
            Some(Kind::Hides(x)) => Some(x),
            _ => None,
        }
    }

    /// Writes the mask.
    pub fn mask(&self, w: &mut Writer<'_>, dtype: DType, heads: &Heads) -> Result<Option<ValueId>, IrError> {
        let mut mask = Mask { kind: Kind::None, v: None };
        for t in &self.terms {
            mask = mask.with(t, w, heads)?;
        }
        match mask.v {
            Some(v) if mask.kind == Kind::Float => {
                let own = w.g.ty(v).dtype;
                Ok(Some(if own == dtype { v } else { w.in_type(v, DType::F32)? }))
            }
            v => Ok(v),
        }
    }

    /// Whether the mask stretches to the scores in all dimensions but the last, which must be theirs.
    pub fn mask_fits(&self, view: &View<'_>, heads: &Heads, scores: &[Dim]) -> bool {
        let mut all: Vec<Dim> = Vec::new();
        for t in &self.terms {
            let Some((v, rank)) = t.reads() else { continue };
            let Some(dims) = at_rank(view, v, rank, heads).map(|a| a.dims) else { return false };
            if dims.len() > scores.len() {
                return false;
            }
            while all.len() < dims.len() {
                all.insert(0, Dim::new(1));
            }
            let skip = all.len() - dims.len();
            for (to, d) in all[skip..].iter_mut().zip(dims) {
                if to.is(1) {
                    *to = d;
                } else if !d.is(1) && d != *to {
                    return false;
                }
            }
        }
        if self.kind() == Some(Kind::None) {
            return true;
        }
        let lead = scores.len() - all.len();
        let pairs = || all.iter().zip(&scores[lead..]);
        pairs().all(|(m, s)| m.is(1) || m == s) && pairs().next_back().is_some_and(|(m, s)| m == s)
    }
}

impl Term {
    /// The value that it reads, at which rank of the scores.
    fn reads(&self) -> Option<(ValueId, usize)> {
        match *self {
            Term::Add { v, rank, .. } | Term::Hide { cond: v, rank, .. } => Some((v, rank)),
            _ => None,
        }
    }
}

/// A mask in the making.
struct Mask {
    kind: Kind,
    v: Option<ValueId>,
}

impl Mask {
    fn with(self, t: &Term, w: &mut Writer<'_>, heads: &Heads) -> Result<Mask, IrError> {
        let value = |w: &mut Writer<'_>| match t.reads() {
            Some((v, rank)) => at_rank(&View::new(w.g), v, rank, heads).map(|a| (v, a)),
            None => None,
        };
        let read = match value(w) {
            Some((_, at)) => Some(at.write(w)?),
            None => None,
        };
        let float = |v| Ok(Mask { kind: Kind::Float, v: Some(v) });
        match (t, read) {
            (&Term::Hide { keep, number, .. }, Some(cond)) => {
                let hides = number != f64::NEG_INFINITY;
                if matches!(self.kind, Kind::None) || (self.kind == Kind::Keeps && !hides) {
                    let mut v = if keep { cond } else { w.op(NOT, Attrs::new(), &[cond])? };
                    if let Some(old) = self.v {
                        v = w.op(AND, Attrs::new(), &[old, v])?;
                    }
                    let kind = if hides { Kind::Hides(number) } else { Kind::Keeps };
                    return Ok(Mask { kind, v: Some(v) });
                }
                let old = self.float(w)?;
                let number = w.scalar(number, w.g.ty(old).dtype)?;
                let (yes, no) = if keep { (old, number) } else { (number, old) };
                float(w.op(SELECT, Attrs::new(), &[cond, yes, no])?)
            }
            (&Term::Add { minus, .. }, Some(v)) => {
                let v = if minus { w.op(NEG, Attrs::new(), &[v])? } else { v };
                if self.v.is_none() {
                    return float(v);
                }
                let old = self.float(w)?;
                let (a, b) = same_type(w, old, v)?;
                float(w.op(ADD, Attrs::new(), &[a, b])?)
            }
            (&Term::Floor(least), _) => {
                // Scores without a mask are not as small as this.
                if self.v.is_none() {
                    return Ok(self);
                }
                let old = self.float(w)?;
                let least = w.scalar(least, w.g.ty(old).dtype)?;
                float(w.op(MAX, Attrs::new(), &[old, least])?)
            }
            (&Term::Times(f), _) => match (self.kind, self.v) {
                (Kind::Float, Some(v)) => {
                    let f = w.scalar(f, w.g.ty(v).dtype)?;
                    float(w.op(MUL, Attrs::new(), &[v, f])?)
                }
                (Kind::Hides(x), v) => Ok(Mask { kind: Kind::Hides(x * f), v }),
                _ => Ok(self),
            },
            _ => Err(IrError::Structure("a mask of attention has another shape than before".into())),
        }
    }

    /// The mask as a summand, in f32 if it was a condition.
    fn float(self, w: &mut Writer<'_>) -> Result<ValueId, IrError> {
        let number = match self.kind {
            Kind::Keeps => f64::NEG_INFINITY,
            Kind::Hides(x) => x,
            _ => 0.0,
        };
        let (zero, number) = (w.scalar(0.0, DType::F32)?, w.scalar(number, DType::F32)?);
        match (self.kind, self.v) {
            (Kind::Float, Some(v)) => Ok(v),
            (_, Some(v)) => w.op(SELECT, Attrs::new(), &[v, zero, number]),
            (_, None) => Ok(zero),
        }
    }
}

fn same_type(w: &mut Writer<'_>, a: ValueId, b: ValueId) -> Result<(ValueId, ValueId), IrError> {
    if w.g.ty(a).dtype == w.g.ty(b).dtype {
        return Ok((a, b));
    }
    Ok((w.in_type(a, DType::F32)?, w.in_type(b, DType::F32)?))
}

/// A mask that is meant for scores of another rank, for those of attention.
struct AtRank {
    x: ValueId,
    how: How,
    dims: Vec<Dim>,
}

enum How {
    Plain,
    Reshape(Vec<i64>),
    /// Removal of this axis of 1.
    Squeeze(i64),
}

impl AtRank {
    fn write(&self, w: &mut Writer<'_>) -> Result<ValueId, IrError> {
        match &self.how {
            How::Plain => Ok(self.x),
            How::Reshape(shape) => reshape(w, self.x, shape),
            How::Squeeze(axis) => {
                let axes = w.ints(&[*axis])?;
                w.op(SQUEEZE, Attrs::new(), &[self.x, axes])
            }
        }
    }
}

fn at_rank(view: &View<'_>, v: ValueId, rank: usize, heads: &Heads) -> Option<AtRank> {
    let dims = view.dims(v).to_vec();
    let plain = |dims: Vec<Dim>| Some(AtRank { x: v, how: How::Plain, dims });
    let to = |target: Vec<Dim>| {
        let (x, shape) = unfolded(view, v, &target)?;
        let how = shape.map_or(How::Plain, How::Reshape);
        Some(AtRank { x, how, dims: target })
    };
    match (rank, heads.rank(), &dims[..]) {
        (from, to, _) if from == to => plain(dims),
        (3, 4, [] | [_] | [_, _]) => plain(dims),
        (3, 4, [one, _, _]) if one.is(1) => plain(dims),
        (3, 4, [_, s, t]) => to([&heads.lead[..], &[s.clone(), t.clone()]].concat()),
        (5, 4, [] | [_] | [_, _]) => plain(dims),
        (5, 4, [g, _, _]) if g.is(1) => plain(dims),
        (5, 4, [a, g, _, _]) if a.is(1) && g.is(1) => plain(dims),
        (5, 4, [b, a, g, s, t]) if a.is(1) && g.is(1) => {
            let dims = [b, a, s, t].map(Dim::clone).to_vec();
            Some(AtRank { x: v, how: How::Squeeze(2), dims })
        }
        (5, 4, [b, a, g, s, t]) if a.clone() * g.clone() == heads.lead[1] => {
            to(vec![b.clone(), a.clone() * g.clone(), s.clone(), t.clone()])
        }
        _ => None,
    }
}

/// The number that a value holds everywhere.
pub fn filled(view: &View<'_>, v: ValueId) -> Option<f64> {
    let mut at = v;
    for _ in 0..LONG {
        if let Some(w) = view.g.weight(at) {
            return Some(&w.tensor)
                .filter(|t| t.dtype().is_float())
                .and_then(uniform)
                .filter(|x| !x.is_nan());
        }
        let (_, n) = view.g.producer(at)?;
        matches!(n.op.id(), EXPAND | RESHAPE | UNSQUEEZE | SQUEEZE | IDENTITY).then_some(())?;
        at = input(n, 0)?;
    }
    None
}

/// The number that all elements of a tensor are, by their bytes.
pub fn uniform(t: &Tensor) -> Option<f64> {
    let (bytes, bits) = (t.bytes(), t.dtype().bits() as usize);
    if t.is_empty() || bits % 8 != 0 || bytes.len() > MOST_BYTES {
        return None;
    }
    let same = bytes[bits / 8..] == bytes[..bytes.len() - bits / 8];
    let one = || Tensor::from_bytes(t.dtype(), &[1], bytes[..bits / 8].to_vec());
    if same { one()?.to_f64().first().copied() } else { None }
}

/// The steps from a value to the product under it, the last one first. Values on the way are read once, but the first.
fn walk(
    view: &View<'_>,
    v: ValueId,
    far: usize,
    first: bool,
    steps: &mut Vec<(NodeId, ValueId, Step)>,
) -> Option<ValueId> {
    let (id, n) = view.g.producer(v)?;
    if n.op.is(MATMUL) {
        return Some(v);
    }
    let far = far.checked_sub(1)?;
    (first || view.read_once(v)).then_some(())?;
    let rank = view.g.ty(v).rank();
    let known = steps.len();
    // The scores among the operands, which must have the dimensions of the result.
    let mut follow = |x: ValueId, step: Step, moves: bool| {
        if !moves && view.dims(x) != view.dims(v) {
            return None;
        }
        steps.truncate(known);
        steps.push((id, v, step));
        walk(view, x, far, false, steps)
    };
    let all = || Some((input(n, 0)?, input(n, 1)?));
    match n.op.id() {
        MUL | DIV => {
            let (_, by, x) = factor(view, v)?;
            follow(x, Step::Factor(by), false)
        }
        TANH => follow(input(n, 0)?, Step::Tanh, false),
        CAST => {
            let x = input(n, 0)?;
            let (from, to) = (view.g.ty(x).dtype, view.g.ty(v).dtype);
            let wider = to == DType::F32 || from == to;
            follow(x, if wider { Step::Nothing } else { Step::Narrow }, false)
        }
        ADD => {
            let (a, b) = all()?;
            let term = |v| Step::Term(Term::Add { v, minus: false, rank });
            match follow(a, term(b), false) {
                Some(p) => Some(p),
                None => follow(b, term(a), false),
            }
        }
        SUB => {
            let (a, b) = all()?;
            follow(a, Step::Term(Term::Add { v: b, minus: true, rank }), false)
        }
        MAX => {
            let (a, b) = all()?;
            let (x, least) = match filled(view, b) {
                Some(least) => (a, least),
                None => (b, filled(view, a)?),
            };
            follow(x, Step::Term(Term::Floor(least)), false)
        }
        SELECT => {
            let (cond, a, b) = (input(n, 0)?, input(n, 1)?, input(n, 2)?);
            let (keep, x, number) = match filled(view, b) {
                Some(number) => (true, a, number),
                None => (false, b, filled(view, a)?),
            };
            follow(x, Step::Term(Term::Hide { cond, keep, number, rank }), false)
        }
        _ => follow(folds(view, n)?, Step::Nothing, true),
    }
}
