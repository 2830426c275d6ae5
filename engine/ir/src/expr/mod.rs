//! The scalar expression that pointwise operators and fused regions share.
//!
//! A tiny SSA program from one element of each input to one element of the output. Backends print it in their
//! language; [`Expr::eval`] is its meaning. Floats narrower than f32 are widened on load and rounded on store:
//! arithmetic is only ever done in f32, i32, i64 or bool (and i8, u8, i4 which compute in i32 and wrap on store).

mod build;
pub mod eval;

pub use build::{Builder, compute_type};
pub use eval::Num;

use crate::dtype::DType;

/// A register: the index of the instruction that defines it.
pub type Reg = u16;

/// A scalar program.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// Types of the inputs.
    pub inputs: Vec<DType>,
    /// Instructions; each defines the register of its index and reads only earlier ones.
    pub insts: Vec<Inst>,
    /// The register with the result.
    pub result: Reg,
}

/// One instruction and the type of its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Inst {
    /// Operation.
    pub op: Scalar,
    /// The type of its value.
    pub ty: DType,
}

/// Operation of an instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// The element of an input.
    Input(u16),
    /// A float constant.
    Float(f64),
    /// An integer or bool constant.
    Int(i64),
    /// A function of one value of the same type (`IsNan` and `IsInf` give bool).
    Un(UnOp, Reg),
    /// A function of two values of the same type.
    Bin(BinOp, Reg, Reg),
    /// A comparison of two values of one type, with a result of bool.
    Cmp(CmpOp, Reg, Reg),
    /// `if c { a } else { b }`.
    Select(Reg, Reg, Reg),
    /// Conversion to the instruction's type. Float to integer truncates (saturates; NaN becomes 0); integer
    /// to narrower integer wraps; anything to bool is `!= 0`; to narrower float rounds to nearest even (f8
    /// saturates).
    Cast(Reg),
}

macro_rules! names {
    ($(#[$m:meta])* $t:ident { $($v:ident = $n:literal $d:literal),* $(,)? }) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $t { $(#[doc = $d] $v),* }
        impl $t {
            /// All values of the type.
            pub const ALL: &'static [$t] = &[$($t::$v),*];
            /// The name in text and payloads.
            pub fn name(self) -> &'static str { match self { $($t::$v => $n),* } }
            /// The one of this name.
            pub fn from_name(s: &str) -> Option<$t> { Self::ALL.iter().copied().find(|x| x.name() == s) }
        }
    };
}

names!(/// Functions of one scalar.
UnOp {
    Neg = "neg" "−x; integers wrap", Abs = "abs" "|x|; integers wrap", Sign = "sign" "−1, 0 or 1; NaN stays NaN",
    Floor = "floor" "rounds down", Ceil = "ceil" "rounds up", Round = "round" "nearest, ties to even",
    Trunc = "trunc" "toward zero", Sqrt = "sqrt" "square root", Recip = "recip" "1/x",
    Exp = "exp" "eˣ", Log = "log" "natural logarithm", Log1p = "log1p" "ln(1+x)", Sin = "sin" "sine", Cos = "cos" "cosine",
    Tan = "tan" "tangent", Asin = "asin" "arc sine", Acos = "acos" "arc cosine", Atan = "atan" "arc tangent",
    Sinh = "sinh" "hyperbolic sine", Cosh = "cosh" "hyperbolic cosine", Tanh = "tanh" "hyperbolic tangent",
    Asinh = "asinh" "inverse of sinh", Acosh = "acosh" "inverse of cosh", Atanh = "atanh" "inverse of tanh",
    Erf = "erf" "error function", Not = "not" "logical not of a bool", BitNot = "bitnot" "bitwise complement",
    IsNan = "isnan" "is it NaN? gives bool", IsInf = "isinf" "is it infinite? gives bool",
});

names!(/// Functions of two scalars.
BinOp {
    Add = "add" "sum; integers wrap", Sub = "sub" "difference; integers wrap", Mul = "mul" "product; integers wrap",
    Div = "div" "quotient; integers truncate, by zero gives 0", FloorDiv = "floordiv" "quotient rounded down; integers by zero give 0",
    Mod = "mod" "remainder with the sign of the divisor; integers by zero give 0",
    Rem = "rem" "remainder with the sign of the dividend; integers by zero give 0",
    Pow = "pow" "xʸ; integers wrap, negative exponents truncate 1/x^|y|", Min = "min" "lesser; NaN if either is", Max = "max" "greater; NaN if either is",
    And = "and" "bool", Or = "or" "bool", Xor = "xor" "bool",
    BitAnd = "bitand" "integers", BitOr = "bitor" "integers", BitXor = "bitxor" "integers",
    Shl = "shl" "x·2ʸ, wraps; 0 if y is the width or more", Shr = "shr" "shifts right, filling with the sign (u8: zeros)",
});

names!(/// Comparisons. False with NaN, but for `Ne`.
CmpOp { Eq = "eq" "=", Ne = "ne" "≠", Lt = "lt" "<", Le = "le" "≤", Gt = "gt" ">", Ge = "ge" "≥" });

impl BinOp {
    /// Whether the operands may change places.
    pub fn is_commutative(self) -> bool {
        use BinOp::{Add, And, BitAnd, BitOr, BitXor, Max, Min, Mul, Or, Xor};
        matches!(self, Add | Mul | Min | Max | And | Or | Xor | BitAnd | BitOr | BitXor)
    }
}

impl Scalar {
    /// The registers that the operation reads.
    pub fn reads(&self) -> impl Iterator<Item = Reg> + use<> {
        let read = match *self {
            Scalar::Un(_, a) | Scalar::Cast(a) => [Some(a), None, None],
            Scalar::Bin(_, a, b) | Scalar::Cmp(_, a, b) => [Some(a), Some(b), None],
            Scalar::Select(c, a, b) => [Some(c), Some(a), Some(b)],
            Scalar::Input(_) | Scalar::Float(_) | Scalar::Int(_) => [None; 3],
        };
        read.into_iter().flatten()
    }
}

impl Expr {
    /// Whether the program is one commutative function of its two inputs, which may then change places.
    pub fn is_commutative(&self) -> bool {
        let at = |r: Reg| self.insts.get(usize::from(r)).map(|i| i.op);
        let uncast = |r: Reg| match at(r) {
            Some(Scalar::Cast(of)) => at(of),
            op => op,
        };
        let Some(Scalar::Bin(op, a, b)) = uncast(self.result) else { return false };
        let inputs = [uncast(a), uncast(b)];
        let each_once = inputs == [Some(Scalar::Input(0)), Some(Scalar::Input(1))];
        op.is_commutative() && each_once && matches!(self.inputs[..], [a, b] if a == b)
    }

    /// The type of the result.
    pub fn result_type(&self) -> DType {
        self.insts.get(usize::from(self.result)).map_or(DType::F32, |i| i.ty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_commutative_and_differences_are_not() {
        let of = |types: [DType; 2], op: BinOp, order: [usize; 2]| {
            let mut b = Builder::new(&types);
            let [x, y] = order.map(|i| b.load(i));
            let r = b.bin(op, x, y);
            b.finish(r, types[0]).is_commutative()
        };
        for t in [DType::F32, DType::F16, DType::U8] {
            assert!(of([t, t], BinOp::Add, [0, 1]) && of([t, t], BinOp::Max, [0, 1]));
            assert!(!of([t, t], BinOp::Sub, [0, 1]) && !of([t, t], BinOp::Add, [0, 0]));
        }
        assert!(!of([DType::F32, DType::F16], BinOp::Add, [0, 1]));
    }
}
