//! `bitcast`: the bits of elements as another type.

use crate::util::PLAIN;
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::infer::{Fact, InferCx};
use kiln_ir::op::{Movement, OpDef, Roles, required};
use kiln_ir::problem::{Problem, Rng, made};
use kiln_ir::tensor::Tensor;
use kiln_ir::ty::TensorType;

kiln_ir::op_names! {
    BITCAST = "bitcast",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: BITCAST,
    doc: "The bits of every element as an element of the type `to`, which is as wide. Bool as another type is 0 or 1; no \
          other type becomes bool, whose bytes are 0 and 1 only: cast, or compare with 0.",
    attrs: &[required("to", || Attr::DType(DType::F32))],
    infer,
    eval: |cx| {
        let (x, to) = (cx.input(0)?, cx.attrs().dtype("to")?);
        let y = Tensor::from_bytes(to, x.shape(), x.shared_bytes());
        Ok(vec![y.ok_or_else(|| widths(x.dtype(), to))?])
    },
    problems,
    roles: Roles { keeps_f32: true, movement: Movement::Reinterpretation, ..Roles::NONE },
    ..PLAIN
}];

fn widths(found: DType, to: DType) -> OpError {
    OpError::DType { input: 0, found, wanted: format!("a type of {} bits, as wide as {to}", to.bits()) }
}

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let (x, to) = (cx.ty(0)?, cx.attrs.dtype("to")?);
    if x.dtype.bits() != to.bits() {
        return Err(widths(x.dtype, to));
    }
    if to == DType::Bool && x.dtype != to {
        let wanted = "bool, whose bytes are 0 and 1 only; compare with 0".into();
        return Err(OpError::DType { input: 0, found: x.dtype, wanted });
    }
    if x.dtype == to {
        return Ok(vec![Fact { ty: x.clone(), value: cx.fact(0).and_then(|f| f.value.clone()) }]);
    }
    Ok(vec![Fact::of(TensorType { dtype: to, dims: x.dims.clone() })])
}

/// Every pair of types with every kind of bits, in sizes that do not fill words.
fn problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for from in DType::ALL {
        for to in DType::ALL {
            let fits = from.bits() == to.bits() && (to != DType::Bool || from == to);
            let attrs = Attrs::new().with("to", to);
            for shape in [&[3, 5, 7][..], &[], &[0, 3], &[1021]].into_iter().filter(|_| fits) {
                let x = patterns(from, shape, rng);
                let label = format!("{from} to {to} {shape:?}");
                out.push(Problem::of(&label, "bitcast", attrs.clone(), [Some(x)]));
            }
        }
    }
    out
}

/// Random bits: NaN of every kind, subnormal numbers, both zeros.
fn patterns(t: DType, shape: &[usize], rng: &mut Rng) -> Tensor {
    if t == DType::Bool {
        return rng.tensor(t, shape);
    }
    let n: usize = shape.iter().product();
    let bytes = t.bytes_for(n as u64).unwrap_or(0) as usize;
    // Every fourth byte run of ones makes exponents that NaN and infinities have.
    let v: Vec<u8> = (0..bytes)
        .map(|i| {
            let byte = rng.bits() as u8;
            if (i / 8).is_multiple_of(4) && i % 2 == 1 { byte | 0x7f } else { byte }
        })
        .collect();
    let spare = if t == DType::I4 && n % 2 == 1 { 0x0f } else { 0xff };
    let v =
        v.iter().enumerate().map(|(i, b)| if i + 1 == bytes { b & spare } else { *b }).collect::<Vec<_>>();
    made(Tensor::from_bytes(t, shape, v))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{f32s, infer, ints, run};

    #[test]
    fn bits_stay_and_types_change() {
        let x = f32s(&[4], &[1.0, -0.0, f64::INFINITY, -2.5]);
        let y = run("bitcast", Attrs::new().with("to", DType::I32), std::slice::from_ref(&x));
        assert_eq!(y.to_i64(), [0x3f80_0000, i64::from(i32::MIN), 0x7f80_0000, -0x3fe0_0000]);
        let back = run("bitcast", Attrs::new().with("to", DType::F32), &[y]);
        assert_eq!(back, x);
        let y = run("bitcast", Attrs::new().with("to", DType::U8), &[ints(DType::I8, &[2], &[-1, 5])]);
        assert_eq!(y.to_i64(), [255, 5]);
        let y = run("bitcast", Attrs::new().with("to", DType::U8), &[ints(DType::Bool, &[2], &[0, 1])]);
        assert_eq!(y.to_i64(), [0, 1]);
    }

    #[test]
    fn other_widths_and_bool_are_refused() {
        let bad = |from: DType, to: DType| {
            infer("bitcast", Attrs::new().with("to", to), &[(from, vec![3.into()])]).unwrap_err().to_string()
        };
        assert!(bad(DType::F32, DType::F16).contains("16 bits"));
        assert!(bad(DType::U8, DType::Bool).contains("compare with 0"));
    }
}
