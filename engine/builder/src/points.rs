//! Facts of all values at the shapes that a build looks at, and bounds of their sizes.

use crate::{BuildConfig, BuildError};
use kiln_backend::is_view_op;
use kiln_ir::dim::{Atom, Symbol};
use kiln_ir::{Dim, Fact, Graph};
use kiln_plan::graph_io;
use std::collections::HashMap;
use std::sync::Arc;

/// A bound of more bytes is taken only if it is not much more than the value has at the ends of the profile.
const LARGE: u64 = 16 << 20;

/// Factor from which a bound is too loose.
const LOOSE: u64 = 8;

/// Facts of all values, by value: what kernels are chosen for, and what bounds the memory plan.
#[derive(Clone, Debug)]
pub struct Points {
    /// Facts at the usual shapes of the first profile. In bodies of control flow, sizes that only a run
    /// computes are guessed.
    pub opt: Vec<Fact>,
    /// The points without guesses.
    pub sure: Vec<Fact>,
    /// Over all shapes of every profile.
    pub spans: Vec<Span>,
}

/// Facts of all values over the shapes of one profile: dimensions in terms of symbols, and the ranges of these.
#[derive(Clone, Debug)]
pub struct Span {
    /// Facts by value.
    pub facts: Vec<Fact>,
    /// Least, usual and greatest values of symbols by name.
    pub ranges: Arc<Ranges>,
}

/// Least, usual and greatest values of symbols by name.
pub type Ranges = HashMap<Arc<str>, [i64; 3]>;

impl Points {
    /// Infers the graph at every point. Without profiles the network's own input types are the only point.
    pub fn of(g: &Graph, config: &BuildConfig) -> Result<Points, BuildError> {
        let io = graph_io(g);
        if config.profiles.is_empty() {
            let own: Vec<Fact> = g.inputs.iter().map(|&v| g.value(v).fact.clone()).collect();
            check_static(g, &own)?;
            let facts = g.infer_from(&own)?;
            let span = Span { facts: facts.clone(), ranges: Arc::default() };
            return Ok(Points { opt: facts.clone(), sure: facts, spans: vec![span] });
        }
        let mut points: Option<Points> = None;
        for profile in &config.profiles {
            profile.check(&io).map_err(|e| BuildError::Profile(e.to_string()))?;
            let [min, opt, max] = profile.points(&io).map_err(|e| BuildError::Profile(e.to_string()))?;
            let usual = g.infer_from(&opt)?;
            let span = Span::of(g, [&min, &opt, &max], &usual);
            let opt = usual;
            let first = || Points { opt: opt.clone(), sure: opt.clone(), spans: Vec::new() };
            points.get_or_insert_with(first).spans.push(span);
        }
        points.ok_or_else(|| BuildError::Profile("there is no profile".into()))
    }

    /// Bytes of every value at its largest; `None` where no bound is known, or only one that is far beyond what the value
    /// has at the least, usual and greatest shapes.
    pub fn sizes(&self, g: &Graph) -> Vec<Option<u64>> {
        let mut all: Option<Vec<Option<u64>>> = None;
        for span in &self.spans {
            let sizes = span.sizes(g);
            let both = |(a, b): (Option<u64>, Option<u64>)| Some(a?.max(b?));
            all = Some(match all {
                None => sizes,
                Some(others) => others.into_iter().zip(sizes).map(both).collect(),
            });
        }
        all.unwrap_or_default()
    }
}

impl Span {
    /// Infers the graph with a symbol for each dimension of an input that the profile lets vary. Elements of
    /// shape inputs that vary have symbols too.
    fn of(g: &Graph, points: [&[Fact]; 3], usual: &[Fact]) -> Span {
        let mut ranges = Ranges::new();
        let mut inputs = Vec::with_capacity(g.inputs.len());
        for (i, &v) in g.inputs.iter().enumerate() {
            let own = &g.value(v).fact;
            let at = points.map(|p| &p[i]);
            let mut fact = at[1].clone();
            for (axis, d) in fact.ty.dims.iter_mut().enumerate() {
                let name = || format!("{}.d{axis}", g.value(v).name);
                let ends = at.map(|f| f.ty.dims[axis].as_const());
                *d = varying(&mut ranges, own.ty.dims.get(axis), ends, name, Dim::host).unwrap_or(d.clone());
            }
            let elements = at.map(Fact::as_dims);
            if let ([Some(min), Some(opt), Some(max)], true) = (&elements, fact.as_const().is_some()) {
                let known = own.as_dims();
                let element = |k: usize| {
                    let name = || format!("{}[{k}]", g.value(v).name);
                    let ends = [min, opt, max].map(|e| e.get(k).and_then(Dim::as_const));
                    let own = known.as_ref().and_then(|d| d.get(k));
                    varying(&mut ranges, own, ends, name, Dim::content).unwrap_or_else(|| opt[k].clone())
                };
                fact = Fact::contents(fact.ty.clone(), (0..opt.len()).map(element).collect());
            }
            inputs.push(fact);
        }
        let ranges = Arc::new(ranges);
        // A profile of fixed shapes has no other point.
        if ranges.values().all(|r| r[0] == r[2]) {
            return Span { facts: usual.to_vec(), ranges };
        }
        // The graph's own facts hold for all shapes.
        let own = || g.value_ids().map(|v| g.value(v).fact.clone()).collect();
        let facts = g.infer_from(&inputs).unwrap_or_else(|_| own());
        Span { facts, ranges }
    }

    /// The ranges for a body of control flow whose inputs have these facts.
    pub fn inside(&self, facts: Vec<Fact>) -> Span {
        Span { facts, ranges: self.ranges.clone() }
    }

    /// The largest dimensions of a value; `None` if one of them has no bound.
    pub fn largest(&self, fact: &Fact) -> Option<Vec<i64>> {
        let ranges = |s: &Symbol| self.ranges.get(&s.name).map(|r| (r[0], r[2]));
        fact.ty.dims.iter().map(|d| d.interval(&ranges).hi().map(|n| n.max(0))).collect()
    }

    fn sizes(&self, g: &Graph) -> Vec<Option<u64>> {
        let mut sizes: Vec<Option<u64>> = self.facts.iter().map(|f| self.size(f)).collect();
        // A view is as large as what it shows; its own dimensions may say so less exactly. Where they are numbers of more
        // than that, every run is refused at the view, and it has a place of its own.
        for (_, n) in g.nodes().filter(|(_, n)| is_view_op(&n.op)) {
            if let (Some(&Some(x)), &[y]) = (n.inputs.first(), &n.outputs[..]) {
                let stated = bytes(&g.value(y).fact, Dim::as_const).unwrap_or(0);
                let shown = sizes[x.0 as usize].map(|size| size.max(stated));
                sizes[y.0 as usize] = shown.or(sizes[y.0 as usize]);
            }
        }
        sizes
    }

    /// Bytes of a value at its largest, by the rules of [`Points::sizes`].
    pub fn size(&self, fact: &Fact) -> Option<u64> {
        if fact.ty.static_dims().is_some() {
            return bytes(fact, |d| d.as_const());
        }
        let ranges = |s: &Symbol| self.ranges.get(&s.name).map(|r| (r[0], r[2]));
        let bound = bytes(fact, |d| d.interval(&ranges).hi())?;
        let at = |k: usize| {
            let point = |s: &Symbol| self.ranges.get(&s.name).map(|r| (r[k], r[k]));
            bytes(fact, |d| d.interval(&point).hi())
        };
        let usual = || (0..3).filter_map(at).max().unwrap_or(0);
        (bound <= LARGE || bound <= usual().saturating_mul(LOOSE)).then_some(bound)
    }
}

/// The symbol of a number that a profile lets vary, its range noted; `None` where it is fixed. A name that stands for one
/// number in several places has the range in which all of them meet.
fn varying(
    ranges: &mut Ranges,
    own: Option<&Dim>,
    ends: [Option<i64>; 3],
    name: impl Fn() -> String,
    symbol: fn(String) -> Dim,
) -> Option<Dim> {
    let [Some(min), Some(opt), Some(max)] = ends else { return None };
    let d = own.filter(|d| symbol_of(d).is_some()).cloned().unwrap_or_else(|| symbol(name()));
    let range = ranges.entry(symbol_of(&d)?).or_insert([min, opt, max]);
    *range = [range[0].max(min), opt, range[2].min(max)];
    (min < max).then_some(d)
}

/// The name of a dimension that is a symbol alone.
fn symbol_of(d: &Dim) -> Option<Arc<str>> {
    match &*d.terms() {
        [t] if t.coef == 1 => match &t.atoms[..] {
            [Atom::Sym(s)] => Some(s.name.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// Bytes of a value with dimensions of these sizes.
fn bytes(f: &Fact, size: impl Fn(&Dim) -> Option<i64>) -> Option<u64> {
    let mut n: u64 = 1;
    for d in &f.ty.dims {
        // A run in which it would be negative is refused.
        n = n.checked_mul(size(d)?.max(0).unsigned_abs())?;
    }
    // Whole words, so that packed types can be written by word.
    Some(f.ty.dtype.bytes_for(n)?.checked_add(3)? / 4 * 4)
}

/// Facts of all values at the least, usual and greatest shapes of every profile, but for those that no run can have.
pub fn profile_ends(g: &Graph, config: &BuildConfig) -> Result<Vec<Vec<Fact>>, BuildError> {
    let io = graph_io(g);
    let mut all = Vec::new();
    if config.profiles.is_empty() {
        let own: Vec<Fact> = g.inputs.iter().map(|&v| g.value(v).fact.clone()).collect();
        all.extend(g.infer_from(&own));
    }
    for profile in &config.profiles {
        let points = profile.points(&io).map_err(|e| BuildError::Profile(e.to_string()))?;
        all.extend(points.iter().filter_map(|inputs| g.infer_from(inputs).ok()));
    }
    Ok(all)
}

fn check_static(g: &Graph, facts: &[Fact]) -> Result<(), BuildError> {
    match facts.iter().zip(&g.inputs).find(|(f, _)| f.ty.static_dims().is_none()) {
        None => Ok(()),
        Some((f, &v)) => Err(BuildError::Profile(format!(
            "input \"{}\" has dynamic dimensions ({}); give its least, usual and greatest shape",
            g.value(v).name,
            f.ty
        ))),
    }
}
