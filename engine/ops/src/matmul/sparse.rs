//! Products by 2:4 sparse weights: of four neighbours along the depth two at most are not 0.
//!
//! Such weights are stored as half of their elements and the places of these in their groups of four. `sparse_pack` makes both,
//! `matmul_sparse` multiplies by them, `sparse_prune` sets the smaller elements of any weights to 0.

pub mod pack;
pub mod prune;

use crate::util::{PLAIN, product_dtype};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, differ};
use kiln_ir::op::{OpDef, Roles, Tolerance, Traits, input};
use kiln_ir::problem::{Problem, Rng, made};
use kiln_ir::stop::checkpoint;
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;
use pack::{GROUP, Places};

kiln_ir::op_names! {
    MATMUL_SPARSE = "matmul_sparse",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: MATMUL_SPARSE,
    doc: "Matrix product of A [.., M, K] and 2:4 sparse weights [N, K], giving [.., M, N]. Inputs `values` and `places` are \
          results of sparse_pack. Types and sums are those of matmul.",
    inputs: &[input("a"), input("values"), input("places")],
    infer,
    eval,
    tolerance: Tolerance::Sum,
    problems,
    traits: Traits::heavy(|s| s.made(0).saturating_mul(s.from_last(1, 0))),
    roles: Roles { absorbs_pointwise: true, ..Roles::NONE },
    ..PLAIN
}];

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    cx.check_shape(0, |d| d.len() >= 2, "at least two dimensions")?;
    let depth = cx.dims(0)?[cx.dims(0)?.len() - 1].clone();
    let outputs = check_packed(cx, 1, &depth)?;
    let dtype = product_dtype(cx, 0, 1)?;
    let mut dims = cx.dims(0)?.to_vec();
    dims.pop();
    dims.push(outputs);
    Ok(vec![Fact::of(TensorType { dtype, dims })])
}

/// The number of outputs of packed weights, of which input `i` has the values and the next the places, for this depth.
pub(crate) fn check_packed(cx: &InferCx<'_>, i: usize, depth: &Dim) -> Result<Dim, OpError> {
    cx.check_rank(i, 2)?;
    cx.check_dtype(i + 1, |t| t == DType::I32, "i32")?;
    let order = |d: &[Dim]| d.last().and_then(Dim::as_const).and_then(Places::of_words);
    cx.check_shape(i + 1, |d| d.len() == 3 && order(d).is_some(), "[tiles, chunks, 32 or 64]")?;
    let Some(places) = order(cx.dims(i + 1)?) else { return Err(cx.bad_shape(i + 1, "32 or 64 words")) };
    let values = cx.dims(i)?;
    if let Some(k) = depth.as_const() {
        let half = places.whole(k) / 2;
        if differ(&values[1], &Dim::new(half)) {
            return Err(cx.bad_shape(i, &format!("[N, {half}] for a depth of {k}")));
        }
    }
    if let (Some(n), Some(half)) = (values[0].as_const(), values[1].as_const()) {
        let shape = places.shape(n, half.saturating_mul(2));
        let fits = |d: &[Dim]| d.iter().zip(shape).all(|(d, n)| !differ(d, &Dim::new(n)));
        cx.check_shape(i + 1, fits, &format!("{shape:?}, the places of these values"))?;
    }
    Ok(values[0].clone())
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let (a, values) = (cx.input(0)?, cx.input(1)?);
    let depth = a.shape().last().copied().unwrap_or(0);
    let dense = pack::dense(values, cx.input(2)?, depth);
    let n = values.shape()[0];
    let rows = a.shape().iter().take(a.shape().len().saturating_sub(1)).product::<usize>();
    let each = |f: &mut dyn FnMut(usize, usize)| {
        for i in 0..rows {
            checkpoint();
            (0..n).for_each(|j| f(i * depth, j * depth));
        }
    };
    let elems = match (a.elems(), dense) {
        (Elems::F(x), Elems::F(w)) => {
            let mut y = Vec::with_capacity(rows * n);
            each(&mut |i, j| y.push((0..depth).map(|k| x[i + k] * w[j + k]).sum::<f64>()));
            Elems::F(y)
        }
        (Elems::I(x), Elems::I(w)) => {
            let mut y = Vec::with_capacity(rows * n);
            each(&mut |i, j| {
                y.push((0..depth).fold(0i64, |s, k| s.wrapping_add(x[i + k].wrapping_mul(w[j + k]))))
            });
            Elems::I(y)
        }
        _ => return Err(OpError::Value("floats by integers have no product".into())),
    };
    Ok(vec![cx.make(0, &cx.out_shape(0)?, elems)?])
}

/// Random weights [n, k] of which two of four neighbours at most are not 0.
pub fn random_sparse(rng: &mut Rng, t: DType, n: usize, k: usize) -> Tensor {
    let whole = rng.tensor(t, &[n, k]);
    let mut keep = vec![false; n * k];
    for group in keep.chunks_mut(k.max(1)).flat_map(|row| row.chunks_mut(GROUP)) {
        // Two different places, or the same one twice.
        let [first, second] = [0, 1].map(|_| rng.int(0, group.len() as i64 - 1) as usize);
        (group[first], group[second]) = (true, true);
    }
    let kept = match whole.elems() {
        Elems::F(v) => Elems::F(v.iter().zip(&keep).map(|(x, k)| if *k { *x } else { 0.0 }).collect()),
        Elems::I(v) => Elems::I(v.iter().zip(&keep).map(|(x, k)| if *k { *x } else { 0 }).collect()),
    };
    made(Tensor::from_elems(t, &[n, k], &kept))
}

fn problems(rng: &mut Rng) -> Vec<Problem> {
    use DType::{BF16, F8E4M3, F16, I8, U8};
    let cases: &[(&str, &[usize], usize)] = &[
        ("plain", &[5, 64], 7),
        ("odd depth", &[3, 20], 35),
        ("several chunks, batched", &[2, 3, 268], 40),
        ("depth of one group", &[17, 4], 16),
        ("empty result", &[0, 8], 3),
        ("empty sum", &[2, 0], 5),
        ("larger", &[70, 516], 130),
    ];
    let mut out = Vec::new();
    for &(label, a, n) in cases {
        for (x, w) in [(F16, F16), (BF16, BF16), (F8E4M3, F8E4M3), (I8, I8), (U8, I8)] {
            let k = a.last().copied().unwrap_or(0);
            let weights = random_sparse(rng, w, n, k);
            let Ok((values, places)) = pack::packed(&weights) else { continue };
            let op = kiln_ir::problem::op("matmul_sparse", Default::default());
            out.push(Problem::new(&format!("{label} {x} {w}"), op, [rng.tensor(x, a), values, places]));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::run;
    use kiln_ir::attr::Attrs;

    #[test]
    fn products_equal_those_by_the_weights_before_packing() {
        let mut rng = Rng::new(4);
        for (t, m, n, k) in [(DType::F16, 3, 21, 132), (DType::I8, 9, 16, 260), (DType::BF16, 1, 5, 4)] {
            let weights = random_sparse(&mut rng, t, n, k);
            let x = rng.tensor(t, &[2, m, k]);
            let dense = run("matmul", Attrs::new().with("trans_b", true), &[x.clone(), weights.clone()]);
            let (values, places) = pack::packed(&weights).unwrap();
            assert_eq!(run("matmul_sparse", Attrs::new(), &[x, values, places]), dense, "{t} {m} {n} {k}");
        }
    }

    #[test]
    fn weights_of_another_depth_are_refused() {
        let of = |x: DType, k: i64, half: i64| {
            let dims = |d: &[i64]| d.iter().map(|&n| Dim::new(n)).collect::<Vec<_>>();
            let places = (DType::I32, dims(&[1, half * 2 / 64, 32]));
            crate::testing::infer(
                "matmul_sparse",
                Attrs::new(),
                &[(x, dims(&[2, k])), (DType::F16, dims(&[3, half])), places],
            )
        };
        assert!(of(DType::F16, 60, 32).is_ok());
        let e = of(DType::F16, 68, 32).unwrap_err().to_string();
        assert!(e.contains("[N, 64] for a depth of 68"), "{e}");
        assert!(of(DType::F32, 60, 32).is_err());
        assert!(of(DType::F16, 60, 33).is_err());
    }
}
