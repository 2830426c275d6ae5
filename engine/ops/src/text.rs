//! `tfidf`: counts of n-grams.

use crate::util::PLAIN;
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::dim::Dim;
use kiln_ir::dtype::DType;
use kiln_ir::error::OpError;
use kiln_ir::eval::EvalCx;
use kiln_ir::infer::{Fact, InferCx};
use kiln_ir::op::{OpDef, Roles, Tolerance, Traits, attr, choice, required};
use kiln_ir::problem::{Problem, Rng};
use kiln_ir::tensor::{Elems, Tensor};
use kiln_ir::ty::TensorType;
use std::collections::HashMap;

kiln_ir::op_names! {
    TFIDF = "tfidf",
}

/// The operators of this family.
#[linkme::distributed_slice(kiln_ir::op::FAMILIES)]
static OPS: &[OpDef] = &[OpDef {
    name: TFIDF,
    doc: "Counts n-grams of every row of x ([C] or [N, C], integers); gives f32 [K] or [N, K], K the greatest of \
          `ngram_indexes` plus 1. `pool` holds all 1-grams, then all 2-grams and so on; `counts`[n−1] is where n-grams \
          start. The i-th n-gram of the pool is counted at ngram_indexes[i]. N-grams of min_gram to max_gram items count, \
          whose items are 1 to max_skip + 1 apart (all by the same distance; 1-grams count once). mode tf: the count; idf: \
          weights[k] if it is positive; tfidf: weights[k] times the count; no weights mean ones.",
    attrs: &[
        choice("mode", || "tf".into(), &["tf", "idf", "tfidf"]),
        required("min_gram", || Attr::Int(1)),
        required("max_gram", || Attr::Int(1)),
        attr("max_skip", || Attr::Int(0)),
        required("counts", || Attr::Ints(Vec::new())),
        required("ngram_indexes", || Attr::Ints(Vec::new())),
        required("pool", || Attr::Ints(Vec::new())),
        attr("weights", || Attr::Floats(Vec::new())),
    ],
    infer,
    eval,
    tolerance: Tolerance::Generated,
    problems,
    traits: Traits::heavy(|s| {
        let distances = s.attrs.int("max_skip").unwrap_or(0).unsigned_abs().saturating_add(1);
        let items = s.attrs.ints("pool").map_or(0, |p| p.len() as u64);
        s.volume(0).saturating_mul(distances.min(s.from_last(0, 0))).saturating_mul(items)
    }),
    roles: Roles { keeps_f32: true, ..Roles::NONE },
    ..PLAIN
}];

/// More counts in a row than this are refused.
const MAX_OUTPUTS: i64 = 1 << 26;

/// The n-grams that count, and how.
struct Grams<'a> {
    /// Position of the counter of each n-gram.
    slots: HashMap<&'a [i64], usize>,
    /// Lengths of the n-grams.
    lengths: std::ops::RangeInclusive<usize>,
    skips: usize,
    /// Length of the output.
    size: usize,
}

fn wrong(name: &str, found: impl ToString, wanted: impl ToString) -> OpError {
    OpError::Attr { name: name.into(), found: found.to_string(), wanted: wanted.to_string() }
}

fn grams(attrs: &Attrs) -> Result<Grams<'_>, OpError> {
    let size = |name: &str, least: i64| {
        let n = attrs.int(name)?;
        usize::try_from(n)
            .ok()
            .filter(|_| n >= least)
            .ok_or_else(|| wrong(name, n, format!("at least {least}")))
    };
    let (min, max, skips) = (size("min_gram", 1)?, size("max_gram", 1)?, size("max_skip", 0)?);
    if min > max {
        return Err(wrong("min_gram", min, format!("at most max_gram, {max}")));
    }
    let (counts, pool) = (attrs.ints("counts")?, attrs.ints("pool")?);
    let indexes = attrs.ints("ngram_indexes")?;
    if let Some(i) = indexes.iter().find(|i| !(0..MAX_OUTPUTS).contains(*i)) {
        return Err(wrong("ngram_indexes", i, format!("in 0..{MAX_OUTPUTS}")));
    }
    let mut slots = HashMap::new();
    let mut next = indexes.iter();
    for (i, &start) in counts.iter().enumerate() {
        let end = counts.get(i + 1).copied().unwrap_or(pool.len() as i64);
        let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
        let part = range.and_then(|(a, b)| pool.get(a..b));
        let part = part.ok_or_else(|| {
            wrong(
                "counts",
                format!("{counts:?}"),
                format!("ascending positions in the pool of {}", pool.len()),
            )
        })?;
        for gram in part.chunks_exact(i + 1) {
            let slot = next.next().ok_or_else(|| {
                wrong(
                    "ngram_indexes",
                    format!("{} numbers", indexes.len()),
                    "one for each n-gram of the pool",
                )
            })?;
            if (min..=max).contains(&gram.len()) {
                slots.insert(gram, *slot as usize);
            }
        }
    }
    let size = indexes.iter().max().map_or(0, |&m| m as usize + 1);
    let weights = attrs.floats("weights")?.len();
    if weights != 0 && weights < size {
        return Err(wrong(
            "weights",
            format!("{weights} numbers"),
            format!("{size}, one for each output, or none"),
        ));
    }
    Ok(Grams { slots, lengths: min..=max, skips, size })
}

fn infer(cx: &mut InferCx<'_>) -> Result<Vec<Fact>, OpError> {
    cx.check_dtype(0, |d| matches!(d, DType::I32 | DType::I64), "i32 or i64")?;
    cx.check_shape(0, |d| matches!(d.len(), 1 | 2), "1 or 2 dimensions")?;
    let mut dims = cx.dims(0)?.to_vec();
    if let Some(last) = dims.last_mut() {
        *last = Dim::new(grams(cx.attrs)?.size as i64);
    }
    Ok(vec![Fact::of(TensorType { dtype: DType::F32, dims })])
}

/// The n-grams that count, in a fixed order, with the output that each is counted in.
pub fn counted(attrs: &Attrs) -> Result<Vec<(&[i64], usize)>, OpError> {
    let mut v: Vec<_> = grams(attrs)?.slots.into_iter().collect();
    v.sort_unstable();
    Ok(v)
}

/// Counts of one row.
fn count(row: &[i64], g: &Grams<'_>) -> Vec<f64> {
    let mut counts = vec![0.0; g.size];
    // Longer distances than the row leave no n-gram.
    let longest = g.slots.keys().map(|k| k.len()).max().unwrap_or(0);
    for n in g.lengths.clone().take_while(|&n| n <= longest) {
        let distances = if n == 1 { 1 } else { g.skips.saturating_add(1).min(row.len()) };
        for distance in 1..=distances {
            let span = (n - 1).saturating_mul(distance).saturating_add(1);
            for start in 0..(row.len() + 1).saturating_sub(span) {
                let gram: Vec<i64> = (0..n).map(|k| row[start + k * distance]).collect();
                if let Some(&slot) = g.slots.get(gram.as_slice()) {
                    counts[slot] += 1.0;
                }
            }
        }
    }
    counts
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, OpError> {
    let x = cx.input(0)?;
    let g = grams(cx.attrs())?;
    let weights = cx.attrs().floats("weights")?;
    let weight = |k: usize| weights.get(k).copied().unwrap_or(1.0);
    let mode = cx.attrs().str("mode")?;
    let shape = cx.out_shape(0)?;
    let v = x.to_i64();
    let len = x.shape().last().copied().unwrap_or(0);
    let rows = if x.shape().len() == 2 { x.shape()[0] } else { 1 };
    let mut y = Vec::new();
    for r in 0..rows {
        let counts = count(&v[r * len..(r + 1) * len], &g);
        y.extend(counts.into_iter().enumerate().map(|(k, n)| match mode {
            "tf" => n,
            "idf" if n > 0.0 => weight(k),
            "idf" => 0.0,
            _ => weight(k) * n,
        }));
    }
    Ok(vec![cx.make(0, &shape, Elems::F(y))?])
}

fn problems(rng: &mut Rng) -> Vec<Problem> {
    let mut out = Vec::new();
    for (shape, mode) in
        [(&[12][..], "tf"), (&[3, 9], "idf"), (&[2, 15], "tfidf"), (&[0, 4], "tf"), (&[2, 0], "tf")]
    {
        for (min, max, skip) in [(1i64, 1i64, 0i64), (2, 2, 5), (1, 3, 1)] {
            let attrs = Attrs::new()
                .with("mode", mode)
                .with("min_gram", min)
                .with("max_gram", max)
                .with("max_skip", skip)
                .with("counts", vec![0i64, 3, 7])
                .with("ngram_indexes", vec![2i64, 0, 1, 3, 6, 4])
                .with("pool", vec![1i64, 2, 3, 1, 2, 3, 3, 2, 1, 2])
                .with("weights", vec![0.5, 1.0, 2.0, 0.25, 1.5, 3.0, 0.75]);
            for t in [DType::I32, DType::I64] {
                let x = Some(rng.tensor_in(t, shape, 0.0, 1.0, 3));
                let label = format!("{shape:?} {t} {mode} {min}..={max} skip {skip}");
                out.push(Problem::of(&label, "tfidf", attrs.clone(), [x]));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_near, ints, run};

    /// 1-grams 2 3 5 4, 2-grams 5·6 7·8 6·7, counted at 0 to 6.
    fn attrs(min: i64, max: i64, skip: i64) -> Attrs {
        Attrs::new()
            .with("min_gram", min)
            .with("max_gram", max)
            .with("max_skip", skip)
            .with("counts", vec![0i64, 4])
            .with("ngram_indexes", (0..7).collect::<Vec<i64>>())
            .with("pool", vec![2i64, 3, 5, 4, 5, 6, 7, 8, 6, 7])
    }

    #[test]
    fn pairs_with_and_without_skips() {
        let x = ints(DType::I32, &[12], &[1, 1, 3, 3, 3, 7, 8, 6, 7, 5, 6, 8]);
        let near = run("tfidf", attrs(2, 2, 0), std::slice::from_ref(&x));
        assert_near(&near, &[7], &[0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0], 0.0);
        // 7·8 also 3 apart, at positions 8 and 11.
        let far = run("tfidf", attrs(1, 2, 5), &[x]);
        assert_near(&far, &[7], &[0.0, 3.0, 1.0, 0.0, 1.0, 3.0, 1.0], 0.0);
    }

    #[test]
    fn modes_and_rows() {
        let x = ints(DType::I64, &[2, 3], &[2, 2, 3, 9, 9, 9]);
        let weights = vec![0.5, 4.0, 1.0, 1.0, 1.0, 1.0, 1.0];
        let run = |mode: &str| {
            run(
                "tfidf",
                attrs(1, 1, 0).with("mode", mode).with("weights", weights.clone()),
                std::slice::from_ref(&x),
            )
        };
        let row = |a: f64, b: f64| [&[a, b][..], &[0.0; 12]].concat();
        assert_near(&run("tf"), &[2, 7], &row(2.0, 1.0), 0.0);
        assert_near(&run("idf"), &[2, 7], &row(0.5, 4.0), 0.0);
        assert_near(&run("tfidf"), &[2, 7], &row(1.0, 4.0), 0.0);
    }

    #[test]
    fn inconsistent_pools_are_refused() {
        let check = |a: Attrs| {
            let op = kiln_ir::Op::new("tfidf", a).unwrap();
            op.eval(&[Some(ints(DType::I32, &[1], &[1]))]).unwrap_err().to_string()
        };
        assert!(check(attrs(1, 1, 0).with("counts", vec![0i64, 99])).contains("counts"));
        assert!(check(attrs(1, 1, 0).with("ngram_indexes", vec![0i64])).contains("ngram_indexes"));
        assert!(check(attrs(1, 1, 0).with("ngram_indexes", vec![1i64 << 40; 7])).contains("ngram_indexes"));
        assert!(check(attrs(2, 1, 0)).contains("min_gram"));
        assert!(check(attrs(1, 1, -1)).contains("max_skip"));
        assert!(check(attrs(1, 1, 0).with("weights", vec![1.0])).contains("weights"));
    }
}
