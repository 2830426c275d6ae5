//! Functions of one tensor, element by element.

use crate::pointwise;
use kiln_ir::attr::Attrs;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::expr::{Builder, Expr, UnOp};
use kiln_ir::op::{OpDef, Roles, Tolerance, Traits, input};

/// `exp`, `sqrt`, `neg` and so on, of the named scalar function.
macro_rules! unary {
    ($name:literal, $op:ident, $types:expr, $tol:ident, $doc:literal) => {
        OpDef {
            name: $name,
            doc: $doc,
            inputs: &[input("x")],
            outputs: &["y"],
            attrs: &[],
            infer: pointwise::infer,
            eval: pointwise::eval,
            ranges: None,
            expr: Some(|_, t| simple(UnOp::$op, $types, t)),
            traits: Traits::PURE,
            roles: Roles::NONE,
            tolerance: Tolerance::$tol,
            problems: |rng| pointwise::problems($name, 1, $types, rng),
        }
    };
}

const FLOATS: &[DType] = &[DType::F32, DType::F16, DType::BF16];
const NUMBERS: &[DType] =
    &[DType::F32, DType::F16, DType::BF16, DType::I8, DType::U8, DType::I32, DType::I64];
const INTS: &[DType] = &[DType::I8, DType::U8, DType::I32, DType::I64];

fn simple(op: UnOp, allowed: &[DType], t: &[DType]) -> Result<Expr, OpError> {
    check(0, t, allowed)?;
    let mut b = Builder::new(t);
    let x = b.load(0);
    let y = b.un(op, x);
    let ty = if matches!(op, UnOp::IsNan | UnOp::IsInf) { DType::Bool } else { t[0] };
    Ok(b.finish(y, ty))
}

/// Refuses a type that is not in the list.
pub fn check(i: usize, t: &[DType], allowed: &[DType]) -> Result<(), OpError> {
    if allowed.contains(&t[i]) {
        return Ok(());
    }
    let wanted = allowed.iter().map(|d| d.name()).collect::<Vec<_>>().join(", ");
    Err(OpError::DType { input: i, found: t[i], wanted })
}

fn logical_not(_: &Attrs, t: &[DType]) -> Result<Expr, OpError> {
    simple(UnOp::Not, &[DType::Bool], t)
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[
    unary!("neg", Neg, NUMBERS, Exact, "−x. Integers wrap."),
    unary!("abs", Abs, NUMBERS, Exact, "|x|. Integers wrap."),
    unary!("sign", Sign, NUMBERS, Exact, "−1, 0 or 1; NaN stays NaN."),
    unary!("floor", Floor, FLOATS, Exact, "Rounds down."),
    unary!("ceil", Ceil, FLOATS, Exact, "Rounds up."),
    unary!("round", Round, FLOATS, Exact, "Rounds to the nearest integer, ties to even."),
    unary!("trunc", Trunc, FLOATS, Exact, "Rounds toward zero."),
    unary!("sqrt", Sqrt, FLOATS, Elementwise, "Square root; NaN below zero."),
    unary!("recip", Recip, FLOATS, Elementwise, "1/x."),
    unary!("exp", Exp, FLOATS, Transcendental, "eˣ."),
    unary!("log", Log, FLOATS, Transcendental, "Natural logarithm; NaN below zero."),
    unary!("sin", Sin, FLOATS, Transcendental, "Sine of x in radians."),
    unary!("cos", Cos, FLOATS, Transcendental, "Cosine of x in radians."),
    unary!("tan", Tan, FLOATS, Transcendental, "Tangent of x in radians."),
    unary!("asin", Asin, FLOATS, Transcendental, "Arc sine; NaN outside [−1, 1]."),
    unary!("acos", Acos, FLOATS, Transcendental, "Arc cosine; NaN outside [−1, 1]."),
    unary!("atan", Atan, FLOATS, Transcendental, "Arc tangent."),
    unary!("sinh", Sinh, FLOATS, Transcendental, "Hyperbolic sine."),
    unary!("cosh", Cosh, FLOATS, Transcendental, "Hyperbolic cosine."),
    unary!("tanh", Tanh, FLOATS, Transcendental, "Hyperbolic tangent."),
    unary!("asinh", Asinh, FLOATS, Transcendental, "Inverse hyperbolic sine."),
    unary!("acosh", Acosh, FLOATS, Transcendental, "Inverse hyperbolic cosine; NaN below 1."),
    unary!("atanh", Atanh, FLOATS, Transcendental, "Inverse hyperbolic tangent; NaN outside [−1, 1]."),
    unary!("erf", Erf, FLOATS, Transcendental, "Error function 2/√π ∫₀ˣ e^(−t²) dt."),
    unary!("isnan", IsNan, FLOATS, Exact, "Is the element NaN? Gives bool."),
    unary!("bit_not", BitNot, INTS, Exact, "Bitwise complement."),
    OpDef {
        name: "not",
        doc: "Logical not of bool.",
        inputs: &[input("x")],
        outputs: &["y"],
        attrs: &[],
        infer: pointwise::infer,
        eval: pointwise::eval,
        ranges: None,
        expr: Some(logical_not),
        traits: Traits::PURE,
        roles: Roles::NONE,
        tolerance: Tolerance::Exact,
        problems: |rng| pointwise::problems("not", 1, &[DType::Bool], rng),
    },
];
