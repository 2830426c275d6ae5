//! `kv_cache_update`: writes new rows into a cache in place.

use crate::util::{PLAIN, for_each_index, offset, strides};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, differ};
use kiln_ir::op::{OpDef, Tolerance, Traits, attr, choice, input, optional};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::{Elems, Tensor};

kiln_ir::op_names! {
    KV_CACHE_UPDATE = "kv_cache_update",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: KV_CACHE_UPDATE,
    doc: "The cache with rows of `update` written along `axis` (not the first), in place: output and cache are the \
          same memory. Both have the same dimensions but for `axis`, where the cache is at least as long. Row s of batch \
          entry b goes to write_indices[b] + s (absent: 0 + s); `linear` drops rows that fall outside, `circular` takes \
          the row modulo the length of the cache. Later rows win.",
    inputs: &[input("cache"), input("update"), optional("write_indices")],
    attrs: &[attr("axis", || Attr::Int(-2)), choice("mode", || "linear".into(), &["linear", "circular"])],
    infer,
    eval,
    traits: Traits { side_effect: true, must_alias: &[(0, 0)], ..Traits::PURE },
    tolerance: Tolerance::Exact,
    problems,
    ..PLAIN
}];

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    let cache = cx.ty(0)?;
    cx.same_dtype(0, 1)?;
    cx.check_shape(0, |d| d.len() >= 2, "at least 2 dimensions")?;
    let axis = cx.axis("axis", cache.rank())?;
    if axis == 0 {
        let (found, wanted) = (cx.attrs.int("axis")?.to_string(), "another than the batch axis".into());
        return Err(OpError::Attr { name: "axis".into(), found, wanted });
    }
    let longer = |d: &Dim| matches!((d.as_const(), cache.dims[axis].as_const()), (Some(a), Some(b)) if a > b);
    let fits = |d: &[Dim]| {
        d.len() == cache.rank()
            && d.iter().zip(&cache.dims).enumerate().all(|(i, (a, b))| i == axis || !differ(a, b))
            && !longer(&d[axis])
    };
    let wanted = format!("that of the cache, {cache}, or less along axis {axis}");
    cx.check_shape(1, fits, &wanted)?;
    if cx.has(2) {
        cx.check_dtype(2, |d| matches!(d, DType::I32 | DType::I64), "i32 or i64")?;
        let wanted = format!("[{}], one index for each batch entry", cache.dims[0]);
        cx.check_shape(2, |d| d.len() == 1 && !differ(&d[0], &cache.dims[0]), &wanted)?;
    }
    Ok(vec![Fact::of(cache.clone())])
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let (cache, update) = (cx.input(0)?, cx.input(1)?);
    let axis = kiln_ir::infer::normalize_axis(cx.attrs().int("axis")?, cache.shape().len(), "axis")?;
    let circular = cx.attrs().str("mode")? == "circular";
    let starts = cx.get(2).map(Tensor::to_i64);
    let len = cache.shape()[axis] as i64;
    let mut moves = Vec::new();
    let (to, from) = (strides(cache.shape()), strides(update.shape()));
    for_each_index(update.shape(), |at| {
        let start = starts.as_ref().map_or(0, |v| v[at[0]]);
        let row = start.saturating_add(at[axis] as i64);
        let row = if circular && len > 0 { row.rem_euclid(len) } else { row };
        if (0..len).contains(&row) {
            let mut there = at.to_vec();
            there[axis] = row as usize;
            moves.push((offset(&there, &to), offset(at, &from)));
        }
    });
    let elems = match (cache.elems(), update.elems()) {
        (Elems::F(mut y), Elems::F(u)) => {
            moves.into_iter().for_each(|(i, j)| y[i] = u[j]);
            Elems::F(y)
        }
        (Elems::I(mut y), Elems::I(u)) => {
            moves.into_iter().for_each(|(i, j)| y[i] = u[j]);
            Elems::I(y)
        }
        (y, _) => y,
    };
    Ok(vec![cx.make(0, cache.shape(), elems)?])
}

fn problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    let cases: &[(&str, &[usize], &[usize], i64, &str, Option<&[i64]>)] = &[
        ("4-D", &[2, 3, 11, 5], &[2, 3, 4, 5], -2, "linear", Some(&[0, 6])),
        ("no indices", &[2, 3, 11, 5], &[2, 3, 1, 5], -2, "linear", None),
        ("partly outside", &[3, 2, 7, 4], &[3, 2, 3, 4], -2, "linear", Some(&[-1, 6, 9])),
        ("circular", &[3, 2, 7, 4], &[3, 2, 5, 4], -2, "circular", Some(&[3, 6, 13])),
        ("3-D, last axis", &[2, 5, 9], &[2, 5, 2], -1, "linear", Some(&[1, 7])),
        ("nothing new", &[2, 3, 4, 5], &[2, 3, 0, 5], -2, "linear", Some(&[1, 2])),
    ];
    for &(label, cache, update, axis, mode, at) in cases {
        for t in [DType::F32, DType::F16, DType::BF16, DType::I8] {
            let attrs = Attrs::new().with("axis", axis).with("mode", mode);
            let at = at.map(|v| rng.i64s(&[v.len()], v));
            let ins = [Some(rng.tensor(t, cache)), Some(rng.tensor(t, update)), at];
            out.push(Problem::of(&format!("{label} {t}"), "kv_cache_update", attrs, ins));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, infer, ints, run};

    #[test]
    fn rows_land_at_their_indices() {
        let cache = f32s(&[2, 4, 1], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        let update = f32s(&[2, 2, 1], &[10.0, 20.0, 30.0, 40.0]);
        let at = |v: &[i64]| ints(DType::I64, &[2], v);
        let linear = run("kv_cache_update", Attrs::new(), &[cache.clone(), update.clone(), at(&[1, 3])]);
        assert_near(&linear, &[2, 4, 1], &[1.0, 10.0, 20.0, 4.0, 5.0, 6.0, 7.0, 30.0], 0.0);
        let ring = Attrs::new().with("mode", "circular");
        let ring = run("kv_cache_update", ring, &[cache.clone(), update.clone(), at(&[-1, 3])]);
        assert_near(&ring, &[2, 4, 1], &[20.0, 2.0, 3.0, 10.0, 40.0, 6.0, 7.0, 30.0], 0.0);
        let start = run("kv_cache_update", Attrs::new(), &[cache, update]);
        assert_near(&start, &[2, 4, 1], &[10.0, 20.0, 3.0, 4.0, 30.0, 40.0, 7.0, 8.0], 0.0);
    }

    #[test]
    fn misfits_are_named() {
        let dims = |v: &[i64]| v.iter().map(|&n| Dim::new(n)).collect::<Vec<_>>();
        let bad = |cache: &[i64], update: &[i64], axis: i64| {
            let ins = [(DType::F16, dims(cache)), (DType::F16, dims(update))];
            infer("kv_cache_update", Attrs::new().with("axis", axis), &ins).unwrap_err().to_string()
        };
        assert!(bad(&[2, 3, 4], &[2, 5, 4], 1).contains("less along axis 1"));
        assert!(bad(&[2, 3, 4], &[2, 3, 4], 0).contains("batch axis"));
        assert!(bad(&[2, 3, 4], &[3, 3, 4], 1).contains("f16[2,3,4]"));
    }
}
