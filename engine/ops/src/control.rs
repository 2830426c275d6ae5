//! `loop`, `if`: structured control flow. Their bodies are the regions of the node, so inference and the oracle work
//! on nodes of a graph ([`kiln_ir::graph`]); an operator alone has neither.

use crate::util::PLAIN;
use kiln_ir::attr::Attr;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx};
pub use kiln_ir::op::{IF, LOOP};
use kiln_ir::op::{OpDef, Roles, Tolerance, attr, variadic};
use kiln_ir::tensor::Tensor;

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[
    OpDef {
        name: LOOP,
        doc: "Runs a body n times. Inputs in order: the iteration count (one integer), if `count`; the initial values of \
              `carried` values; one tensor for each of `iter_axes`, cut along that axis; one length (one integer) for \
              each output with `out_length` 1; `body_captures` values that the body reads unchanged; the rest is \
              captured by the condition. Region 0, the body: carried values, one element (the axis dropped) for each \
              iterated tensor, captures → the next carried values, then one value for each output that is not `last`. \
              Region 1, with `while` only: carried values, captures → one bool, asked before every iteration. n is the least \
              iteration that the count (negative: 0) or the condition refuses. Element i of an iterated tensor is number i, \
              or count−1−i where `iter_reverse` is 1; one outside the tensor is an error. Outputs by `out_kinds`: \
              `last`, carried value number `out_index` after n iterations; `concat` and `reverse`, the values of body output \
              number `out_index` (after the carried ones) along a new axis `out_axes`, in this or the opposite order. \
              With a length the axis has that length: shorter than n is an error, entries beyond n are zero. Without, \
              it is n.",
        inputs: &[variadic("inputs")],
        outputs: &[],
        attrs: &[
            attr("count", || Attr::Bool(false)),
            attr("while", || Attr::Bool(false)),
            attr("carried", || Attr::Int(0)),
            attr("iter_axes", || Attr::Ints(Vec::new())),
            attr("iter_reverse", || Attr::Ints(Vec::new())),
            attr("body_captures", || Attr::Int(0)),
            attr("out_kinds", || Attr::Strs(Vec::new())),
            attr("out_index", || Attr::Ints(Vec::new())),
            attr("out_axes", || Attr::Ints(Vec::new())),
            attr("out_length", || Attr::Ints(Vec::new())),
        ],
        infer: no_regions_infer,
        eval: no_regions_eval,
        roles: Roles { control: true, ..Roles::NONE },
        tolerance: Tolerance::Conditioned,
        ..PLAIN
    },
    OpDef {
        name: IF,
        doc: "Runs one of two bodies. Inputs in order: the condition (one bool); `then_captures` values that region 0 \
              reads; the rest is captured by region 1. Region 0 runs if the condition is true, region 1 otherwise. Both \
              have as many outputs, of the same types; where their dimensions differ those of the result are known on \
              the device only, and their ranks may differ only if the condition is a constant.",
        inputs: &[variadic("inputs")],
        outputs: &[],
        attrs: &[attr("then_captures", || Attr::Int(0))],
        infer: no_regions_infer,
        eval: no_regions_eval,
        roles: Roles { control: true, ..Roles::NONE },
        tolerance: Tolerance::Conditioned,
        ..PLAIN
    },
];

fn no_regions() -> OpError {
    OpError::Unsupported("control flow without its regions; work on the node of a graph instead".into())
}

fn no_regions_infer(_: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    Err(no_regions())
}

fn no_regions_eval(_: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    Err(no_regions())
}
