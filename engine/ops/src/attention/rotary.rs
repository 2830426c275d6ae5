//! `rotary_embedding`: rotates pairs of components by angles that depend on the position.

use crate::util::{PLAIN, REAL, REALS, is_real};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx, differ};
use kiln_ir::op::{OpDef, Roles, Tolerance, attr, input, optional};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::range::IndexRange;
use kiln_ir::tensor::{Elems, Tensor};

kiln_ir::op_names! {
    ROTARY_EMBEDDING = "rotary_embedding",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: ROTARY_EMBEDDING,
    doc: "Rotates the first R = `rotary_dim` (0: all, even) components of every head of x, [B, H, S, D] or, with \
          `num_heads`, [B, S, H·D]. Pair i is components i and i + R/2, or 2i and 2i+1 if `interleaved`; it becomes \
          (cos·x1 − sin·x2, sin·x1 + cos·x2). With position_ids [B, S], cos and sin are [positions, R/2] and row \
          position_ids[b, s] is read (negative ids count from the end, ids out of range are an error); without, they are \
          [B, S, R/2], or [1, S, R/2] for all of the batch.",
    inputs: &[input("x"), input("cos"), input("sin"), optional("position_ids")],
    attrs: &[
        attr("interleaved", || Attr::Bool(false)),
        attr("num_heads", || Attr::Int(0)),
        attr("rotary_dim", || Attr::Int(0)),
    ],
    infer,
    eval,
    ranges: Some(|cx| Ok(vec![IndexRange::signed(3, cx.size(1, 0))])),
    tolerance: Tolerance::Conditioned,
    problems,
    roles: Roles { absorbs_pointwise: true, reads_through_movement: true, ..Roles::NONE },
    ..PLAIN
}];

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    cx.check_dtype(0, is_real, REAL)?;
    let x = cx.ty(0)?;
    let [batch, len, size] = parts(cx, &x.dims)?;
    let rotary = match cx.attrs.int("rotary_dim")? {
        0 => size.clone(),
        n => Dim::new(n),
    };
    let fits =
        rotary.as_const().is_none_or(|r| r >= 0 && r % 2 == 0 && size.as_const().is_none_or(|d| r <= d));
    if !fits {
        let wanted = format!("even and at most the head size ({size})");
        return Err(OpError::Attr { name: "rotary_dim".into(), found: rotary.to_string(), wanted });
    }
    let half = rotary.floor_div(&Dim::new(2));
    for i in [1, 2] {
        cx.same_dtype(0, i)?;
        let (lead, wanted) = match cx.has(3) {
            true => (vec![], format!("[positions,{half}]")),
            false => (vec![&batch, &len], format!("[{batch},{len},{half}]")),
        };
        let fits = |d: &[Dim]| match d {
            [_, r] if lead.is_empty() => !differ(r, &half),
            [b, s, r] if !lead.is_empty() => {
                let shared = b.as_const() == Some(1);
                !differ(r, &half) && (shared || !differ(lead[0], b)) && !differ(lead[1], s)
            }
            _ => false,
        };
        cx.check_shape(i, fits, &wanted)?;
    }
    if cx.has(3) {
        cx.check_dtype(3, |d| matches!(d, DType::I32 | DType::I64), "i32 or i64")?;
        let fits = |d: &[Dim]| d.len() == 2 && !differ(&d[0], &batch) && !differ(&d[1], &len);
        cx.check_shape(3, fits, &format!("[{batch},{len}]"))?;
    }
    Ok(vec![Fact::of(x.clone())])
}

/// Batch, length and head size.
fn parts(cx: &InferCx<'_>, dims: &[Dim]) -> Result<[Dim; 3], OpError> {
    match dims {
        [b, _, s, d] => Ok([b.clone(), s.clone(), d.clone()]),
        [b, s, hidden] => {
            let n = cx.attrs.int("num_heads")?;
            if n <= 0 {
                let wanted = "positive, as x is 3-D".into();
                return Err(OpError::Attr { name: "num_heads".into(), found: n.to_string(), wanted });
            }
            if differ(&hidden.modulo(&n.into()), &Dim::new(0)) {
                return Err(
                    cx.bad_shape(0, &format!("a last dimension that is a multiple of num_heads ({n})"))
                );
            }
            Ok([b.clone(), s.clone(), hidden.floor_div(&n.into())])
        }
        _ => Err(cx.bad_shape(0, "3 or 4 dimensions")),
    }
}

/// Cosine or sine of a position and a pair.
struct Table<'a> {
    elems: Vec<f64>,
    half: usize,
    len: usize,
    /// Whether it has angles for each of the batch.
    batched: bool,
    ids: Option<&'a [i64]>,
}

impl Table<'_> {
    fn at(&self, b: usize, s: usize, pair: usize) -> f64 {
        let row = b * self.len + s;
        let row = match self.ids {
            None if !self.batched => Some(s),
            None => Some(row),
            Some(ids) => {
                let rows = self.elems.len().checked_div(self.half).unwrap_or(0) as i64;
                let id = ids[row];
                usize::try_from(if id < 0 { id.saturating_add(rows) } else { id })
                    .ok()
                    .filter(|&r| (r as i64) < rows)
            }
        };
        row.map_or(0.0, |r| self.elems[r * self.half + pair])
    }
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let x = cx.input(0)?;
    let heads = usize::try_from(cx.attrs().int("num_heads")?).unwrap_or(0);
    // The position of component 0 of (batch, head, position), and the sizes.
    let ([batch, heads, len, size], strides) = match *x.shape() {
        [b, h, s, d] => ([b, h, s, d], [h * s * d, s * d, d]),
        [b, s, hidden] if heads > 0 => {
            let d = hidden / heads;
            ([b, heads, s, d], [s * hidden, d, hidden])
        }
        _ => return Err(OpError::Value(format!("{:?} is not 3-D with heads, nor 4-D", x.shape()))),
    };
    let ids = cx.get(3).map(Tensor::to_i64);
    let half = cx.input(1)?.shape().last().copied().unwrap_or(0);
    let table = |i| {
        let t = cx.input(i)?;
        let batched = t.shape().len() == 3 && t.shape()[0] != 1;
        Ok::<_, OpError>(Table { elems: t.to_f64(), half, len, batched, ids: ids.as_deref() })
    };
    let (cos, sin) = (table(1)?, table(2)?);
    let interleaved = cx.attrs().bool("interleaved")?;
    let mut y = x.to_f64();
    for (b, h) in (0..batch).flat_map(|b| (0..heads).map(move |h| (b, h))) {
        for s in 0..len {
            let base = b * strides[0] + h * strides[1] + s * strides[2];
            for pair in 0..half.min(size / 2) {
                let (i, j) = if interleaved { (2 * pair, 2 * pair + 1) } else { (pair, pair + half) };
                let (x1, x2) = (y[base + i], y[base + j]);
                let (c, s) = (cos.at(b, s, pair), sin.at(b, s, pair));
                y[base + i] = c * x1 - s * x2;
                y[base + j] = s * x1 + c * x2;
            }
        }
    }
    Ok(vec![cx.make(0, &cx.out_shape(0)?, Elems::F(y))?])
}

fn problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for t in REALS {
        for (label, shape, heads, rotary) in [
            ("4-D, one table", vec![3, 2, 5, 32], 0i64, 0i64),
            ("3-D, one table", vec![2, 5, 96], 3, 0),
            ("some of a head, one table", vec![2, 5, 120], 3, 32),
        ] {
            let attrs = Attrs::new().with("rotary_dim", rotary).with("num_heads", heads);
            let [x, cos, sin] = [&shape[..], &[1, 5, 16], &[1, 5, 16]].map(|d| Some(rng.tensor(t, d)));
            out.push(Problem::of(&format!("{label} {t}"), "rotary_embedding", attrs, [x, cos, sin]));
        }
        for (interleaved, rotary) in [(false, 0), (true, 0), (false, 6), (true, 6)] {
            let half = if rotary == 0 { 5 } else { rotary as usize / 2 };
            for (label, shape, heads) in [
                ("4-D", vec![2, 3, 7, 10], 0i64),
                ("3-D", vec![2, 7, 30], 3),
                ("empty", vec![2, 0, 7, 10], 0),
            ] {
                let attrs = Attrs::new()
                    .with("interleaved", interleaved)
                    .with("rotary_dim", rotary)
                    .with("num_heads", heads);
                let x = Some(rng.tensor(t, &shape));
                let full = [2, 7, half];
                let plain = [x.clone(), Some(rng.tensor(t, &full)), Some(rng.tensor(t, &full))];
                out.push(Problem::of(&format!("{label} {t}"), "rotary_embedding", attrs.clone(), plain));
                let ids: Vec<i64> = (0..14).map(|_| rng.int(0, 19)).collect();
                let table = [20, half];
                let ids = rng.i64s(&[2, 7], &ids);
                let looked_up = [x, Some(rng.tensor(t, &table)), Some(rng.tensor(t, &table)), Some(ids)];
                out.push(Problem::of(
                    &format!("{label} {t} by position"),
                    "rotary_embedding",
                    attrs,
                    looked_up,
                ));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, f32s, infer, ints, run, run_all};

    #[test]
    fn a_quarter_turn_exchanges_the_halves() {
        let x = f32s(&[1, 1, 2, 4], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        let (cos, sin) = (f32s(&[1, 2, 2], &[1.0, 1.0, 0.0, 0.0]), f32s(&[1, 2, 2], &[0.0, 0.0, 1.0, 1.0]));
        let y = run("rotary_embedding", Attrs::new(), &[x.clone(), cos.clone(), sin.clone()]);
        assert_near(&y, &[1, 1, 2, 4], &[1.0, 2.0, 3.0, 4.0, -7.0, -8.0, 5.0, 6.0], 0.0);
        let y = run("rotary_embedding", Attrs::new().with("interleaved", true), &[x, cos, sin]);
        assert_near(&y, &[1, 1, 2, 4], &[1.0, 2.0, 3.0, 4.0, -6.0, 5.0, -8.0, 7.0], 0.0);
    }

    #[test]
    fn ids_pick_rows_and_the_rest_stays() {
        // Two positions of two heads of three components, of which two turn.
        let x = f32s(&[1, 2, 6], &[1.0, 2.0, 9.0, 3.0, 4.0, 9.0, 1.0, 2.0, 9.0, 3.0, 4.0, 9.0]);
        let (cos, sin) = (f32s(&[2, 1], &[0.0, -1.0]), f32s(&[2, 1], &[1.0, 0.0]));
        let attrs = Attrs::new().with("rotary_dim", 2i64).with("num_heads", 2i64);
        let ids = ints(DType::I64, &[1, 2], &[-1, 0]);
        let y = run("rotary_embedding", attrs.clone(), &[x.clone(), cos.clone(), sin.clone(), ids]);
        let turned = [-1.0, -2.0, 9.0, -3.0, -4.0, 9.0, -2.0, 1.0, 9.0, -4.0, 3.0, 9.0];
        assert_near(&y, &[1, 2, 6], &turned, 0.0);
        let beyond = ints(DType::I64, &[1, 2], &[2, -3]);
        let e = run_all("rotary_embedding", attrs, &[x, cos, sin, beyond].map(Some)).unwrap_err();
        assert!(matches!(e, OpError::Index { input: 3, at: 0, found: 2, least: -2, greatest: 1, .. }), "{e}");
    }

    #[test]
    fn misfits_are_named() {
        let dims = |v: &[i64]| v.iter().map(|&n| Dim::new(n)).collect::<Vec<_>>();
        let bad = |attrs: Attrs, x: &[i64], cos: &[i64]| {
            let ins = [(DType::F32, dims(x)), (DType::F32, dims(cos)), (DType::F32, dims(cos))];
            infer("rotary_embedding", attrs, &ins).unwrap_err().to_string()
        };
        assert!(bad(Attrs::new(), &[1, 2, 6], &[1, 2, 3]).contains("num_heads"));
        assert!(bad(Attrs::new(), &[1, 2, 3, 5], &[1, 3, 2]).contains("even"));
        assert!(bad(Attrs::new(), &[1, 2, 3, 4], &[1, 3, 4]).contains("[1,3,2]"));
        assert!(
            bad(Attrs::new().with("rotary_dim", 6i64), &[1, 2, 3, 4], &[1, 3, 3]).contains("head size (4)")
        );
    }
}
