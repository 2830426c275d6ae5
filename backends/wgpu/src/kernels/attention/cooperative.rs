//! Attention by cooperative matrices: no scores in memory.

use crate::kernels::cooperative::{part_and_lanes, part_types};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::attention::{Problem, body, unmoved};
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

/// Parts of a head that a subgroup can keep.
const PARTS: usize = 16;

/// Components that heads are filled up to.
const HEADS: [usize; 3] = [64, 128, 256];

/// The part of the queries that one workgroup has.
#[derive(Clone, Copy)]
struct Strip {
    /// Rows and columns of a part of a matrix.
    part: usize,
    /// Threads of a subgroup.
    lanes: usize,
    /// Components of a head, those that are none too.
    head: usize,
}

impl Strip {
    /// Subgroups of the workgroup, each of which has as many queries as a part has rows.
    fn subgroups(&self) -> usize {
        if self.head > 128 { 2 } else { 4 }
    }

    fn rows(&self) -> usize {
        self.subgroups() * self.part
    }

    fn threads(&self) -> usize {
        self.subgroups() * self.lanes
    }

    /// Keys that are loaded at once.
    fn keys(&self) -> usize {
        if self.head > 64 { 2 * self.part } else { 4 * self.part }
    }

    /// Bytes of workgroup memory.
    fn memory(&self) -> usize {
        let lines = (self.rows() + self.keys()) * (self.head + 8) * 2;
        let scores = self.rows() * ((self.keys() + 4) * 4 + (self.keys() + 8) * 2);
        lines + scores + self.threads() * 8
    }

    /// Iterations of a thread for each key that is loaded at once, in both passes.
    fn cost(&self) -> usize {
        let loads = self.keys() * self.head / 4 / self.threads() + 2;
        let own = self.keys() * self.part / 4 / self.lanes + 2;
        3 * loads + 3 * own + 2 * self.head / self.part + self.keys() / self.part + 8
    }

    fn tactic(&self) -> Tactic {
        let (head, part, lanes) = (self.head as i64, self.part as i64, self.lanes as i64);
        Tactic::plain(NAME).with("head", head).with("part", part).with("lanes", lanes)
    }

    /// The strip that a tactic names.
    fn of(t: &Tactic) -> Result<Strip, BackendError> {
        let param = |name| t.params.get(name).map_or(0, |&v| v.clamp(0, 1 << 10) as usize);
        let strip = Strip { part: param("part"), lanes: param("lanes"), head: param("head") };
        let fits = [8, 16].contains(&strip.part) && HEADS.contains(&strip.head) && strip.shares();
        if fits { Ok(strip) } else { unsupported(format!("{}: no such strip", t.id())) }
    }

    /// Whether the threads of a subgroup can share the rows of a part.
    fn shares(&self) -> bool {
        self.lanes > 0 && self.lanes.is_multiple_of(self.part) && self.keys() * self.part >= 4 * self.lanes
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

    /// Estimated time: three products, and two powers a score.
    fn estimate_ns(&self, s: &Strip, causal: bool, software: bool) -> f64 {
        let strips = self.queries.div_ceil(s.rows()) * self.batch * self.heads;
        let scores = (strips * s.rows() * self.keys.next_multiple_of(s.keys())) as f64;
        let seen = if causal { 0.5 } else { 1.0 };
        let idle = (256.0 / strips.max(1) as f64).max(1.0);
        let each = match software {
            true => 3.0 * s.head as f64 * 0.6 + 40.0,
            // Fitted to three shapes on an H200.
            false => (s.head as f64 * 0.00033 + 0.011) * idle,
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
    let mut strips = HEADS.iter().map(|&head| Strip { part, lanes, head });
    let fits = |s: &Strip| {
        s.head >= sizes.size
            && s.head <= PARTS * part
            && s.shares()
            && s.threads() <= number("workgroup_threads")
            && s.memory() <= number("shared_memory")
    };
    let Some(strip) = strips.find(fits) else {
        return unsupported(format!("heads of {} components by cooperative matrices", sizes.size));
    };
    let causal = attrs.bool("causal").map_err(op_error)?;
    let estimate_ns = Some(sizes.estimate_ns(&strip, causal, site.target.has("software")));
    Ok(vec![Tactic { leaves_unread: true, estimate_ns, ..strip.tactic() }])
}

fn source(site: &Site<'_>, t: &Tactic) -> Result<Body, BackendError> {
    let s = Strip::of(t)?;
    let number = |name: &str, n: usize| site.constant(name, "u32", format_args!("{n}u"));
    let hooks = body(site)?;
    let code = number("PART", s.part)
        + &number("LANES", s.lanes)
        + &number("SUBGROUPS", s.subgroups())
        + &number("HEAD", s.head)
        + &number("KEYS", s.keys())
        + &part_types(site, s.part);
    Ok(Body {
        files: vec!["attention/cooperative", "attention/attention"],
        entries: vec![Entry::blocks("attention_cooperative", s.threads() as u32)],
        unwritten: (1..4).filter(|&j| !site.wanted(j)).collect(),
        scratch: false,
        ..hooks.with(code)
    })
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (p, s) = (Problem::of(cx)?, Strip::of(cx.tactic)?);
    let longest = p.keys.div_ceil(s.keys()).saturating_mul(s.cost()) + 2 * s.head;
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
