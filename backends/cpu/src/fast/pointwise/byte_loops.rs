//! Loops over blocks of bytes for each instruction of an expression.

use super::loops::Ordered;
use crate::fast::simd::vectorized;
use kiln_ir::DType;
use kiln_ir::expr::{BinOp, CmpOp, UnOp};

macro_rules! map {
    (|$a:ident: $t:ty| $body:expr, $x:expr, $y:expr) => {{
        let n = $y.len().min($x.len());
        let (x, y) = (&$x[..n], &mut $y[..n]);
        for i in 0..n {
            let $a = x[i] as $t;
            y[i] = $body as u8;
        }
    }};
}

macro_rules! map2 {
    (|$a:ident, $b:ident: $t:ty| $body:expr, $p:expr, $q:expr, $y:expr) => {{
        let n = $y.len().min($p.len()).min($q.len());
        let (p, q, y) = (&$p[..n], &$q[..n], &mut $y[..n]);
        for i in 0..n {
            let ($a, $b) = (p[i] as $t, q[i] as $t);
            y[i] = $body as u8;
        }
    }};
}

vectorized! {
    /// A function of numbers of a type of bytes.
    pub fn unary(op: UnOp, ty: DType, x: &[u8], y: &mut [u8]) {
        match (op, ty) {
            (UnOp::Neg, _) => map!(|x: u8| x.wrapping_neg(), x, y),
            (UnOp::BitNot, _) => map!(|x: u8| !x, x, y),
            (UnOp::Not, _) => map!(|x: u8| (x == 0), x, y),
            (UnOp::Abs, DType::I8) => map!(|x: i8| x.wrapping_abs(), x, y),
            (UnOp::Sign, DType::I8) => map!(|x: i8| (i8::from(x > 0) - i8::from(x < 0)), x, y),
            (UnOp::Sign, _) => map!(|x: u8| (x != 0), x, y),
            _ => y.copy_from_slice(x),
        }
    }
}

vectorized! {
    /// A function of pairs of numbers of a type of bytes.
    pub fn binary(op: BinOp, ty: DType, a: &[u8], b: &[u8], y: &mut [u8]) {
        match (op, ty) {
            (BinOp::Add, _) => map2!(|a, b: u8| a.wrapping_add(b), a, b, y),
            (BinOp::Sub, _) => map2!(|a, b: u8| a.wrapping_sub(b), a, b, y),
            (BinOp::Mul, _) => map2!(|a, b: u8| a.wrapping_mul(b), a, b, y),
            (BinOp::And | BinOp::BitAnd, _) => map2!(|a, b: u8| (a & b), a, b, y),
            (BinOp::Or | BinOp::BitOr, _) => map2!(|a, b: u8| (a | b), a, b, y),
            (BinOp::Xor | BinOp::BitXor, _) => map2!(|a, b: u8| (a ^ b), a, b, y),
            (BinOp::Min, DType::I8) => map2!(|a, b: i8| a.min(b), a, b, y),
            (BinOp::Min, _) => map2!(|a, b: u8| a.min(b), a, b, y),
            (BinOp::Max, DType::I8) => map2!(|a, b: i8| a.max(b), a, b, y),
            (_, _) => map2!(|a, b: u8| a.max(b), a, b, y),
        }
    }
}

vectorized! {
    /// Compares pairs of numbers of a type of bytes.
    pub fn compare(op: CmpOp, ty: DType, a: &[u8], b: &[u8], y: &mut [u8]) {
        match (op, ty) {
            (CmpOp::Eq, _) => map2!(|a, b: u8| (a == b), a, b, y),
            (CmpOp::Ne, _) => map2!(|a, b: u8| (a != b), a, b, y),
            (CmpOp::Lt, DType::I8) => map2!(|a, b: i8| (a < b), a, b, y),
            (CmpOp::Lt, _) => map2!(|a, b: u8| (a < b), a, b, y),
            (CmpOp::Le, DType::I8) => map2!(|a, b: i8| (a <= b), a, b, y),
            (CmpOp::Le, _) => map2!(|a, b: u8| (a <= b), a, b, y),
            (CmpOp::Gt, DType::I8) => map2!(|a, b: i8| (a > b), a, b, y),
            (CmpOp::Gt, _) => map2!(|a, b: u8| (a > b), a, b, y),
            (CmpOp::Ge, DType::I8) => map2!(|a, b: i8| (a >= b), a, b, y),
            (CmpOp::Ge, _) => map2!(|a, b: u8| (a >= b), a, b, y),
        }
    }
}

vectorized! {
    /// Takes a where c is true, else b.
    pub fn select(c: &[u8], a: &[u8], b: &[u8], y: &mut [u8]) {
        let n = y.len().min(c.len()).min(a.len()).min(b.len());
        let (c, a, b, y) = (&c[..n], &a[..n], &b[..n], &mut y[..n]);
        for i in 0..n {
            y[i] = u8::choose(c[i] != 0, a[i], b[i]);
        }
    }
}

vectorized! {
    /// 1 where a byte is not zero, else 0.
    pub fn truths(x: &[u8], y: &mut [u8]) {
        map!(|x: u8| (x != 0), x, y);
    }
}
