//! Fast Fourier transforms: passes of `signal/fft`, each with the memory of a block. Lengths with other factors than 2, 3 and 5 are
//! convolutions with a chirp (Bluestein) of a length that is a power of two.

use super::sizes::{dft_sizes, stft_sizes, weight};
use crate::site::{Cx, Site, op_error, unsupported};
use crate::{Body, Entry, Grid, Kernel, Launch, Views, plain};
use kiln_backend::{BackendError, Tactic};
use kiln_ops::signal::dft::to_real;

/// Transforms of a tensor along an axis.
pub const DFT: Kernel = Kernel {
    name: "dft.fft",
    ops: &["dft"],
    epilogue: true,
    views: Views::Whole,
    side_results: false,
    tactics: |site| offered("dft.fft", dft_points(site)),
    source: dft_source,
    launch: dft,
};

/// Transforms of frames.
pub const STFT: Kernel = Kernel {
    name: "stft.fft",
    ops: &["stft"],
    tactics: |site| offered("stft.fft", stft_points(site)),
    source: stft_source,
    launch: stft,
    ..DFT
};

/// Points that the memory of a block holds.
const ROOM: usize = 1024;
/// Threads of a block.
const THREADS: u32 = 128;
/// Blocks from which on each makes several transforms of a pass.
const BLOCKS: usize = 128;
/// Shorter transforms are sums of a few products.
const SHORTEST: i64 = 16;
/// Longer transforms have too large angles, of chirps and of passes.
const LONGEST_CHIRP: usize = 1 << 23;
const LONGEST: usize = 1 << 28;
/// Bytes of scratch memory that rows are transformed in at once, unless one takes more.
const SCRATCH: usize = 128 << 20;

crate::params! {
    /// A pass over rows of numbers.
    struct FftParams {
        /// Points of the transform that all passes make.
        length: u32,
        /// Points of a transform of this pass.
        radix: u32,
        /// Radices of its butterflies, four bits each, the first lowest.
        stages: u32,
        /// Product of the points of the passes before.
        before: u32,
        /// The first row.
        row: u32,
        /// Number of rows.
        rows: u32,
        /// Transforms of a block.
        batch: u32,
        /// Source of the numbers: scratch memory, the input, the input times a chirp, or what undoes the chirp.
        source: u32,
        /// Place of the results: scratch memory, the output, scratch memory after the product, or the output after the chirp.
        drain: u32,
        /// Place in scratch memory that is read, in numbers.
        reads: u32,
        /// Place in scratch memory that is written.
        writes: u32,
        /// Place in scratch memory of the transform of what undoes the chirp.
        undo: u32,
        /// Points of the operator's transform.
        points: u32,
        /// Sizes of the operator.
        sizes: [u32; 6],
    }
}

/// A tactic where the transform is not known to be short.
fn offered(name: &str, points: Option<i64>) -> Result<Vec<Tactic>, BackendError> {
    match points {
        Some(n) if n < SHORTEST => unsupported(format!("{name}: {n} points are summed up faster")),
        _ => plain(name),
    }
}

/// A number of a host input, where it is known with the types.
fn scalar(site: &Site<'_>, i: usize) -> Option<i64> {
    let v = site.input(i)?;
    let known = site.graph.weight(v).and_then(|w| w.tensor.scalar_i64());
    known.or_else(|| site.graph.value(v).fact.as_const()?.scalar_i64())
}

/// A dimension of an input, where it is known.
fn size(site: &Site<'_>, i: usize, axis: usize) -> Option<i64> {
    site.graph.ty(site.input(i)?).dims.get(axis)?.as_const()
}

/// The points of a `dft`, where they are known with the types.
fn dft_points(site: &Site<'_>) -> Option<i64> {
    if site.input(1).is_some() {
        return scalar(site, 1);
    }
    let rank = site.rank(0)? as i64;
    let axis = if site.input(2).is_some() { scalar(site, 2)? } else { -2 };
    size(site, 0, usize::try_from(if axis < 0 { axis + rank } else { axis }).ok()?)
}

/// The points of an `stft`.
fn stft_points(site: &Site<'_>) -> Option<i64> {
    match (site.input(3).is_some(), site.input(2).is_some()) {
        (true, _) => scalar(site, 3),
        (_, true) => size(site, 2, 0),
        _ => size(site, 0, 1),
    }
}

fn body(numbers: &'static str) -> Body {
    let entries = vec![Entry::blocks("fft_pass", THREADS)];
    Body { files: vec!["signal/fft", numbers, "signal/fourier"], entries, scratch: true, ..Body::default() }
}

fn dft_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let attrs = site.op()?.attrs();
    let inverse = site.constant("INVERSE", "bool", attrs.bool("inverse").map_err(op_error)?);
    let real = site.constant("TO_REAL", "bool", to_real(attrs).map_err(op_error)?);
    Ok(body("signal/fft_dft").with(inverse + &real))
}

fn stft_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    Ok(body("signal/fft_stft").with(weight(site)))
}

fn dft(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (p, y) = (dft_sizes(cx)?, cx.out_shape(0)?);
    let rows = y[..y.len() - 1].iter().product::<usize>().checked_div(p.made).unwrap_or(0);
    launches(p.length, rows, [p.given, p.counted, p.made, p.inner, p.parts, 0])
}

fn stft(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (p, y) = (stft_sizes(cx)?, cx.out_shape(0)?);
    launches(p.length, y[0] * y[1], [p.signal, p.bins, p.frames, p.parts, p.step, p.window])
}

/// Points and butterflies of each pass of a transform; `None` for a length with other factors than 2, 3 and 5.
fn passes(length: usize) -> Option<Vec<(usize, u32)>> {
    let mut factors = Vec::new();
    let mut rest = length.max(1);
    for prime in [5, 3, 2] {
        while rest.is_multiple_of(prime) {
            factors.push(prime);
            rest /= prime;
        }
    }
    if rest != 1 {
        return None;
    }
    // The fewest passes, of about as many points each.
    (1..).find_map(|count| {
        let mut groups = vec![(1usize, [0usize; 6]); count];
        for &f in &factors {
            let (points, own) = groups.iter_mut().min_by_key(|g| g.0)?;
            *points *= f;
            own[f] += 1;
        }
        let fits = groups.iter().all(|g| g.0 <= ROOM);
        fits.then(|| groups.iter().map(|(points, own)| (*points, stages(own))).collect())
    })
}

/// Radices of a pass with so many factors of each kind.
fn stages(factors: &[usize; 6]) -> u32 {
    let twos = factors[2];
    // Eights, and fours for what they leave: of one factor and an eight come two fours.
    let (eights, fours, rest) = match (twos / 3, twos % 3) {
        (e, 0) => (e, 0, 0),
        (0, 1) => (0, 0, 1),
        (e, 1) => (e - 1, 2, 0),
        (e, _) => (e, 1, 0),
    };
    let counts = [(8, eights), (5, factors[5]), (4, fours), (3, factors[3]), (2, rest)];
    let radices = counts.into_iter().flat_map(|(radix, n)| std::iter::repeat_n(radix, n));
    radices.enumerate().fold(0, |code, (i, radix)| code | radix << (4 * i as u32))
}

/// One transform of rows: where numbers come from, where results go, and places in scratch memory for what is between.
#[derive(Clone, Copy)]
struct Run {
    source: usize,
    drain: usize,
    /// Place that the first pass reads, if it reads scratch memory.
    reads: usize,
    /// Places that passes write in turn.
    rooms: [usize; 2],
}

/// Launches of all passes over `rows` rows from `row` on. Returns the place of the last pass's results too.
fn run(
    base: &FftParams,
    passes: &[(usize, u32)],
    run: Run,
    (row, rows): (usize, usize),
) -> Result<(Vec<Launch>, usize), BackendError> {
    let mut all = Vec::with_capacity(passes.len());
    let (mut before, mut reads) = (1, run.reads);
    let mut turn = usize::from(run.rooms[0] == reads && run.source == 0);
    for (i, &(radix, stages)) in passes.iter().enumerate() {
        let writes = run.rooms[turn % 2];
        let transforms = rows * (base.length / radix);
        // Few transforms are spread over the device: eight of 128 points a block leave most of a large one idle.
        let batch = (transforms / BLOCKS).clamp(1, (ROOM / radix).max(1));
        let params = FftParams {
            radix,
            stages: stages as usize,
            before,
            row,
            rows,
            batch,
            source: if i == 0 { run.source } else { 0 },
            drain: if i + 1 == passes.len() { run.drain } else { 0 },
            reads,
            writes,
            ..base.clone()
        };
        let blocks = transforms.div_ceil(batch);
        all.push(Launch::map(0, params.words()?).on(Grid::Groups(blocks as u64)));
        (before, reads, turn) = (before * radix, writes, turn + 1);
    }
    Ok((all, reads))
}

fn launches(points: usize, rows: usize, sizes: [usize; 6]) -> Result<Vec<Launch>, BackendError> {
    let refused = |most: usize| unsupported(format!("a fast transform of {points} points, at most {most}"));
    let direct = passes(points);
    let (length, steps, chirped) = match direct {
        Some(steps) if points <= LONGEST => (points, steps, false),
        Some(_) => return refused(LONGEST),
        None if points > LONGEST_CHIRP => return refused(LONGEST_CHIRP),
        None => {
            let length = (2 * points - 1).next_power_of_two();
            (length, passes(length).unwrap_or_default(), true)
        }
    };
    let base = FftParams { length, points, sizes, ..FftParams::default() };
    if rows == 0 {
        return Ok(Vec::new());
    }
    let at_once = (SCRATCH / (16 * length)).clamp(1, rows);
    let room = at_once * length;
    // Two places for rows, then two for what undoes the chirp.
    let mut out = Vec::new();
    let mut undo = 0;
    if chirped {
        let own = Run { source: 3, drain: 0, reads: 0, rooms: [2 * room, 2 * room + length] };
        let (made, at) = run(&base, &steps, own, (0, 1))?;
        out.extend(made);
        undo = at;
    }
    let base = FftParams { undo, ..base };
    for row in (0..rows).step_by(at_once) {
        let part = (row, at_once.min(rows - row));
        let first = Run { source: 1, drain: 1, reads: 0, rooms: [0, room] };
        if !chirped {
            out.extend(run(&base, &steps, first, part)?.0);
            continue;
        }
        let (there, at) = run(&base, &steps, Run { source: 2, drain: 2, ..first }, part)?;
        let (back, _) = run(&base, &steps, Run { source: 0, drain: 3, reads: at, ..first }, part)?;
        out.extend(there.into_iter().chain(back));
    }
    let bytes = match (chirped, steps.len()) {
        (true, _) => (2 * room + 2 * length) * 8,
        (false, 1) => 0,
        (false, _) => 2 * room * 8,
    };
    Ok(out.into_iter().map(|l| l.scratch(bytes as u64)).collect())
}
