//! Cases of a program: the shapes of its profiles that kernels are chosen for.
//!
//! The search decides fusion and formats at the usual shapes of the first profile. Each step has a kernel for these, and others for the
//! cases in which another tactic is faster.

use crate::{BuildConfig, BuildError};
use kiln_backend::Case;
use kiln_ir::{Fact, Graph};
use kiln_plan::{Profile, Range, elements, graph_io};
use std::collections::BTreeMap;

/// Numbers of shapes of a profile that kernels may be chosen for.
pub const BUCKETS: [usize; 4] = [1, 3, 5, 9];

/// A case, and the facts of all values at the shapes that stand for it.
pub struct CasePoint {
    /// The case.
    pub case: Case,
    /// Facts by value.
    pub facts: Vec<Fact>,
}

/// Elements of the inputs at the points of each profile, before formats change their shapes.
pub fn sizes(g: &Graph, config: &BuildConfig) -> Result<Vec<Vec<u64>>, BuildError> {
    if !BUCKETS.contains(&config.shape_buckets) {
        return Err(BuildError::Profile(format!(
            "kernels for {} shapes of each profile are wanted; there can be {BUCKETS:?}",
            config.shape_buckets
        )));
    }
    let io = graph_io(g);
    let size = |p: &Profile| {
        let facts = p.points(&io).map_err(|e| BuildError::Profile(e.to_string()))?.into_iter().nth(1);
        let dims = |f: &Fact| f.ty.static_dims().unwrap_or_default().into_iter().map(|d| d as u64);
        Ok(elements(facts.iter().flatten().map(dims)))
    };
    let of = |p: &Profile| points(p, config.shape_buckets).iter().map(size).collect();
    config.profiles.iter().map(of).collect()
}

/// The cases of a graph, those of a profile by their sizes; none where all runs are alike. `sizes` are those of [`sizes`]. Shapes that no
/// run can have are left out.
pub fn of(g: &Graph, config: &BuildConfig, sizes: &[Vec<u64>]) -> Result<Vec<CasePoint>, BuildError> {
    if config.profiles.len() * config.shape_buckets < 2 {
        return Ok(Vec::new());
    }
    let io = graph_io(g);
    let mut all = Vec::new();
    for (number, (profile, sizes)) in config.profiles.iter().zip(sizes).enumerate() {
        let points = points(profile, config.shape_buckets);
        let usual = points.len() / 2;
        let mut kept: Vec<(u64, Vec<Fact>)> = Vec::new();
        for (i, (point, &size)) in points.iter().zip(sizes).enumerate() {
            let inferred = point
                .check(&io)
                .and_then(|()| point.points(&io))
                .map_err(|e| BuildError::Profile(e.to_string()))
                .and_then(|[_, inputs, _]| Ok(g.infer_from(&inputs)?));
            let facts = match inferred {
                Ok(facts) => facts,
                Err(e) if i == usual => return Err(e),
                Err(_) => continue,
            };
            // The usual point stands for all of one size.
            match kept.last().is_some_and(|last| last.0 == size) {
                true if i > usual => continue,
                true => drop(kept.pop()),
                false => {}
            }
            kept.push((size, facts));
        }
        let limits: Vec<Option<u64>> = kept
            .iter()
            .zip(kept.iter().skip(1).map(Some).chain([None]))
            .map(|(a, b)| between(a.0, b))
            .collect();
        let cases = kept.into_iter().zip(limits).map(|((_, facts), elements)| CasePoint {
            case: Case { profile: number as u32, elements },
            facts,
        });
        all.extend(cases);
    }
    Ok(if all.len() < 2 { Vec::new() } else { all })
}

/// The size up to which runs belong to the smaller of two neighbours: the geometric mean.
fn between(size: u64, next: Option<&(u64, Vec<Fact>)>) -> Option<u64> {
    let next = next?.0;
    Some((u128::from(size) * u128::from(next)).isqrt() as u64)
}

/// The shapes of a profile that kernels are chosen for, in order, the usual ones in the middle: these alone, or also the least and the
/// greatest, and the geometric means of neighbours.
fn points(profile: &Profile, count: usize) -> Vec<Profile> {
    let at = |pick: fn(&Range) -> &Vec<i64>| {
        let of = |ranges: &BTreeMap<String, Range>| fixed(ranges, |r| pick(r).clone());
        Profile { shapes: of(&profile.shapes), values: of(&profile.values) }
    };
    if count == 1 {
        return vec![at(|r| &r.opt)];
    }
    let mut all = vec![at(|r| &r.min), at(|r| &r.opt), at(|r| &r.max)];
    while all.len() < count {
        let means: Vec<Profile> = all.windows(2).map(|pair| mean(&pair[0], &pair[1])).collect();
        let mut means = means.into_iter();
        all = all.into_iter().flat_map(|p| std::iter::once(p).chain(means.next())).collect();
    }
    all
}

fn fixed(ranges: &BTreeMap<String, Range>, at: impl Fn(&Range) -> Vec<i64>) -> BTreeMap<String, Range> {
    let one = |(name, r): (&String, &Range)| {
        let v = at(r);
        (name.clone(), Range { min: v.clone(), opt: v.clone(), max: v })
    };
    ranges.iter().map(one).collect()
}

fn mean(a: &Profile, b: &Profile) -> Profile {
    let of = |a: &BTreeMap<String, Range>, b: &BTreeMap<String, Range>, mean: fn(i64, i64) -> i64| {
        let mut all = fixed(a, |r| r.opt.clone());
        for (name, r) in &mut all {
            let other = b.get(name).map_or(&r.opt, |b| &b.opt);
            let v: Vec<i64> = r.opt.iter().zip(other).map(|(&x, &y)| mean(x, y)).collect();
            *r = Range { min: v.clone(), opt: v.clone(), max: v };
        }
        all
    };
    let geometric = |x: i64, y: i64| (i128::from(x) * i128::from(y)).max(0).isqrt() as i64;
    let halfway = |x: i64, y: i64| ((i128::from(x) + i128::from(y)) / 2) as i64;
    Profile { shapes: of(&a.shapes, &b.shapes, geometric), values: of(&a.values, &b.values, halfway) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test panics")]
mod tests {
    use super::*;
    use kiln_ir::{Attrs, DType, Dim, Op, TensorType};

    fn graph() -> Graph {
        let mut g = Graph::new("g");
        let ty = TensorType { dtype: DType::F32, dims: vec![Dim::host("n"), Dim::new(4)] };
        let x = g.add_input("x", Fact::of(ty));
        g.outputs = vec![g.add("y", Op::new("neg", Attrs::new()).unwrap(), &[x]).unwrap()];
        g
    }

    fn cases(ranges: &[[i64; 3]], shape_buckets: usize) -> Vec<(u32, Option<u64>, i64)> {
        let profile = |&[min, opt, max]: &[i64; 3]| {
            let mut p = Profile::new();
            p.set_shape("x", &[min, 4], &[opt, 4], &[max, 4]).unwrap();
            p
        };
        let profiles = ranges.iter().map(profile).collect();
        let config = BuildConfig { shape_buckets, profiles, ..BuildConfig::default() };
        let g = graph();
        let all = of(&g, &config, &sizes(&g, &config).unwrap()).unwrap();
        let rows = |c: &CasePoint| c.facts[0].ty.dims[0].as_const().unwrap();
        all.iter().map(|c| (c.case.profile, c.case.elements, rows(c))).collect()
    }

    #[test]
    fn profiles_are_cases_and_their_shapes_are_buckets() {
        assert_eq!(cases(&[[1, 2, 3]], 1), [], "one profile of one bucket is no case");
        assert_eq!(cases(&[[1, 2, 3], [4, 5, 6]], 1), [(0, None, 2), (1, None, 5)]);
        assert_eq!(cases(&[[1, 16, 64]], 3), [(0, Some(16), 1), (0, Some(128), 16), (0, None, 64)]);
        let five = cases(&[[1, 16, 64]], 5);
        assert_eq!(five.iter().map(|c| c.2).collect::<Vec<_>>(), [1, 4, 16, 32, 64]);
        assert_eq!(cases(&[[8, 8, 64]], 3), [(0, Some(90), 8), (0, None, 64)], "least and usual are one");
        assert_eq!(cases(&[[8, 8, 8]], 3), [], "nothing varies");
    }

    #[test]
    fn other_numbers_of_buckets_are_refused() {
        let config = BuildConfig { shape_buckets: 2, ..BuildConfig::default() };
        let e = sizes(&graph(), &config).unwrap_err().to_string();
        assert!(e.contains("2 shapes of each profile") && e.contains("[1, 3, 5, 9]"), "{e}");
    }
}
