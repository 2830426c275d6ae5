//! Functions of two tensors, element by element, with numpy broadcasting. Both inputs have one type.

use super::unary::check;
use crate::pointwise;
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::expr::{BinOp, Builder, CmpOp, Expr};
use kiln_ir::infer::{Fact, InferCx};
use kiln_ir::op::{OpDef, OpName, Port, Roles, Tolerance, Traits, input};

const NUMBERS: &[DType] =
    &[DType::F32, DType::F16, DType::BF16, DType::I8, DType::U8, DType::I32, DType::I64];
const INTS: &[DType] = &[DType::I8, DType::U8, DType::I32, DType::I64];
const BOOL: &[DType] = &[DType::Bool];
const ANY: &[DType] =
    &[DType::F32, DType::F16, DType::BF16, DType::I8, DType::U8, DType::I32, DType::I64, DType::Bool];

type Infer = fn(&mut InferCx<'_>) -> Result<Vec<Fact>, OpError>;

const AB: &[Port] = &[input("a"), input("b")];

const fn def(
    name: OpName,
    doc: &'static str,
    tolerance: Tolerance,
    infer: Infer,
    expr: fn(&kiln_ir::Attrs, &[DType]) -> Result<Expr, OpError>,
    problems: fn(&mut kiln_ir::problem::Rng) -> Vec<kiln_ir::problem::Problem>,
) -> OpDef {
    OpDef {
        name,
        doc,
        inputs: AB,
        outputs: &["y"],
        attrs: &[],
        infer,
        eval: pointwise::eval,
        ranges: None,
        expr: Some(expr),
        traits: Traits::PURE,
        roles: Roles::NONE,
        tolerance,
        problems,
    }
}

macro_rules! binary {
    ($name:expr, $op:ident, $types:expr, $tol:ident, $infer:expr, $doc:literal) => {
        def(
            $name,
            $doc,
            Tolerance::$tol,
            $infer,
            |_, t| two(t, $types, |b, x, y| b.bin(BinOp::$op, x, y), t[0]),
            |rng| pointwise::problems($name, 2, $types, rng),
        )
    };
}

macro_rules! compare {
    ($name:expr, $op:ident, $types:expr, $doc:literal) => {
        def(
            $name,
            $doc,
            Tolerance::Exact,
            |cx| pointwise::infer_compare(cx, |a, b| certain(CmpOp::$op, a, b)),
            |_, t| two(t, $types, |b, x, y| b.cmp(CmpOp::$op, x, y), DType::Bool),
            |rng| pointwise::problems($name, 2, $types, rng),
        )
    };
}

fn two(
    t: &[DType],
    allowed: &[DType],
    f: impl Fn(&mut Builder, u16, u16) -> u16,
    out: DType,
) -> Result<Expr, OpError> {
    check(0, t, allowed)?;
    if t[1] != t[0] {
        return Err(OpError::DType { input: 1, found: t[1], wanted: format!("{}, as input 0 is", t[0]) });
    }
    let mut b = Builder::new(t);
    let (x, y) = (b.load(0), b.load(1));
    let r = f(&mut b, x, y);
    Ok(b.finish(r, out))
}

macro_rules! follow {
    ($f:expr) => {
        |cx| pointwise::infer_with(cx, $f)
    };
}

kiln_ir::op_names! {
    ADD = "add",
    SUB = "sub",
    MUL = "mul",
    DIV = "div",
    FLOOR_DIV = "floor_div",
    MOD = "mod",
    REM = "rem",
    POW = "pow",
    MIN = "min",
    MAX = "max",
    AND = "and",
    OR = "or",
    XOR = "xor",
    BIT_AND = "bit_and",
    BIT_OR = "bit_or",
    BIT_XOR = "bit_xor",
    SHL = "shl",
    SHR = "shr",
    EQUAL = "equal",
    GREATER = "greater",
    GREATER_EQUAL = "greater_equal",
    LESS = "less",
    LESS_EQUAL = "less_equal",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[
    binary!(ADD, Add, NUMBERS, Elementwise, follow!(|a, b| a.clone() + b.clone()), "a + b. Integers wrap."),
    binary!(SUB, Sub, NUMBERS, Elementwise, follow!(|a, b| a.clone() - b.clone()), "a − b. Integers wrap."),
    binary!(MUL, Mul, NUMBERS, Elementwise, follow!(|a, b| a.clone() * b.clone()), "a·b. Integers wrap."),
    binary!(
        DIV,
        Div,
        NUMBERS,
        Elementwise,
        follow!(Dim::trunc_div),
        "a/b. Integers truncate toward zero; by zero they give 0."
    ),
    binary!(
        FLOOR_DIV,
        FloorDiv,
        NUMBERS,
        Elementwise,
        follow!(Dim::floor_div),
        "⌊a/b⌋. Integers by zero give 0."
    ),
    binary!(
        MOD,
        Mod,
        NUMBERS,
        Elementwise,
        follow!(Dim::modulo),
        "Remainder with the sign of b, zeros included. Integers by zero give 0."
    ),
    binary!(
        REM,
        Rem,
        NUMBERS,
        Elementwise,
        pointwise::infer,
        "Remainder with the sign of a. Integers by zero give 0."
    ),
    OpDef {
        roles: Roles { keeps_f32: true, ..Roles::NONE },
        ..binary!(POW, Pow, NUMBERS, Transcendental, pointwise::infer, "aᵇ. Integers wrap.")
    },
    binary!(MIN, Min, NUMBERS, Exact, follow!(Dim::min_with), "The lesser; NaN if either is."),
    binary!(MAX, Max, NUMBERS, Exact, follow!(Dim::max_with), "The greater; NaN if either is."),
    binary!(AND, And, BOOL, Exact, pointwise::infer, "Logical and."),
    binary!(OR, Or, BOOL, Exact, pointwise::infer, "Logical or."),
    binary!(XOR, Xor, BOOL, Exact, pointwise::infer, "Logical exclusive or."),
    binary!(BIT_AND, BitAnd, INTS, Exact, pointwise::infer, "Bitwise and."),
    binary!(BIT_OR, BitOr, INTS, Exact, pointwise::infer, "Bitwise or."),
    binary!(BIT_XOR, BitXor, INTS, Exact, pointwise::infer, "Bitwise exclusive or."),
    binary!(
        SHL,
        Shl,
        INTS,
        Exact,
        pointwise::infer,
        "a·2ᵇ, wrapping; 0 if b is negative or at least the width of a."
    ),
    binary!(
        SHR,
        Shr,
        INTS,
        Exact,
        pointwise::infer,
        "⌊a/2ᵇ⌋; if b is negative or at least the width of a: −1 for negative a, else 0."
    ),
    compare!(EQUAL, Eq, ANY, "a = b, as bool; NaN equals nothing."),
    compare!(GREATER, Gt, NUMBERS, "a > b, as bool."),
    compare!(GREATER_EQUAL, Ge, NUMBERS, "a ≥ b, as bool."),
    compare!(LESS, Lt, NUMBERS, "a < b, as bool."),
    compare!(LESS_EQUAL, Le, NUMBERS, "a ≤ b, as bool."),
];

/// The result of a comparison, if it is the same for all values of the symbols.
fn certain(op: CmpOp, a: &Dim, b: &Dim) -> Option<bool> {
    let above = |a: &Dim, b: &Dim, by: i64| (a.clone() - b.clone() - by.into()).is_nonnegative();
    match op {
        CmpOp::Eq if a == b => Some(true),
        CmpOp::Eq => (above(a, b, 1) || above(b, a, 1)).then_some(false),
        CmpOp::Ne => certain(CmpOp::Eq, a, b).map(|equal| !equal),
        CmpOp::Gt if above(a, b, 1) => Some(true),
        CmpOp::Gt => above(b, a, 0).then_some(false),
        CmpOp::Le => certain(CmpOp::Gt, a, b).map(|greater| !greater),
        CmpOp::Lt => certain(CmpOp::Gt, b, a),
        CmpOp::Ge => certain(CmpOp::Gt, b, a).map(|less| !less),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::attr::Attrs;
    use kiln_ir::op::Op;
    use kiln_ir::ty::TensorType;

    /// Exporters ask whether dimensions are −1: they never are.
    #[test]
    fn comparisons_of_dimensions_are_known_where_certain() {
        let fact =
            |v: &[Dim]| Some(Fact::contents(TensorType::new(DType::I64, [v.len() as i64]), v.to_vec()));
        let n = Dim::host("n");
        let shape = fact(&[n.clone(), 4.into()]);
        let known = |op: &str, b: &[Dim]| {
            let out = Op::new(op, Attrs::new()).unwrap().infer(&[shape.clone(), fact(b)], "t").unwrap();
            out[0].as_const().map(|t| t.to_i64())
        };
        assert_eq!(known("equal", &[(-1).into()]), Some(vec![0, 0]));
        assert_eq!(known("equal", &[n.clone(), 4.into()]), Some(vec![1, 1]));
        assert_eq!(known("equal", &[0.into()]), None);
        assert_eq!(known("greater_equal", &[0.into()]), Some(vec![1, 1]));
        assert_eq!(known("less", &[0.into(), 5.into()]), Some(vec![0, 1]));
        assert_eq!(known("greater", &[n + 1.into(), 1.into()]), Some(vec![0, 1]));
    }
}
