//! Functions of one tensor, element by element.

use crate::pointwise;
use kiln_ir::attr::Attrs;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::expr::{Builder, Expr, UnOp};
use kiln_ir::op::{OpDef, Roles, Tolerance, Traits, input};

/// `exp`, `sqrt`, `neg` and so on, of the named scalar function.
macro_rules! unary {
    ($name:expr, $op:ident, $types:expr, $tol:ident, $doc:literal) => {
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

const PERIODIC: Roles = Roles { periodic: true, ..Roles::NONE };
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

kiln_ir::op_names! {
    NEG = "neg",
    ABS = "abs",
    SIGN = "sign",
    FLOOR = "floor",
    CEIL = "ceil",
    ROUND = "round",
    TRUNC = "trunc",
    SQRT = "sqrt",
    RECIP = "recip",
    EXP = "exp",
    LOG = "log",
    SIN = "sin",
    COS = "cos",
    TAN = "tan",
    ASIN = "asin",
    ACOS = "acos",
    ATAN = "atan",
    SINH = "sinh",
    COSH = "cosh",
    TANH = "tanh",
    ASINH = "asinh",
    ACOSH = "acosh",
    ATANH = "atanh",
    ERF = "erf",
    ISNAN = "isnan",
    BIT_NOT = "bit_not",
    NOT = "not",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[
    unary!(NEG, Neg, NUMBERS, Exact, "−x. Integers wrap."),
    unary!(ABS, Abs, NUMBERS, Exact, "|x|. Integers wrap."),
    unary!(SIGN, Sign, NUMBERS, Exact, "−1, 0 or 1; NaN stays NaN."),
    unary!(FLOOR, Floor, FLOATS, Exact, "Rounds down."),
    unary!(CEIL, Ceil, FLOATS, Exact, "Rounds up."),
    unary!(ROUND, Round, FLOATS, Exact, "Rounds to the nearest integer, ties to even."),
    unary!(TRUNC, Trunc, FLOATS, Exact, "Rounds toward zero."),
    unary!(SQRT, Sqrt, FLOATS, Elementwise, "Square root; NaN below zero."),
    unary!(RECIP, Recip, FLOATS, Elementwise, "1/x."),
    unary!(EXP, Exp, FLOATS, Transcendental, "eˣ."),
    unary!(LOG, Log, FLOATS, Transcendental, "Natural logarithm; NaN below zero."),
    OpDef { roles: PERIODIC, ..unary!(SIN, Sin, FLOATS, Transcendental, "Sine of x in radians.") },
    OpDef { roles: PERIODIC, ..unary!(COS, Cos, FLOATS, Transcendental, "Cosine of x in radians.") },
    unary!(TAN, Tan, FLOATS, Transcendental, "Tangent of x in radians."),
    unary!(ASIN, Asin, FLOATS, Transcendental, "Arc sine; NaN outside [−1, 1]."),
    unary!(ACOS, Acos, FLOATS, Transcendental, "Arc cosine; NaN outside [−1, 1]."),
    unary!(ATAN, Atan, FLOATS, Transcendental, "Arc tangent."),
    unary!(SINH, Sinh, FLOATS, Transcendental, "Hyperbolic sine."),
    unary!(COSH, Cosh, FLOATS, Transcendental, "Hyperbolic cosine."),
    unary!(TANH, Tanh, FLOATS, Transcendental, "Hyperbolic tangent."),
    unary!(ASINH, Asinh, FLOATS, Transcendental, "Inverse hyperbolic sine."),
    unary!(ACOSH, Acosh, FLOATS, Transcendental, "Inverse hyperbolic cosine; NaN below 1."),
    unary!(ATANH, Atanh, FLOATS, Transcendental, "Inverse hyperbolic tangent; NaN outside [−1, 1]."),
    unary!(ERF, Erf, FLOATS, Transcendental, "Error function 2/√π ∫₀ˣ e^(−t²) dt."),
    unary!(ISNAN, IsNan, FLOATS, Exact, "Is the element NaN? Gives bool."),
    unary!(BIT_NOT, BitNot, INTS, Exact, "Bitwise complement."),
    OpDef {
        name: NOT,
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
        problems: |rng| pointwise::problems(NOT, 1, &[DType::Bool], rng),
    },
];
