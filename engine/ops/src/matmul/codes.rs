//! Products by weights that stay codes of 4 or 8 bits: they are dequantized while they are multiplied.

use crate::util::PLAIN;
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, differ};
use kiln_ir::op::{OpDef, Roles, Tolerance, Traits, attr, input, optional};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::stop::checkpoint;
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;

kiln_ir::op_names! {
    MATMUL_CODES = "matmul_codes",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: MATMUL_CODES,
    doc: "Matrix product of A [.., M, K] and the weights (codes − zero_point)·scale [N, K], giving [.., M, N] in the type of A \
          (f32, f16 or bf16). Codes are i4, i8 or u8. `across` outputs and `along` elements of the depth share a scale: \
          scale and zero_point are [⌈N/across⌉, ⌈K/along⌉]. Sums are those of matmul.",
    inputs: &[input("a"), input("codes"), input("scale"), optional("zero_point")],
    attrs: &[attr("along", || Attr::Int(1)), attr("across", || Attr::Int(1))],
    infer,
    eval,
    // Codes have signs, so that sums of magnitudes are not those of the operator on magnitudes of floats. Tensor cores take
    // weights that are rounded to the type of A, as DequantizeLinear gives them.
    tolerance: Tolerance::Narrow,
    problems,
    traits: Traits::heavy(|s| s.made(0).saturating_mul(s.from_last(0, 0))),
    roles: Roles { absorbs_pointwise: true, ..Roles::NONE },
    ..PLAIN
}];

/// Elements that share a scale: along the depth, and across outputs.
pub fn shared(attrs: &Attrs) -> Result<[i64; 2], OpError> {
    let size = |name: &str| match attrs.int(name)? {
        n if n > 0 => Ok(n),
        n => Err(OpError::Attr { name: name.into(), found: n.to_string(), wanted: "at least 1".into() }),
    };
    Ok([size("along")?, size("across")?])
}

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let [along, across] = shared(cx.attrs)?;
    cx.check_shape(0, |d| !d.is_empty(), "at least one dimension")?;
    cx.check_rank(1, 2)?;
    let dtype =
        cx.check_dtype(0, |t| matches!(t, DType::F32 | DType::F16 | DType::BF16), "f32, f16 or bf16")?;
    let of_codes = cx.check_dtype(1, |t| matches!(t, DType::I4 | DType::I8 | DType::U8), "i4, i8 or u8")?;
    cx.check_dtype(2, |t| t == dtype, dtype.name())?;
    let mut dims = cx.dims(0)?.to_vec();
    let codes = cx.dims(1)?.to_vec();
    if let Some(depth) = dims.pop()
        && differ(&depth, &codes[1])
    {
        return Err(cx.bad_shape(1, &format!("[N, {depth}], the depth of A")));
    }
    let parts = |d: &Dim, of: i64| d.as_const().map(|d| d / of + i64::from(d % of != 0));
    if let (Some(n), Some(k)) = (parts(&codes[0], across), parts(&codes[1], along)) {
        let fits = |d: &[Dim]| d.len() == 2 && !differ(&d[0], &Dim::new(n)) && !differ(&d[1], &Dim::new(k));
        cx.check_shape(2, fits, &format!("[{n}, {k}]"))?;
        if cx.has(3) {
            cx.check_shape(3, fits, &format!("[{n}, {k}]"))?;
            cx.check_dtype(3, |t| t == of_codes, of_codes.name())?;
        }
    }
    dims.push(codes[0].clone());
    Ok(vec![Fact::of(TensorType { dtype, dims })])
}

/// The weights [N, K] as reals.
pub fn reals(codes: &Tensor, scale: &Tensor, zero: Option<&Tensor>, [along, across]: [i64; 2]) -> Vec<f64> {
    let depth = codes.shape().get(1).copied().unwrap_or(0).max(1);
    let wide = scale.shape().get(1).copied().unwrap_or(0);
    let (scales, zeros) = (scale.to_f64(), zero.map(Tensor::to_i64));
    let each = codes.to_i64().into_iter().enumerate().map(|(at, code)| {
        let part = at / depth / across as usize * wide + at % depth / along as usize;
        (code - zeros.as_ref().map_or(0, |z| z[part])) as f64 * scales[part]
    });
    each.collect()
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let (a, codes) = (cx.input(0)?, cx.input(1)?);
    let weights = reals(codes, cx.input(2)?, cx.get(3), shared(cx.attrs())?);
    let (n, depth) = (codes.shape()[0], codes.shape()[1]);
    let rows = a.shape().iter().take(a.shape().len().saturating_sub(1)).product::<usize>();
    let x = a.to_f64();
    let mut y = Vec::with_capacity(rows * n);
    for i in 0..rows {
        for j in 0..n {
            checkpoint();
            y.push((0..depth).map(|k| x[i * depth + k] * weights[j * depth + k]).sum::<f64>());
        }
    }
    Ok(vec![cx.make(0, &cx.out_shape(0)?, Elems::F(y))?])
}

fn problems(rng: &mut Rng) -> Vec<Problem> {
    use DType::{BF16, F16, F32, I4, I8, U8};
    // Rows of A, outputs, and the elements that share a scale along and across.
    let cases: &[(&str, &[usize], usize, [i64; 2])] = &[
        ("one row, blocks", &[1, 64], 7, [16, 1]),
        ("odd depth, a scale an output", &[5, 21], 9, [21, 1]),
        ("blocks that the depth cuts", &[3, 40], 6, [32, 1]),
        ("one scale, batched", &[2, 3, 32], 5, [32, 5]),
        ("a scale an element of the depth, blocks across", &[2, 9], 11, [1, 4]),
        ("a vector", &[24], 4, [8, 1]),
        ("empty result", &[0, 8], 3, [8, 1]),
        ("empty sum", &[2, 0], 5, [1, 1]),
        ("larger", &[70, 264], 130, [24, 1]),
        ("a row of a larger one", &[1, 1032], 67, [1032, 1]),
    ];
    let mut out = Vec::new();
    for &(label, a, n, [along, across]) in cases {
        for (t, codes, with_zero) in [
            (F32, I4, true),
            (F32, I4, false),
            (F16, I4, true),
            (BF16, I4, false),
            (F16, U8, true),
            (F32, I8, true),
        ] {
            let k = a.last().copied().unwrap_or(0);
            let parts = [n.div_ceil(across as usize), k.div_ceil(along as usize)];
            let op = kiln_ir::problem::op(
                "matmul_codes",
                Attrs::new().with("along", along).with("across", across),
            );
            let mut inputs = vec![
                rng.tensor(t, a),
                rng.tensor_in(codes, &[n, k], 0.0, 0.0, 120),
                rng.tensor_in(t, &parts, 0.01, 0.2, 0),
            ];
            if with_zero {
                inputs.push(rng.tensor_in(codes, &parts, 0.0, 0.0, 7));
            }
            let zero = if with_zero { ", zero points" } else { "" };
            out.push(Problem::new(&format!("{label} {t} {codes}{zero}"), op, inputs));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, ints, run};

    #[test]
    fn blocks_and_zero_points_are_those_of_the_definition() {
        let codes = ints(DType::I4, &[2, 4], &[1, 2, 3, 4, -8, 7, 0, 5]);
        let scale = f32s(&[2, 2], &[1.0, 10.0, 2.0, 0.5]);
        let zero = ints(DType::I4, &[2, 2], &[1, 0, -1, 5]);
        let a = f32s(&[1, 4], &[1., 1., 1., 2.]);
        let attrs = Attrs::new().with("along", 2i64).with("across", 1i64);
        // (0 + 1)·1 + (3 + 2·4)·10, and (−7 + 8)·2 + (−5 + 2·0)·0.5.
        assert_near(&run("matmul_codes", attrs, &[a, codes, scale, zero]), &[1, 2], &[111., -0.5], 0.0);
    }

    #[test]
    fn scales_of_another_shape_are_refused() {
        let of = |scales: [i64; 2], along: i64| {
            let dims = |d: &[i64]| d.iter().map(|&n| Dim::new(n)).collect::<Vec<_>>();
            crate::testing::infer(
                "matmul_codes",
                Attrs::new().with("along", along),
                &[(DType::F32, dims(&[2, 9])), (DType::I4, dims(&[3, 9])), (DType::F32, dims(&scales))],
            )
        };
        assert!(of([3, 3], 4).is_ok());
        let e = of([3, 2], 4).unwrap_err().to_string();
        assert!(e.contains("[3, 3]"), "{e}");
        assert!(of([3, 9], 0).is_err());
    }
}
