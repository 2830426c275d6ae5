//! A kernel's anchor at launch.

use crate::Dialect;
use crate::side::SideParams;
use crate::views::View;
use kiln_backend::launch::Condition;
use kiln_backend::{BackendError, Tactic};
use kiln_ir::infer::normalize_axis;
use kiln_ir::{Fact, Op};
use std::cell::Cell;

/// Context of a kernel's launch: the anchor with all shapes as numbers.
pub struct Cx<'a> {
    /// The anchor's operator; `None` in a region without one.
    pub op: Option<&'a Op>,
    /// Tactic that runs it.
    pub tactic: &'a Tactic,
    /// Facts of the anchor's inputs.
    pub inputs: Vec<Option<&'a Fact>>,
    /// Facts of the anchor's outputs.
    pub outputs: Vec<&'a Fact>,
    /// Do pointwise operators follow in the kernel?
    pub fused: bool,
    /// The rows of the result, where they have a side result.
    pub side: Option<SideParams>,
    /// Whether a condition of the run holds.
    pub holds: &'a dyn Fn(Condition) -> bool,
    /// Inputs that the kernel reads through moves, by position; empty where there are no moves.
    pub views: Vec<Option<View>>,
    /// Whether each output of the anchor has a reader, by position.
    pub wanted: Vec<bool>,
    /// Iterations that all loops of one thread may make in one launch; only [spans](Dialect::spans) end loops before.
    pub rounds: usize,
    /// Elements of output 0 that one thread of a map makes.
    pub lanes: usize,
    /// The language that the kernel is written in.
    pub dialect: &'static Dialect,
    /// Whether the kernel asked for a shape or contents that are not known.
    pub missed: Cell<bool>,
}

impl Cx<'_> {
    /// The operator.
    pub fn op(&self) -> Result<&Op, BackendError> {
        self.op.ok_or_else(|| BackendError::Internal("no anchor".into()))
    }

    fn numbers(&self, f: Option<&Fact>, what: &str, i: usize) -> Result<Vec<usize>, BackendError> {
        f.and_then(|f| f.ty.static_dims()).ok_or_else(|| self.missing(&format!("the shape of {what} {i}")))
    }

    fn missing(&self, what: &str) -> BackendError {
        self.missed.set(true);
        BackendError::Internal(format!("{what} is not known at launch"))
    }

    /// The shape of an input.
    pub fn shape(&self, i: usize) -> Result<Vec<usize>, BackendError> {
        self.numbers(self.inputs.get(i).copied().flatten(), "input", i)
    }

    /// The shape of an output.
    pub fn out_shape(&self, j: usize) -> Result<Vec<usize>, BackendError> {
        self.numbers(self.outputs.get(j).copied(), "output", j)
    }

    /// The attribute "axis" as a position among this many dimensions.
    pub fn axis(&self, rank: usize) -> Result<usize, BackendError> {
        let op_error = |e: kiln_ir::OpError| BackendError::InvalidArgument(e.to_string());
        normalize_axis(self.op()?.attrs().int("axis").map_err(op_error)?, rank, "axis").map_err(op_error)
    }

    /// Whether the kernel counts positions in its first input in 64 bits.
    pub fn far(&self) -> bool {
        kiln_backend::limits::is_far(self.tactic)
    }

    /// Whether loops are cut into spans.
    pub fn cut(&self) -> bool {
        self.dialect.spans.is_some()
    }

    /// Whether the input is present.
    pub fn has(&self, i: usize) -> bool {
        self.inputs.get(i).is_some_and(Option::is_some)
    }

    /// Whether the input is a weight, as a word.
    pub fn constant(&self, i: usize) -> usize {
        usize::from((self.holds)(Condition::Weight(i as u32)))
    }

    /// Whether the run begins with the input, as a word: no kernel of the run writes it.
    pub fn given(&self, i: usize) -> usize {
        usize::from((self.holds)(Condition::Given(i as u32)))
    }

    /// Whether output `j` shares its memory with input `i`.
    pub fn aliased(&self, i: usize, j: usize) -> bool {
        (self.holds)(Condition::Aliased(i as u32, j as u32))
    }

    /// Offsets and strides of an input's elements in the memory that is bound for it.
    pub fn view(&self, i: usize) -> Result<View, BackendError> {
        match self.views.get(i) {
            Some(Some(v)) => Ok(v.clone()),
            _ => Ok(View::whole(&self.shape(i)?)),
        }
    }

    /// Contents of a host input, if it is there.
    pub fn ints(&self, i: usize) -> Result<Option<Vec<i64>>, BackendError> {
        match self.inputs.get(i).copied().flatten() {
            None => Ok(None),
            Some(f) => Ok(Some(self.content(f, i)?.to_i64())),
        }
    }

    /// Contents of a host input of floats, if it is there.
    pub fn floats(&self, i: usize) -> Result<Option<Vec<f64>>, BackendError> {
        match self.inputs.get(i).copied().flatten() {
            None => Ok(None),
            Some(f) => Ok(Some(self.content(f, i)?.to_f64())),
        }
    }

    fn content<'f>(&self, f: &'f Fact, i: usize) -> Result<&'f kiln_ir::Tensor, BackendError> {
        f.as_const().ok_or_else(|| self.missing(&format!("input {i}")))
    }
}
