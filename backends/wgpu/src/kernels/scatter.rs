//! Updates of many places at once, combined by atomic operations whose result does not depend on their order.

use kiln_backend::{BackendError, Tactic};
use kiln_codegen::scatter::combine;
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch};
use kiln_ir::DType;
use kiln_ops::scatter::SCATTER_ND;
use kiln_ops::util::strides;

pub const KERNELS: &[Kernel] = &[
    Kernel { tactics, ..Kernel::alone("scatter_elements.places", &["scatter_elements"], source, launch) },
    Kernel { tactics, ..Kernel::alone("scatter_nd.places", &["scatter_nd"], source, launch) },
];

kiln_codegen::params! {
    /// Updates of places by words in scratch memory.
    struct ScatterSlotsParams {
        /// Updates of the launch.
        updates: u32,
        /// Elements of a tuple's slice.
        slice: u32,
        /// Elements of x along the axis.
        size: u32,
        /// Elements of x from one to the next along the axis.
        stride: u32,
        /// Bits that a sum of floats may have more than its updates.
        spare: u32,
        /// Elements of the result.
        results: u32,
        /// Dimensions of the indices; of tuples those of x that their indices are of.
        sizes: [u32],
        /// Strides of x along them, 0 along the axis.
        strides: [u32],
    }
}

/// Contents of a place's words.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// The number of the last update.
    Last,
    /// A sum of integers.
    Sum,
    /// A sum of integers of 64 bits.
    Wide,
    /// A product of integers.
    Product,
    /// The greatest or least update.
    Extremum,
    /// A sum of floats.
    Real,
    /// A sum of f16, exactly.
    Half,
}

impl Mode {
    /// The words of a reduction of so many updates at most.
    fn of(reduction: &str, t: DType, updates: usize) -> Result<Mode, BackendError> {
        match reduction {
            _ if t.bits() < 8 => unsupported(format!("updates of {t}, which shares bytes, at once")),
            "add" | "mul" if t == DType::Bool => unsupported("sums of truth values at once"),
            "add" if t == DType::F16 && updates <= MAX_HALVES => Ok(Mode::Half),
            "add" if t.is_float() => Ok(Mode::Real),
            "add" if t == DType::I64 => Ok(Mode::Wide),
            "add" => Ok(Mode::Sum),
            "mul" if t.is_float() => unsupported("products of floats, which depend on their order, at once"),
            "mul" | "max" | "min" if t == DType::I64 => {
                unsupported(format!("\"{reduction}\" of {t} at once"))
            }
            "mul" => Ok(Mode::Product),
            "max" | "min" => Ok(Mode::Extremum),
            _ => Ok(Mode::Last),
        }
    }

    /// Words of a place.
    fn words(self) -> usize {
        match self {
            Mode::Real | Mode::Half => 3,
            Mode::Wide => 2,
            _ => 1,
        }
    }
}

fn mode(cx: &Cx<'_>) -> Result<Mode, BackendError> {
    let t = cx.outputs.first().map_or(DType::F32, |f| f.ty.dtype);
    Mode::of(cx.op()?.attrs().str("reduction").map_err(op_error)?, t, cx.shape(1)?.iter().product())
}

/// The mode of a region, whose number of indices has to be known.
fn mode_of(site: &Site<'_>) -> Result<Mode, BackendError> {
    let Some(indices) = site.input(1).and_then(|v| site.graph.ty(v).static_volume()) else {
        return unsupported("updates at once of numbers of indices that are not known");
    };
    let reduction = site.op()?.attrs().str("reduction").map_err(op_error)?;
    Mode::of(reduction, site.out_dtype(0), indices)
}

/// The most updates, so that sums of floats have enough bits.
const MAX_UPDATES: usize = 1 << 24;

/// The most updates of f16 whose sum in units of 2^-24 has 63 bits: each has 40.
const MAX_HALVES: usize = 1 << 22;

fn tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    let op = site.op()?;
    let mode = mode_of(site)?;
    let volume = |i: usize| site.input(i).and_then(|v| site.graph.ty(v).static_volume());
    let (Some(results), Some(indices)) = (volume(0), volume(1)) else {
        return unsupported("updates at once of numbers of elements that are not known");
    };
    let (bytes, most) = (results as u64 * mode.words() as u64 * 4, site.target.memory.max_binding);
    if indices > MAX_UPDATES || bytes > most {
        return unsupported(format!(
            "updates at once by {indices} indices in {bytes} bytes; {MAX_UPDATES} and {most} are possible"
        ));
    }
    let name = if op.is(SCATTER_ND) { "scatter_nd.places" } else { "scatter_elements.places" };
    let estimate_ns = Some(4000.0 + (bytes * 3) as f64 * 0.01);
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain(name) }])
}

const CLEAR: usize = 0;
const UPDATES: usize = 1;
const FINISH: usize = 2;
/// Only for sums of floats.
const EXPONENTS: usize = 3;

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let (op, t) = (site.op()?, site.out_dtype(0));
    let reduction = op.attrs().str("reduction").map_err(op_error)?;
    let mode = mode_of(site)?;
    // The function that combines an update, and the result of a place.
    let (put, result) = match mode {
        Mode::Last => ("put_last(place, t)", "last_of(at)"),
        Mode::Sum => ("put_sum(place, t)", "x0(at) + bitcast<i32>(word_of(at))"),
        Mode::Wide => (
            "add_wide(place, bits_of(x2(t)), bits_of(x2(t) >> 32u))",
            "x0(at) + ci64(word_of(high_of(at)), word_of(at))",
        ),
        Mode::Product => ("put_product(place, t)", "x0(at) * bitcast<i32>(word_of(at))"),
        Mode::Extremum => ("put_extremum(place, t)", "extremum_of(at, word_of(at))"),
        Mode::Real | Mode::Half => ("put_real(place, t)", "real_of(at)"),
    };
    let value = kiln_codegen::scalar::register(t);
    let best = match t {
        DType::Bool => ("integer_rank(select(0, 1, v))", "integer_of_rank(rank) != 0"),
        t if t.is_float() => ("float_rank(v)", "float_of_rank(rank)"),
        _ => ("integer_rank(v)", "integer_of_rank(rank)"),
    };
    let mut code = site.alias("Value", t)
        + &site.alias("Index", site.dtype(1).unwrap_or(DType::I32))
        + &site.constant("START", "u32", if mode == Mode::Product { "1u" } else { "0u" })
        + &site.constant("TUPLES", "bool", op.is(SCATTER_ND))
        + &site.constant("LAST", "bool", mode == Mode::Last)
        + &site.constant("LEAST", "bool", reduction == "min")
        + &site.constant("HALVES", "bool", mode == Mode::Half)
        + &format!("fn put_update(place: u32, t: u32) {{ {put}; }}\n")
        + &site.function("finish_place", &[("at", "u32")], value, result);
    if matches!(mode, Mode::Sum | Mode::Product | Mode::Wide) {
        code += &site.function("bits_of", &[("v", "Value")], "u32", "bitcast<u32>(i32(v))");
    }
    if mode == Mode::Extremum {
        code += &site.function("rank_of", &[("v", "Value")], "u32", best.0);
        code += &site.function("of_rank", &[("rank", "u32")], "Value", best.1);
        code += &combine(site)?;
        let found = "select(combine(x0(at), of_rank(rank)), x0(at), rank == 0u)";
        code += &site.function("extremum_of", &[("at", "u32"), ("rank", "u32")], "Value", found);
    }
    let silent = |name| Entry::threads(name).silent();
    let mut entries = vec![silent("clear_places"), silent("put_updates"), Entry::Element(0, "finish_place")];
    let mut files = vec!["gather/gather", "scatter/places", "scatter/words"];
    if mode == Mode::Real {
        entries.push(silent("raise_exponents"));
    }
    if matches!(mode, Mode::Real | Mode::Half) {
        files.push("scatter/reals");
    }
    Ok(Body { code, files, entries, scratch: true, ..Body::default() })
}

/// Bits that count so many.
fn bits(n: usize) -> usize {
    n.max(1).next_power_of_two().ilog2() as usize
}

/// The parameters of a launch, and the number of its places.
fn places(cx: &Cx<'_>, mode: Mode) -> Result<(ScatterSlotsParams, usize), BackendError> {
    let (x, i) = (cx.shape(0)?, cx.shape(1)?);
    let (results, own) = (x.iter().product(), strides(&x));
    if !cx.op()?.is(SCATTER_ND) {
        let axis = cx.axis(x.len())?;
        let by = (0..i.len()).map(|d| if d == axis { 0 } else { own[d] }).collect();
        let params = ScatterSlotsParams {
            updates: i.iter().product(),
            slice: 1,
            size: x[axis],
            stride: own[axis],
            spare: bits(i[axis]),
            results,
            sizes: i,
            strides: by,
        };
        return Ok((params, results));
    }
    let (depth, lead) = i.split_last().map_or((0, &[][..]), |(&depth, lead)| (depth, lead));
    let (tuples, slice) = (lead.iter().product(), x[depth..].iter().product::<usize>());
    // The last update of a slice is found for all of its elements together.
    let (updates, words) = match mode {
        Mode::Last => (tuples, results.checked_div(slice).unwrap_or(0)),
        _ => (tuples * slice, results),
    };
    let (sizes, strides) = (x[..depth].to_vec(), own[..depth].to_vec());
    let params = ScatterSlotsParams {
        updates,
        slice,
        size: 0,
        stride: 0,
        spare: bits(tuples),
        results,
        sizes,
        strides,
    };
    Ok((params, words))
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let mode = mode(cx)?;
    let (params, places) = places(cx, mode)?;
    if params.results == 0 {
        return Ok(Vec::new());
    }
    if params.spare > bits(MAX_UPDATES) {
        return unsupported(format!("{} updates at once", params.updates));
    }
    let (w, words) = (params.words()?, places * mode.words());
    let step = |entry, threads: usize| {
        Launch::map(entry, w.clone()).on(Grid::Threads(threads as u64)).scratch(words as u64 * 4)
    };
    let mut all = vec![step(CLEAR, words)];
    if params.updates > 0 && mode == Mode::Real {
        all.push(step(EXPONENTS, params.updates));
    }
    if params.updates > 0 {
        all.push(step(UPDATES, params.updates));
    }
    all.push(Launch::map(FINISH, w).scratch(words as u64 * 4));
    Ok(all)
}
