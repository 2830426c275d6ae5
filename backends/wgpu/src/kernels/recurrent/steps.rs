//! Recurrences step by step, a launch each, by all workgroups together. Products of inputs are made in front of the steps at once.

use crate::kernels::cooperative::{CooperativeTile, Lines};
use crate::kernels::tile::{TILES, Tile, launches, tile_body};
use crate::wgsl::types::decode;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::recurrent::{body, sizes};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch};
use kiln_ir::Op;
use kiln_ops::recurrent::{GRU, LSTM};

pub const KERNELS: &[Kernel] = &[
    Kernel {
        tactics: cooperative_tactics,
        ..Kernel::alone(COOPERATIVE, &["rnn", "gru", "lstm"], cooperative_source, launch)
    },
    Kernel { tactics, ..Kernel::alone("recurrent.steps", &["rnn", "gru", "lstm"], source, launch) },
];

/// Steps whose products of inputs are by cooperative matrices.
const COOPERATIVE: &str = "recurrent.cooperative";

/// The most steps: each is a launch.
const MOST_STEPS: usize = 4096;

/// Nanoseconds of a step.
const STEP_NS: f64 = 8000.0;

/// Threads of a workgroup that makes a step, and the elements of a state and the sequences that it makes.
const THREADS: u32 = 256;
const UNITS: usize = 4;
const TOGETHER: usize = 8;

/// The tile of products of inputs.
const TILE: Tile = TILES[0];

/// Gates of an operator.
fn gates(op: &Op) -> usize {
    match op.id() {
        LSTM => 4,
        GRU => 3,
        _ => 1,
    }
}

/// Bytes of scratch memory: three numbers of each element of a state, and the products of inputs.
fn bytes(sequences: usize, hidden: usize, steps: usize, gates: usize) -> u64 {
    let elements = sequences.saturating_mul(hidden).saturating_mul(3 + steps.saturating_mul(gates));
    (elements as u64).saturating_mul(4)
}

/// Sizes of a recurrence that are known when it is built.
struct Known {
    steps: usize,
    batch: usize,
    directions: usize,
    hidden: usize,
}

/// Reads the sizes; refuses what steps cannot make.
fn known(site: &Site<'_>) -> Result<Known, BackendError> {
    let op = site.op()?;
    if op.is(GRU) && !op.attrs().bool("linear_before_reset").map_err(op_error)? {
        return unsupported("a reset in front of products: a step needs the whole state that it resets");
    }
    let dims = |i: usize| site.input(i).and_then(|v| site.graph.ty(v).static_dims());
    let (Some(x), Some(r)) = (dims(0), dims(2)) else {
        return unsupported("products of inputs whose number is not known");
    };
    let (&[a, b, _], &[directions, _, hidden]) = (&x[..], &r[..]) else {
        return unsupported(format!("inputs of {} dimensions", x.len()));
    };
    let batch_first = op.attrs().int("layout").map_err(op_error)? == 1;
    let (steps, batch) = if batch_first { (b, a) } else { (a, b) };
    let (bytes, most) = (bytes(directions * batch, hidden, steps, gates(op)), site.target.memory.max_binding);
    if steps > MOST_STEPS || bytes > most {
        return unsupported(format!(
            "{steps} launches and {bytes} bytes for products of inputs; {MOST_STEPS} and {most} are possible"
        ));
    }
    Ok(Known { steps, batch, directions, hidden })
}

/// Estimated time of all launches, with so many more for products of inputs.
fn estimate_ns(site: &Site<'_>, k: &Known, more: usize) -> Option<f64> {
    (!site.target.has("software")).then_some(STEP_NS * (k.steps + more) as f64)
}

fn tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    let k = known(site)?;
    Ok(vec![Tactic { estimate_ns: estimate_ns(site, &k, 20), ..Tactic::plain("recurrent.steps") }])
}

fn cooperative_tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    let k = known(site)?;
    let sizes = (k.steps * k.batch, gates(site.op()?) * k.hidden, k.directions);
    let tile = CooperativeTile::fitting(site, sizes)?;
    Ok(vec![Tactic { estimate_ns: estimate_ns(site, &k, 2), ..tile.tactic(COOPERATIVE) }])
}

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    stepwise(site, tile_body(site, "recurrent/inputs", "recur_inputs", TILE))
}

fn cooperative_source(site: &Site<'_>, t: &Tactic) -> Result<Body, BackendError> {
    let lines = Lines { a: true, b: true, by_columns: false };
    let mut products = CooperativeTile::of(t)?.body(site, ("recurrent/products", [0, 1]), &lines);
    products.files.push("recurrent/inputs");
    stepwise(site, products)
}

/// The body of steps behind products of inputs.
fn stepwise(site: &Site<'_>, products: Body) -> Result<Body, BackendError> {
    let around = ["recur_start", "recur_finish"].map(Entry::threads);
    let entries = products.entries.into_iter().chain(around).chain([Entry::blocks("recur_step", THREADS)]);
    let all = body(site, entries.collect())?;
    let files = ["recurrent/steps"].into_iter().chain(products.files).chain(all.files.iter().copied());
    Ok(Body { files: files.collect(), ..all }.with(products.code + &whole_four(site)))
}

/// The function `whole_four(at)`: four weights of states from the start of a word on.
fn whole_four(site: &Site<'_>) -> String {
    let each: Vec<String> = match site.dtype(2) {
        Some(t) if t.bits() == 16 => {
            (0..4).map(|c| decode(t, &format!("w2(at / 2u + {}u)", c / 2), &format!("{}u", c % 2))).collect()
        }
        _ => (0..4).map(|c| format!("x2(at + {c}u)")).collect(),
    };
    site.function("whole_four", &[("at", "u32")], "vec4<f32>", &format!("vec4<f32>({})", each.join(", ")))
}

/// Numbers of the entry points.
const INPUTS: usize = 0;
const START: usize = 1;
const FINISH: usize = 2;
const STEP: usize = 3;

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (s, gates) = (sizes(cx)?, gates(cx.op()?));
    let directions = cx.shape(2)?[0];
    let (sequences, words) = (s.sequences as usize, s.params.words()?);
    let batch = sequences.checked_div(directions).unwrap_or(0);
    let scratch = bytes(sequences, s.hidden, s.steps, gates);
    let of = |entry, grid| Launch::map(entry, words.clone()).on(grid).scratch(scratch);
    let elements = Grid::Threads(s.sequences * s.hidden as u64);
    let mut all = vec![of(START, elements).span(0, 1)?];
    let (rows, cols) = (s.steps * batch, gates * s.hidden);
    let (tiles, depth, cost) = match cx.tactic.name == COOPERATIVE {
        true => {
            let t = CooperativeTile::of(cx.tactic)?;
            (t.groups(rows, cols, directions), t.k, t.cost() + 32)
        }
        false => (TILE.groups(rows, cols, directions), TILE.k, TILE.cost() + 3),
    };
    all.extend(launches(cx, of(INPUTS, Grid::Groups(tiles)), s.inputs, (depth, cost))?);
    let groups = s.hidden.div_ceil(UNITS) * batch.div_ceil(TOGETHER) * directions;
    for k in 0..s.steps {
        all.push(of(STEP, Grid::Groups(groups as u64)).span(k, k + 1)?);
    }
    all.push(of(FINISH, elements).span(s.steps, s.steps + 1)?);
    Ok(all)
}
