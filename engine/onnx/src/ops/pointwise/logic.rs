//! Comparisons, truth values and choice.

use kiln_ir::Attrs;

use crate::ops::Operator;
use crate::ops::pointwise::arithmetic::two;

/// The operators of this family.
#[linkme::distributed_slice(crate::ops::ONNX_FAMILIES)]
static OPS: &[Operator] = &[
    Operator::new("And", &[1, 7], |cx| two(cx, "and")),
    Operator::new("Equal", &[1, 7, 11, 13, 19], |cx| two(cx, "equal")),
    Operator::new("Greater", &[1, 7, 9, 13], |cx| two(cx, "greater")),
    Operator::new("GreaterOrEqual", &[12, 16], |cx| two(cx, "greater_equal")),
    Operator::new("Less", &[1, 7, 9, 13], |cx| two(cx, "less")),
    Operator::new("LessOrEqual", &[12, 16], |cx| two(cx, "less_equal")),
    Operator::new("Not", &[1], |cx| {
        let x = cx.input(0)?;
        Ok(vec![cx.un("not", x)?])
    }),
    Operator::new("Or", &[1, 7], |cx| two(cx, "or")),
    Operator::new("Where", &[9, 16], |cx| {
        let (cond, a, b) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
        Ok(vec![cx.layer("select", Attrs::new(), &[Some(cond), Some(a), Some(b)])?])
    }),
    Operator::new("Xor", &[1, 7], |cx| two(cx, "xor")),
];
