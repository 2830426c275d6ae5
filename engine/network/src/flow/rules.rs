//! The boundary layers of loops and the types of what they give.

use super::{Boundary, TripLimitKind};
use crate::ids::LoopId;
use crate::{Body, LayerDef};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::graph::extent;
use kiln_ir::graph::{LoopOutputKind, ValueId};
use kiln_ir::infer::{Fact, differ};
use kiln_ir::ty::TensorType;

/// Limits the iterations of a loop.
#[derive(Clone, Debug)]
pub struct TripLimit {
    pub(crate) of: LoopId,
    pub(crate) kind: TripLimitKind,
}

/// Yields element i of a tensor along an axis in iteration i, the axis dropped.
#[derive(Clone, Debug)]
pub struct LoopIterator {
    pub(crate) of: LoopId,
    pub axis: usize,
    pub reverse: bool,
}

/// A value carried from iteration to iteration: input 0 before the first iteration, then what input 1 was in the iteration before.
#[derive(Clone, Debug)]
pub struct Recurrence {
    pub(crate) of: LoopId,
    pub(crate) varying: Vec<usize>,
}

/// A result of a loop.
#[derive(Clone, Debug)]
pub struct LoopOutput {
    pub(crate) of: LoopId,
    pub(crate) kind: LoopOutputKind,
    pub axis: usize,
    pub(crate) exact: bool,
    /// The number of iterations that an exact length is, as far as it is known.
    pub(crate) iterations: Option<Dim>,
}

macro_rules! getters {
    ($($kind:ty { $($(#[$doc:meta])* $name:ident: $t:ty,)* })*) => {$(
        impl $kind { $($(#[$doc])* pub fn $name(&self) -> $t { self.$name.clone() })* }
    )*};
}
getters! {
    TripLimit {
        /// The loop that it belongs to.
        of: LoopId,
        /// Count or while.
        kind: TripLimitKind,
    }
    LoopIterator {
        /// The loop that it belongs to.
        of: LoopId,
        /// The axis.
        axis: usize,
        /// Whether the last element is the first.
        reverse: bool,
    }
    Recurrence {
        /// The loop that it belongs to.
        of: LoopId,
        /// The axes whose length an iteration may change.
        varying: Vec<usize>,
    }
    LoopOutput {
        /// The loop that it belongs to.
        of: LoopId,
        /// Kind of output.
        kind: LoopOutputKind,
        /// Position of the new axis.
        axis: usize,
    }
}

/// Refuses an input that is not a scalar of these types.
pub(super) fn scalar(b: &Body<'_>, i: usize, ok: fn(DType) -> bool, wanted: &str) -> Result<(), OpError> {
    b.check_dtype(i, ok, wanted)?;
    b.check_rank(i, |r| r == 0, "no dimensions (a scalar)").map(drop)
}

fn is_count(d: DType) -> bool {
    matches!(d, DType::I32 | DType::I64)
}

impl LayerDef for TripLimit {
    fn kind(&self) -> &'static str {
        "trip_limit"
    }
    fn boundary(&self) -> Option<Boundary> {
        Some(Boundary::TripLimit(self.clone()))
    }
    fn expand(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        match self.kind {
            TripLimitKind::Count => scalar(b, 0, is_count, "i32 or i64, the number of iterations")?,
            TripLimitKind::While => scalar(b, 0, |d| d == DType::Bool, "bool")?,
        }
        Ok(Vec::new())
    }
}

impl LayerDef for LoopIterator {
    fn kind(&self) -> &'static str {
        "iterator"
    }
    fn boundary(&self) -> Option<Boundary> {
        Some(Boundary::Iterator(self.clone()))
    }
    fn expand(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let mut ty = b.ty(b.x(0)?).clone();
        if self.axis >= ty.rank() {
            return Err(b.bad_shape(0, &format!("a dimension {} to iterate over", self.axis)));
        }
        ty.dims.remove(self.axis);
        Ok(vec![b.outside("element", Fact::of(ty))])
    }
}

impl LayerDef for Recurrence {
    fn kind(&self) -> &'static str {
        "recurrence"
    }
    fn max_inputs(&self) -> usize {
        2
    }
    fn boundary(&self) -> Option<Boundary> {
        Some(Boundary::Recurrence(self.clone()))
    }
    fn expand(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let mut ty = b.ty(b.x(0)?).clone();
        for &axis in &self.varying {
            let name = format!("{}.d{axis}", b.layer());
            let missing = || b.bad_shape(0, &format!("a dimension {axis}, which may vary"));
            *ty.dims.get_mut(axis).ok_or_else(missing)? = Dim::device(name, None);
        }
        if b.has(1) {
            self.check_next(b, &ty)?;
        }
        Ok(vec![b.outside("value", Fact::of(ty))])
    }
}

impl Recurrence {
    /// The next value has the type of the first, but for dimensions that may vary.
    fn check_next(&self, b: &Body<'_>, ty: &TensorType) -> Result<(), OpError> {
        let next = b.ty(b.x(1)?);
        let same = |(i, (a, b)): (usize, (&Dim, &Dim))| self.varying.contains(&i) || !differ(a, b);
        let fits = next.dtype == ty.dtype
            && next.rank() == ty.rank()
            && ty.dims.iter().zip(&next.dims).enumerate().all(same);
        if fits {
            return Ok(());
        }
        Err(OpError::Mismatch {
            a: ty.to_string(),
            b: next.to_string(),
            wanted: "the first and the next value of a recurrence have the same type and dimensions; allow \
                     dimensions to change with set_varying"
                .into(),
        })
    }
}

impl LoopOutput {
    /// Kind of output with so many inputs: a length turns a last value into a concatenation.
    pub(crate) fn kind_given(&self, inputs: usize) -> LoopOutputKind {
        match self.kind {
            LoopOutputKind::LastValue if inputs > 1 => LoopOutputKind::Concatenate,
            kind => kind,
        }
    }
}

impl LayerDef for LoopOutput {
    fn kind(&self) -> &'static str {
        "loop_output"
    }
    fn max_inputs(&self) -> usize {
        2
    }
    fn boundary(&self) -> Option<Boundary> {
        Some(Boundary::LoopOutput(self.clone()))
    }
    fn expand(&self, b: &mut Body<'_>) -> Result<Vec<ValueId>, OpError> {
        let mut ty = b.ty(b.x(0)?).clone();
        if self.kind_given(b.len()) == LoopOutputKind::LastValue {
            return Ok(vec![b.outside("last", Fact::of(ty))]);
        }
        if self.axis > ty.rank() {
            let found = self.axis.to_string();
            let wanted = format!("at most {}, the rank of what is concatenated", ty.rank());
            return Err(OpError::Attr { name: "axis".into(), found, wanted });
        }
        let own = format!("{}.length", b.layer());
        let length = match (b.opt(1), &self.iterations) {
            (Some(v), _) => {
                scalar(b, 1, is_count, "i32 or i64, the length of the new dimension")?;
                extent(&own, b.fact(v))
            }
            (None, Some(iterations)) => iterations.clone(),
            (None, None) => Dim::device(own, None),
        };
        ty.dims.insert(self.axis, length);
        Ok(vec![b.outside("all", Fact::of(ty))])
    }
}
