//! Pooling with channels second: several results of a column a thread, kernel and strides as constants.

use crate::kernels::divisor::Divisor;
use crate::kernels::shape::{input, moving, traffic};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::pool::pool_hooks;
use kiln_codegen::scalar::register;
use kiln_codegen::site::{Cx, Site, op_error, unsupported};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch, Views};
use kiln_ops::conv::window::{Axis, dims, known};
use kiln_ops::layout::Layout;
use kiln_ops::pool::geometry;

/// The kernels.
pub const KERNELS: &[Kernel] = &[Kernel {
    name: "pool.planes",
    ops: &["pool"],
    epilogue: true,
    views: Views::Whole,
    side_results: false,
    tactics,
    source: |site, _| source(site),
    launch,
}];

kiln_codegen::params! {
    /// Windows over up to three dimensions, fewer led by dimensions of 1.
    struct PoolPlanesParams {
        /// Elements along z.
        z_input: i32,
        /// Elements along y.
        y_input: i32,
        /// Elements along x.
        x_input: i32,
        /// Padding before them, along z.
        z_begin: i32,
        /// Padding along y.
        y_begin: i32,
        /// Padding along x.
        x_begin: i32,
        /// Padding behind them, along z.
        z_end: i32,
        /// Padding along y.
        y_end: i32,
        /// Padding along x.
        x_end: i32,
        /// Windows along z.
        z_output: u32,
        /// Windows along y.
        y_output: u32,
        /// Windows along x.
        x_output: u32,
        /// Factor of divisions by windows along x.
        x_factor: u32,
        /// Shift of divisions by them.
        x_shift: u32,
        /// Threads along y.
        chunks: u32,
        /// Factor of divisions by them.
        chunks_factor: u32,
        /// Shift of divisions by them.
        chunks_shift: u32,
        /// Factor of divisions by windows along z.
        z_factor: u32,
        /// Shift of divisions by them.
        z_shift: u32,
    }
}

/// Results of a thread.
const ROWS: usize = 4;
/// Taps of a window at most: their loops are written out.
const MOST_TAPS: i64 = 64;
/// Rows that the results of a thread read at most.
const MOST_ROWS: i64 = 32;

/// Kernel, stride and dilation along z, y and x; 1 where there are fewer dimensions.
fn constants(site: &Site<'_>) -> Result<[[i64; 3]; 3], BackendError> {
    let attrs = site.op()?.attrs();
    let Some(x) = input(site, 0).filter(|x| (3..=5).contains(&x.rank())) else {
        return unsupported("pooling of other than one to three dimensions by planes");
    };
    let rank = x.rank() - 2;
    let list = |name: &str| -> Result<[i64; 3], BackendError> {
        let given = attrs.ints(name).map_err(op_error)?;
        let mut out = [1; 3];
        if !given.is_empty() {
            out[3 - rank..].iter_mut().zip(given).for_each(|(o, &n)| *o = n);
        }
        Ok(out)
    };
    Ok([list("kernel")?, list("strides")?, list("dilations")?])
}

fn tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    if Layout::of(site.op()?.attrs()) != Layout::Linear {
        return unsupported("pooling by planes with channels last");
    }
    let [kernel, stride, dilation] = constants(site)?;
    let reach = |d: usize| dilation[d].saturating_mul(kernel[d] - 1);
    let rows = (ROWS as i64 - 1).saturating_mul(stride[1]).saturating_add(reach(1)).saturating_add(1);
    let positive = [kernel, stride, dilation].iter().flatten().all(|n| (1..=1 << 16).contains(n));
    let taps = kernel.iter().fold(1, |n: i64, &k| n.saturating_mul(k));
    if !positive || taps > MOST_TAPS || rows > MOST_ROWS {
        return unsupported(format!("windows of {taps} taps and {rows} rows written out"));
    }
    let estimate_ns = traffic(site).map(|bytes| moving(site.target, bytes, 2.0));
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain("pool.planes") }])
}

fn source(site: &Site<'_>) -> Result<Body, BackendError> {
    let (hooks, t) = (pool_hooks(site)?, site.out_dtype(0));
    let r = register(t);
    let mut code = site.alias("Value", t)
        + &site.function("first", &[], r, &hooks.first)
        + &site.function("merge", &[("sum", r), ("v", r)], r, &hooks.merge)
        + &hooks.code;
    let names = ["KERNEL", "STRIDE", "DILATION"];
    for (name, sizes) in names.iter().zip(constants(site)?) {
        for (axis, n) in ["Z", "Y", "X"].iter().zip(sizes) {
            code += &site.constant(&format!("{axis}_{name}"), "u32", format_args!("{n}u"));
        }
    }
    Ok(Body::of("pool/planes", vec![Entry::threads("pool_planes")]).with(code))
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, y) = (cx.shape(0)?, cx.out_shape(0)?);
    let total: usize = y.iter().product();
    if total == 0 {
        return Ok(Vec::new());
    }
    let axes = known(&geometry(cx.op()?.attrs(), &dims(&x)).map_err(op_error)?).map_err(op_error)?;
    let one = Axis { input: 1, output: 1, kernel: 1, stride: 1, dilation: 1, begin: 0, end: 0 };
    let axis = |d: usize| (d + axes.len()).checked_sub(3).and_then(|d| axes.get(d)).unwrap_or(&one);
    let [az, ay, ax] = [axis(0), axis(1), axis(2)];
    let [oz, oy, ox] = [az, ay, ax].map(|a| usize::try_from(a.output).unwrap_or(0));
    let chunks = oy.div_ceil(ROWS);
    let [by_x, by_chunks, by_z] =
        [Divisor::new(ox, total)?, Divisor::new(chunks, total)?, Divisor::new(oz, total)?];
    let params = PoolPlanesParams {
        z_input: az.input,
        y_input: ay.input,
        x_input: ax.input,
        z_begin: az.begin,
        y_begin: ay.begin,
        x_begin: ax.begin,
        z_end: az.end,
        y_end: ay.end,
        x_end: ax.end,
        z_output: oz,
        y_output: oy,
        x_output: ox,
        x_factor: by_x.factor,
        x_shift: by_x.shift,
        chunks,
        chunks_factor: by_chunks.factor,
        chunks_shift: by_chunks.shift,
        z_factor: by_z.factor,
        z_shift: by_z.shift,
    };
    let threads = y[0] * y[1] * oz * chunks * ox;
    Ok(vec![Launch::map(0, params.words()?).on(Grid::Threads(threads as u64))])
}
