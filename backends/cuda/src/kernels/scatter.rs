//! Updates of many places at once, combined by atomic operations whose result does not depend on their order.

pub mod copies;
pub mod sums;

use super::alone;
use super::divisor::{Divisor, Divisors};
use super::shape::{input, moving, output, product, traffic};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::scatter::{combine, moved_updates};
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::views::coalesce;
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch};
use kiln_ir::DType;
use kiln_ops::scatter::SCATTER_ND;
use kiln_ops::util::strides;

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    alone(
        "scatter_elements.places",
        &["scatter_elements"],
        tactics,
        |site, _| source(site),
        |cx| launch(cx, elements(cx)?),
    )
    .framed(),
    alone(
        "scatter_nd.places",
        &["scatter_nd"],
        tactics,
        |site, _| source(site),
        |cx| launch(cx, tuples(cx)?),
    )
    .framed(),
];

kiln_codegen::params! {
    /// Updates of places by words in scratch memory.
    struct ScatterPlacesParams {
        /// Elements of the result.
        results: u32,
        /// Updates, or tuples where the last update of a slice is wanted.
        updates: u32,
        /// Elements of a tuple's slice.
        slice: u32,
        /// Factor of divisions by it.
        slice_factor: u32,
        /// Shift of divisions by it.
        slice_shift: u32,
        /// Elements of x along the axis.
        size: u32,
        /// Elements of x from one to the next along the axis.
        stride: u32,
        /// Bits that a sum of floats may have more than its updates.
        spare: u32,
        /// Whether x and the result are one.
        aliased: u32,
        /// Dimensions of the indices, the last one first; of tuples those of x that their indices are of.
        sizes: [u32],
        /// Factors of divisions by them.
        factors: [u32],
        /// Shifts of divisions by them.
        shifts: [u32],
        /// Strides of x along them.
        strides: [u32],
    }
}

/// Contents of a word in scratch memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// The number of the last update.
    Last,
    /// A sum of integers.
    Sum,
    /// A product of integers.
    Product,
    /// A sum of floats.
    Real,
    /// The greatest or least update.
    Extremum,
}

impl Mode {
    fn of(reduction: &str, t: DType) -> Result<Mode, BackendError> {
        match reduction {
            _ if t.bits() < 8 => unsupported(format!("updates of {t}, which shares bytes, at once")),
            "add" | "mul" if t == DType::Bool => unsupported("sums of truth values at once"),
            "add" if t.is_float() => Ok(Mode::Real),
            "add" => Ok(Mode::Sum),
            "mul" if t.is_float() => unsupported("products of floats, which depend on their order, at once"),
            "mul" => Ok(Mode::Product),
            "max" | "min" => Ok(Mode::Extremum),
            _ => Ok(Mode::Last),
        }
    }

    /// Its name in the kernel's file.
    fn name(self) -> &'static str {
        match self {
            Mode::Last => "LAST",
            Mode::Sum => "SUM",
            Mode::Product => "PRODUCT",
            Mode::Real => "REAL",
            Mode::Extremum => "EXTREMUM",
        }
    }

    /// Whether a word has 64 bits.
    fn wide(self, t: DType) -> bool {
        self == Mode::Real || (self != Mode::Last && t == DType::I64)
    }

    /// Whether sums of floats are relative to the greatest exponent of a place.
    fn scaled(self, t: DType) -> bool {
        self == Mode::Real && matches!(t, DType::F32 | DType::BF16)
    }

    /// Bytes of scratch memory of a place.
    fn bytes(self, t: DType) -> u64 {
        4 + if self.wide(t) { 4 } else { 0 } + if self.scaled(t) { 4 } else { 0 }
    }
}

fn mode(cx: &Cx<'_>) -> Result<(Mode, DType), BackendError> {
    let t = cx.outputs.first().map_or(DType::F32, |f| f.ty.dtype);
    Ok((Mode::of(cx.op()?.attrs().str("reduction").map_err(op_error)?, t)?, t))
}

/// Elements of a result at most, as each has scratch memory.
const MAX_RESULTS: usize = 1 << 27;
/// The most updates of one place, for sums of floats.
const MAX_UPDATES: usize = 1 << 24;

/// Elements of the result; refuses numbers of elements and indices that are not known, or for which there is no room.
fn moved(site: &Site<'_>) -> Result<usize, BackendError> {
    let known =
        output(site, 0).and_then(|y| y.static_volume()).zip(input(site, 1).and_then(|i| product(&i.dims)));
    let Some((results, indices)) = known else {
        return unsupported("updates at once of numbers of elements that are not known");
    };
    if results > MAX_RESULTS || indices > MAX_UPDATES * 64 {
        return unsupported(format!("updates at once of {results} elements by {indices} indices"));
    }
    Ok(results)
}

fn tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    moved_updates(site)?;
    let op = site.op()?;
    let t = site.out_dtype(0);
    let mode = Mode::of(op.attrs().str("reduction").map_err(op_error)?, t)?;
    let results = moved(site)?;
    let name = if op.is(SCATTER_ND) { "scatter_nd.places" } else { "scatter_elements.places" };
    let estimate_ns = traffic(site).map(|bytes| {
        let words = results as f64 * mode.bytes(t) as f64 * 3.0;
        let passes = if mode.scaled(t) { 2.5 } else { 1.5 };
        moving(site.target, words + bytes * passes, 1.3) + 4000.0
    });
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain(name) }])
}

/// Updates of a thread at most.
const EACH: usize = 4;

const CLEAR: usize = 0;
const UPDATES: usize = 1;
const FINISH: usize = 2;
/// Only where sums of floats are scaled.
const EXPONENTS: usize = 3;

fn source(site: &Site<'_>) -> Result<Body, BackendError> {
    let op = site.op()?;
    let reduction = op.attrs().str("reduction").map_err(op_error)?;
    let t = site.out_dtype(0);
    let mode = Mode::of(reduction, t)?;
    let word = if mode.wide(t) { "u64" } else { "u32" };
    let number = match t {
        DType::I64 => "i64",
        t if t.is_float() => "f32",
        _ => "i32",
    };
    let start = match mode {
        Mode::Product => "1u",
        Mode::Real => "kernels::MIDDLE",
        _ => "0u",
    };
    let code = site.alias("Value", t)
        + &format!("typedef {word} Word;\ntypedef {number} Number;\n")
        + &site.constant("MODE", "kernels::Words", format_args!("kernels::{}", mode.name()))
        + &site.constant("START", word, start)
        + &site.constant("TUPLES", "bool", op.is(SCATTER_ND))
        + &site.constant("SCALED", "bool", mode.scaled(t))
        // The exponent of the greatest number of narrow types, as f32 has it.
        + &site.constant("GREATEST", "u32", "142u")
        + &site.constant("LEAST", "bool", reduction == "min")
        + &combine(site)?;
    let silent = |name| Entry::threads(name).silent();
    let mut entries = vec![silent("clear_places"), silent("put_updates"), Entry::threads("finish_places")];
    if mode.scaled(t) {
        entries.push(silent("raise_exponents"));
    }
    Ok(Body { scratch: true, checking: true, ..Body::of("scatter/places", entries).with(code) })
}

/// The parameters of a launch, and its numbers of updates and of words.
struct Places {
    params: ScatterPlacesParams,
    updates: usize,
    words: usize,
}

/// Bits that count so many.
fn bits(n: usize) -> usize {
    n.max(1).next_power_of_two().ilog2() as usize
}

fn elements(cx: &Cx<'_>) -> Result<Places, BackendError> {
    let (x, i) = (cx.shape(0)?, cx.shape(1)?);
    let axis = cx.axis(x.len())?;
    let own = strides(&x);
    let (results, updates) = (x.iter().product(), i.iter().product());
    let by: Vec<i64> = (0..i.len()).map(|d| if d == axis { 0 } else { own[d] as i64 }).collect();
    let (mut dims, mut by) = if updates == 0 { Default::default() } else { coalesce(&i, &by) };
    // Outermost dimensions that do not move a place, as the axis where it is the first one, take no division.
    let still = by.iter().take_while(|s| **s == 0).count();
    dims.drain(..still);
    by.drain(..still);
    let divisors = Divisors::new(dims.into_iter().rev(), updates)?;
    let params = ScatterPlacesParams {
        results,
        updates,
        slice: 1,
        slice_factor: 0,
        slice_shift: 0,
        size: x[axis],
        stride: own[axis],
        spare: bits(i[axis]),
        aliased: usize::from(cx.aliased(0, 0)),
        sizes: divisors.sizes,
        factors: divisors.factors,
        shifts: divisors.shifts,
        strides: by.into_iter().rev().map(|s| s as usize).collect(),
    };
    Ok(Places { params, updates, words: results })
}

fn tuples(cx: &Cx<'_>) -> Result<Places, BackendError> {
    let (x, i) = (cx.shape(0)?, cx.shape(1)?);
    let (depth, lead) = i.split_last().map_or((0, &[][..]), |(&depth, lead)| (depth, lead));
    let tuples: usize = lead.iter().product();
    let slice: usize = x[depth..].iter().product();
    let results: usize = x.iter().product();
    let updates = tuples * slice;
    let divisor = Divisor::new(slice, updates.max(results))?;
    // The last update of a slice is found for all of its elements together.
    let (updates, words) = match mode(cx)?.0 {
        Mode::Last => (tuples, results.checked_div(slice).unwrap_or(0)),
        _ => (updates, results),
    };
    let params = ScatterPlacesParams {
        results,
        updates,
        slice,
        slice_factor: divisor.factor,
        slice_shift: divisor.shift,
        size: 0,
        stride: 0,
        spare: bits(tuples),
        aliased: usize::from(cx.aliased(0, 0)),
        sizes: x[..depth].to_vec(),
        factors: Vec::new(),
        shifts: Vec::new(),
        strides: strides(&x)[..depth].to_vec(),
    };
    Ok(Places { params, updates, words })
}

fn launch(cx: &Cx<'_>, places: Places) -> Result<Vec<Launch>, BackendError> {
    let (mode, t) = mode(cx)?;
    let Places { params, updates, words } = places;
    let results = params.results;
    if results == 0 {
        return Ok(Vec::new());
    }
    if params.spare > bits(MAX_UPDATES) {
        return unsupported(format!("{updates} updates at once"));
    }
    let bytes = results as u64 * mode.bytes(t);
    let w = params.words()?;
    let step = |entry, threads: usize| {
        Launch::map(entry, w.clone()).on(Grid::Threads(threads as u64)).scratch(bytes)
    };
    let mut all = vec![step(CLEAR, words)];
    if updates > 0 && mode.scaled(t) {
        all.push(step(EXPONENTS, updates.div_ceil(EACH)));
    }
    if updates > 0 {
        all.push(step(UPDATES, updates.div_ceil(EACH)));
    }
    all.push(step(FINISH, results));
    Ok(all)
}
