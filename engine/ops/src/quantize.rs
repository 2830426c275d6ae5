//! `quantize` and `dequantize`: floats to small integers (or FP8) and back, by a scale and a zero point that broadcast.

use crate::pointwise;
use crate::pointwise::unary::check;
use crate::util::{PLAIN, REALS};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::expr::{BinOp, Builder, Expr, Reg, UnOp};
use kiln_ir::op::{OpDef, Port, Roles, Tolerance, attr, input, optional, required};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::{Elems, Tensor};

const PORTS: &[Port] = &[input("x"), input("scale"), optional("zero_point")];
/// Storage types of quantized tensors.
const NARROW: [DType; 4] = [DType::I8, DType::U8, DType::I4, DType::F8E4M3];

kiln_ir::op_names! {
    QUANTIZE = "quantize",
    DEQUANTIZE = "dequantize",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[
    OpDef {
        name: QUANTIZE,
        doc: "saturate(round(x/scale) + zero_point) in type `to` (i8, u8, i4, f8e4m3): the quotient in f32, rounded to the \
              nearest integer, ties to even (f8e4m3: to its nearest value); the sum is clamped to the range of the type. \
              NaN gives 0 in integers. A scale a channel is given in a shape that broadcasts, [1, C, 1, 1].",
        inputs: PORTS,
        attrs: &[required("to", || Attr::DType(DType::I8))],
        infer: pointwise::infer,
        eval: pointwise::eval,
        ranges: None,
        expr: Some(quantize),
        problems: quantize_problems,
        roles: Roles { keeps_f32: true, ..Roles::NONE },
        ..PLAIN
    },
    OpDef {
        name: DEQUANTIZE,
        doc: "(x − zero_point)·scale in type `to`: the difference of integers in i32, the product in f32. x is i8, u8, i4, \
              i32 or f8e4m3.",
        inputs: PORTS,
        attrs: &[attr("to", || Attr::DType(DType::F32))],
        infer: pointwise::infer,
        eval: pointwise::eval,
        ranges: None,
        expr: Some(dequantize),
        tolerance: Tolerance::Elementwise,
        problems: dequantize_problems,
        roles: Roles { keeps_f32: true, ..Roles::NONE },
        ..PLAIN
    },
];

fn wrong_to(found: DType, wanted: &str) -> OpError {
    OpError::Attr { name: "to".into(), found: found.to_string(), wanted: wanted.into() }
}

fn f32_of(b: &mut Builder, i: usize) -> Reg {
    let x = b.load(i);
    b.cast(x, DType::F32)
}

fn quantize(attrs: &Attrs, t: &[DType]) -> Result<Expr, OpError> {
    let to = attrs.dtype("to")?;
    if !NARROW.contains(&to) {
        return Err(wrong_to(to, "i8, u8, i4 or f8e4m3"));
    }
    check(0, t, &[DType::F32, DType::F16, DType::BF16, DType::I32])?;
    check(1, t, &REALS)?;
    let mut b = Builder::new(t);
    let (x, scale) = (f32_of(&mut b, 0), f32_of(&mut b, 1));
    let mut q = b.bin(BinOp::Div, x, scale);
    if to.is_int() {
        q = b.un(UnOp::Round, q);
    }
    if t.len() > 2 {
        check(2, t, &[to])?;
        let zero = f32_of(&mut b, 2);
        q = b.bin(BinOp::Add, q, zero);
    }
    if let Some((lo, hi)) = to.int_range() {
        let (lo, hi) = (b.num(lo as f64, q), b.num(hi as f64, q));
        q = b.bin(BinOp::Max, q, lo);
        q = b.bin(BinOp::Min, q, hi);
        q = b.cast(q, DType::I32);
    }
    Ok(b.finish(q, to))
}

fn dequantize(attrs: &Attrs, t: &[DType]) -> Result<Expr, OpError> {
    let to = attrs.dtype("to")?;
    if !REALS.contains(&to) {
        return Err(wrong_to(to, "f32, f16 or bf16"));
    }
    check(0, t, &[DType::I8, DType::U8, DType::I4, DType::I32, DType::F8E4M3])?;
    check(1, t, &REALS)?;
    let mut b = Builder::new(t);
    let mut x = b.load(0);
    if t.len() > 2 {
        check(2, t, &t[..1])?;
        let zero = b.load(2);
        x = b.bin(BinOp::Sub, x, zero);
    }
    let (x, scale) = (b.cast(x, DType::F32), f32_of(&mut b, 1));
    let y = b.bin(BinOp::Mul, x, scale);
    Ok(b.finish(y, to))
}

/// A scale for each of the channels of `[2, 5, 3]`, or one for all.
fn scales(rng: &mut Rng, t: DType, per_channel: bool) -> Tensor {
    let shape: &[usize] = if per_channel { &[1, 5, 1] } else { &[] };
    rng.tensor_in(t, shape, 0.01, 0.2, 0)
}

fn quantize_problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for to in NARROW {
        let op = kiln_ir::problem::op("quantize", Attrs::new().with("to", to));
        for (t, per_channel) in
            [(DType::F32, false), (DType::F32, true), (DType::F16, true), (DType::BF16, false)]
        {
            let scale = scales(rng, t, per_channel);
            let x = rng.tensor_in(t, &[2, 5, 3], -30.0, 30.0, 0);
            let zero = rng.tensor(to, scale.shape());
            out.push(Problem::new(&format!("{t} to {to}"), op.clone(), [x.clone(), scale.clone()]));
            if to.is_int() {
                out.push(Problem::new(&format!("{t} to {to} with zero point"), op.clone(), [x, scale, zero]));
            }
        }
        // Exact halves: ties go to even.
        let halves = Elems::F((0..16).map(|i| f64::from(i) - 7.5).collect());
        if let (Some(x), Some(one)) =
            (Tensor::from_elems(DType::F32, &[16], &halves), Tensor::f32(&[], &[1.0]))
        {
            out.push(Problem::new(&format!("ties to {to}"), op.clone(), [x, one.clone()]));
            out.push(Problem::new(
                &format!("special values to {to}"),
                op,
                [rng.edge_floats(DType::F32, 19), one],
            ));
        }
    }
    out
}

fn dequantize_problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for from in [DType::I8, DType::U8, DType::I4, DType::I32, DType::F8E4M3] {
        for (to, per_channel) in [(DType::F32, false), (DType::F32, true), (DType::F16, true)] {
            let op = kiln_ir::problem::op("dequantize", Attrs::new().with("to", to));
            let (x, scale) =
                (rng.tensor_in(from, &[2, 5, 3], -200.0, 200.0, 100), scales(rng, to, per_channel));
            let zero = rng.tensor(from, scale.shape());
            out.push(Problem::new(&format!("{from} to {to}"), op.clone(), [x.clone(), scale.clone()]));
            out.push(Problem::new(&format!("{from} to {to} with zero point"), op, [x, scale, zero]));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, ints, run};

    #[test]
    fn quantizes_with_zero_point_and_saturates() {
        let x = f32s(&[6], &[0., 2., 3., 1000., -254., -1000.]);
        let zero = ints(DType::U8, &[], &[128]);
        let y = run("quantize", Attrs::new().with("to", DType::U8), &[x, f32s(&[], &[2.0]), zero]);
        assert_eq!(y.to_i64(), [128, 129, 130, 255, 1, 0]);
    }

    #[test]
    fn halves_round_to_even() {
        let x = f32s(&[4], &[0.5, 1.5, 2.5, -0.5]);
        assert_eq!(
            run("quantize", Attrs::new().with("to", DType::I8), &[x, f32s(&[], &[1.0])]).to_i64(),
            [0, 2, 2, 0]
        );
    }

    #[test]
    fn dequantizes() {
        let ins = [ints(DType::U8, &[4], &[0, 3, 128, 255]), f32s(&[], &[2.0]), ints(DType::U8, &[], &[128])];
        assert_near(&run("dequantize", Attrs::new(), &ins), &[4], &[-256., -250., 0., 254.], 0.0);
    }
}
