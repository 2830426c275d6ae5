//! Sequences and optional values, as far as they are known when a model is imported.

use crate::ops::Operator;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
pub(crate) static OPS: &[Operator] = &[
    Operator::new("ConcatFromSequence", &[11], |cx| cx.list_node()),
    Operator::new("Optional", &[15, 28], |cx| cx.list_node()),
    Operator::new("OptionalGetElement", &[15, 18, 28], |cx| cx.list_node()),
    Operator::new("OptionalHasElement", &[15, 18, 28], |cx| cx.list_node()),
    Operator::new("SequenceAt", &[11], |cx| cx.list_node()),
    Operator::new("SequenceConstruct", &[11], |cx| cx.list_node()),
    Operator::new("SequenceEmpty", &[11], |cx| cx.list_node()),
    Operator::new("SequenceErase", &[11], |cx| cx.list_node()),
    Operator::new("SequenceInsert", &[11], |cx| cx.list_node()),
    Operator::new("SequenceLength", &[11], |cx| cx.list_node()),
    Operator::new("SplitToSequence", &[11, 24], |cx| cx.list_node()),
];
