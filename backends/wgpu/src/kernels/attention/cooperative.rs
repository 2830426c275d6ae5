//! Attention by cooperative matrices: no scores in memory.

use crate::kernels::cooperative::{part_and_lanes, part_types};
use crate::wgsl::types::decode;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::attention::{MASK, Problem, body, hidden_score, unmoved};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, Views};
use kiln_ir::DType;

const NAME: &str = "attention.cooperative";

pub const KERNELS: &[Kernel] = &[Kernel {
    name: NAME,
    ops: &["attention"],
    epilogue: true,
    views: Views::Rows,
    side_results: false,
    tactics,
    source,
    launch,
}];

/// Inputs behind queries, keys and values that the kernel does not read.
const PAST: usize = 4;
const NONPAD: usize = 6;

/// Parts of the results that a subgroup can keep, and parts of queries.
const RESULTS: usize = 8;
const QUERIES: usize = 16;

/// Subgroups of a workgroup.
const SUBGROUPS: usize = 4;

/// Subgroups that share rows, and parts of keys that are loaded at once; those with most rows first.
const STRIPS: &[(usize, usize)] = &[(1, 4), (1, 2), (2, 2)];

/// The part of the queries that one workgroup has.
#[derive(Clone, Copy)]
struct Strip {
    /// Rows and columns of a part of a matrix.
    part: usize,
    /// Threads of a subgroup.
    lanes: usize,
    /// Components of a head, with those that fill it up to whole parts.
    head: usize,
    /// Subgroups that share the columns of rows.
    split: usize,
    /// Keys that are loaded at once.
    keys: usize,
}

impl Strip {
    /// The strips for heads of so many components, on a device with such parts and subgroups.
    fn all(part: usize, lanes: usize, size: usize) -> impl Iterator<Item = Strip> {
        let of = move |&(split, keys): &(usize, usize)| {
            let head = size.max(1).next_multiple_of(part * split);
            Strip { part, lanes, head, split, keys: keys * part }
        };
        STRIPS.iter().map(of).filter(Strip::is_possible)
    }

    /// Whether registers have the results, and the threads of a workgroup share rows and scores evenly.
    fn is_possible(&self) -> bool {
        self.lanes > 0
            && self.lanes.is_multiple_of(self.part)
            && self.head <= RESULTS * self.part * self.split
            && self.head <= QUERIES * self.part
            && self.rows() <= 2 * self.keys
            && (self.keys * self.rows()).is_multiple_of(4 * self.threads())
    }

    fn rows(&self) -> usize {
        SUBGROUPS / self.split * self.part
    }

    fn threads(&self) -> usize {
        SUBGROUPS * self.lanes
    }

    /// Bytes of workgroup memory.
    fn memory(&self) -> usize {
        let lines = 2 * self.keys * (self.head + 8) * 2;
        let scores = self.rows() * (self.keys + 8) * (4 + 2);
        lines + scores + self.threads() * 4 + 8
    }

    /// Iterations of a thread for the keys that are loaded at once.
    fn cost(&self) -> usize {
        let quads = self.keys * self.head / 4;
        let loads = 4 * quads.div_ceil(8 * self.threads()) + 64;
        let own = self.keys * self.rows() / 4 / self.threads();
        let rows = self.threads() / self.rows() + RESULTS * (self.lanes * self.part).div_ceil(4);
        loads + 6 * own + rows + 2 * self.keys / self.part
    }

    fn tactic(&self) -> Tactic {
        let numbers = [("part", self.part), ("lanes", self.lanes), ("head", self.head), ("keys", self.keys)];
        let named = numbers.into_iter().fold(Tactic::plain(NAME), |t, (name, n)| t.with(name, n as i64));
        named.with("split", self.split as i64)
    }

    /// The strip that a tactic names.
    fn of(t: &Tactic) -> Result<Strip, BackendError> {
        let param = |name| t.params.get(name).map_or(0, |&v| v.clamp(0, 1 << 10) as usize);
        let (part, lanes, head) = (param("part"), param("lanes"), param("head"));
        let named = |s: &Strip| s.tactic().params == t.params;
        let found = [8, 16].contains(&part).then(|| Strip::all(part, lanes, head).find(named)).flatten();
        found.map_or_else(|| unsupported(format!("{}: no such strip", t.id())), Ok)
    }
}

/// Sizes of a problem that is known.
struct Sizes {
    batch: usize,
    heads: usize,
    queries: usize,
    keys: usize,
    size: usize,
}

impl Sizes {
    fn of(site: &Site<'_>) -> Option<Sizes> {
        let (_, node) = site.anchor?;
        let dims = |j: usize| site.graph.ty(*node.outputs.get(j)?).static_dims();
        let ([.., size], [.., v_size]) = (&dims(1)?[..], &dims(2)?[..]) else { return None };
        let &[batch, heads, queries, keys] = &dims(3)?[..] else { return None };
        Some(Sizes { batch, heads, queries, keys, size: *size.max(v_size) })
    }

    /// Estimated time: two products, and a power a score.
    fn estimate_ns(&self, s: &Strip, causal: bool, software: bool) -> f64 {
        let strips = self.queries.div_ceil(s.rows()) * self.batch * self.heads;
        let scores = (strips * s.rows() * self.keys.next_multiple_of(s.keys)) as f64;
        let seen = if causal { 0.5 } else { 1.0 };
        let idle = (256.0 / strips.max(1) as f64).max(1.0);
        let each = match software {
            true => 2.0 * s.head as f64 * 0.6 + 30.0,
            false => (s.head as f64 * 0.00003 + 0.002) * idle,
        };
        1000.0 + scores * seen * each
    }
}

fn tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    unmoved(site)?;
    let attrs = site.op()?.attrs();
    if (0..3).any(|i| site.dtype(i) != Some(DType::F16)) || !site.out_dtype(0).is_float() {
        return unsupported("cooperative matrices of other types than f16");
    }
    if [PAST, PAST + 1, NONPAD].iter().any(|&i| site.dtype(i).is_some()) {
        return unsupported("keys of the past, or lengths, by cooperative matrices");
    }
    if (1..4).any(|j| site.wanted(j)) || attrs.bool("zero_nan").map_err(op_error)? {
        return unsupported("scores that are read, by cooperative matrices");
    }
    let (part, lanes) = part_and_lanes(site)?;
    let Some(sizes) = Sizes::of(site) else {
        return unsupported("heads of unknown size by cooperative matrices");
    };
    let number = |name| site.target.numbers.get(name).map_or(0, |&n| n as usize);
    let fits =
        |s: &Strip| s.threads() <= number("workgroup_threads") && s.memory() <= number("shared_memory");
    let (causal, software) = (attrs.bool("causal").map_err(op_error)?, site.target.has("software"));
    let tactic = |s: Strip| {
        let estimate_ns = Some(sizes.estimate_ns(&s, causal, software));
        Tactic { leaves_unread: true, estimate_ns, ..s.tactic() }
    };
    let strips: Vec<Strip> = Strip::all(part, lanes, sizes.size).filter(fits).collect();
    // Rows are shared only where none of fewer subgroups fit.
    let least = strips.iter().map(|s| s.split).min();
    let found: Vec<Tactic> = strips.into_iter().filter(|s| Some(s.split) == least).map(tactic).collect();
    match found.is_empty() {
        true => unsupported(format!("heads of {} components by cooperative matrices", sizes.size)),
        false => Ok(found),
    }
}

fn source(site: &Site<'_>, t: &Tactic) -> Result<Body, BackendError> {
    let s = Strip::of(t)?;
    let number = |name: &str, n: usize| site.constant(name, "u32", format_args!("{n}u"));
    let hooks = body(site)?;
    let code = number("PART", s.part)
        + &number("LANES", s.lanes)
        + &number("SUBGROUPS", SUBGROUPS)
        + &number("SPLIT", s.split)
        + &number("HEAD", s.head)
        + &number("KEYS", s.keys)
        + &part_types(site, s.part)
        + &biases(site)?;
    Ok(Body {
        files: vec!["attention/cooperative", "attention/attention"],
        entries: vec![Entry::blocks("attention_cooperative", s.threads() as u32)],
        unwritten: (1..4).filter(|&j| !site.wanted(j)).collect(),
        scratch: false,
        ..hooks.with(code)
    })
}

/// The functions `masked_quad(at, step)` and `masked_word(at)`: biases of four keys, those from the start of a word on.
fn biases(site: &Site<'_>) -> Result<String, BackendError> {
    let t = site.dtype(MASK);
    let hidden = if hidden_score(site)?.is_some() { "0x7f800000u" } else { "0xff800000u" };
    let bias = |four: String| match t {
        Some(DType::Bool) => format!("select(vec4<f32>(cf({hidden})), vec4<f32>(), {four})"),
        _ => four,
    };
    let word = |t: DType| {
        let lanes = 32 / t.bits();
        let of =
            |c: u32| decode(t, &format!("w3(at / {lanes}u + {}u)", c / lanes), &format!("{}u", c % lanes));
        (0..4).map(of).collect::<Vec<_>>().join(", ")
    };
    let (quad, word) = match t {
        None => ("vec4<f32>()".to_owned(), "vec4<f32>()".to_owned()),
        Some(t @ DType::Bool) => (bias("fx3(at, step)".into()), bias(format!("vec4<bool>({})", word(t)))),
        Some(t @ (DType::F16 | DType::BF16)) => ("fx3(at, step)".into(), format!("vec4<f32>({})", word(t))),
        Some(_) => ("fx3(at, step)".into(), "fx3(at, 1u)".into()),
    };
    let of = |name: &str, arguments: &[(&str, &str)], value: &str| {
        site.function(name, arguments, "vec4<f32>", value)
    };
    Ok(of("masked_quad", &[("at", "u32"), ("step", "u32")], &quad)
        + &of("masked_word", &[("at", "u32")], &word))
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (p, s) = (Problem::of(cx)?, Strip::of(cx.tactic)?);
    let longest = p.keys.div_ceil(s.keys).saturating_mul(s.cost()) + 4 * s.head + 512;
    if longest > cx.rounds {
        return unsupported(format!(
            "{} keys: loops of {longest} iterations, {} are possible",
            p.keys, cx.rounds
        ));
    }
    let strips = p.queries.div_ceil(s.rows()) as u64;
    let groups = strips * (p.batch * p.heads) as u64;
    Ok(vec![Launch::map(0, p.params().words()?).on(Grid::Groups(groups))])
}
