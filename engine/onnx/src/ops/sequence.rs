//! Sequences and optional values, as far as they are known when a model is imported.

use super::Handler;

/// The operators of this family.
pub(super) const OPS: &[(&str, Handler)] = &[
    ("ConcatFromSequence", |cx| cx.list_node()),
    ("Optional", |cx| cx.list_node()),
    ("OptionalGetElement", |cx| cx.list_node()),
    ("OptionalHasElement", |cx| cx.list_node()),
    ("SequenceAt", |cx| cx.list_node()),
    ("SequenceConstruct", |cx| cx.list_node()),
    ("SequenceEmpty", |cx| cx.list_node()),
    ("SequenceErase", |cx| cx.list_node()),
    ("SequenceInsert", |cx| cx.list_node()),
    ("SequenceLength", |cx| cx.list_node()),
    ("SplitToSequence", |cx| cx.list_node()),
];
