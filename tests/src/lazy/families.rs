//! Families of operators that random programs draw from, each with a way to apply it to a value.

use super::grow::{Grow, Val};
use kiln_ir::{Attrs, DType};
use kiln_network::NetworkError;

/// A family of operators.
pub struct Family {
    /// Name of the family.
    pub name: &'static str,
    /// The operators of a graph that count as having tried it.
    pub ops: &'static [&'static str],
    pub(super) make: fn(&mut Grow, &Val) -> Result<Val, NetworkError>,
}

const fn family(
    name: &'static str,
    ops: &'static [&'static str],
    make: fn(&mut Grow, &Val) -> Result<Val, NetworkError>,
) -> Family {
    Family { name, ops, make }
}

/// All families. Results stay small: floats of arithmetic go through tanh, and nothing turns a float into an integer, so
/// that roundings don't decide on iterations.
pub const FAMILIES: &[Family] = &[
    family("arithmetic", &["add", "sub", "mul", "max", "min"], arithmetic),
    family("compare", &["equal", "less", "greater"], compare),
    family("unary", &["neg", "abs", "sign", "sigmoid", "erf", "sin"], unary),
    family("logic", &["and", "or", "xor", "not"], logic),
    family("select", &["select"], select),
    family("cast", &["cast"], cast),
    family("clip", &["clip"], clip),
    family("reduce", &["reduce"], reduce),
    family("softmax", &["softmax", "log_softmax"], softmax),
    family("norm", &["layer_norm", "rms_norm"], norm),
    family("matmul", &["matmul"], matmul),
    family("concat", &["concat"], concat),
    family("slice", &["slice"], slice),
    family("transpose", &["transpose"], transpose),
    family("reshape", &["reshape"], reshape),
    family("gather", &["gather"], gather),
    family("scatter", &["scatter_elements"], scatter),
    family("pad", &["pad"], pad),
    family("expand", &["expand", "tile"], expand),
    family("order", &["cumulative", "argmax", "argmin"], order),
    family("cache", &["kv_cache_update"], cache),
    family("dequantize", &["dequantize"], dequantize),
    family("nonzero", &["nonzero"], nonzero),
    family("shape", &["shape"], shape),
    family("identity", &["identity"], identity),
];

/// The family that an operator of a graph belongs to.
pub fn of_op(op: &str) -> Option<usize> {
    FAMILIES.iter().position(|f| f.ops.contains(&op))
}

fn wide(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

fn refused(x: &Val, why: &str) -> NetworkError {
    kiln_ir::IrError::Structure(format!("{} {why}", x.ty())).into()
}

/// An axis that the value has.
fn axis(g: &mut Grow, x: &Val) -> Result<i64, NetworkError> {
    match x.shape().len() {
        0 => Err(refused(x, "has no axis")),
        n => Ok(g.rng.int(0, n as i64 - 1)),
    }
}

fn filled(x: &Val) -> Result<(), NetworkError> {
    if x.shape().contains(&0) { Err(refused(x, "is empty")) } else { Ok(()) }
}

fn one_of(g: &mut Grow, of: &[&'static str]) -> &'static str {
    g.rng.pick(of).unwrap_or("identity")
}

fn arithmetic(g: &mut Grow, x: &Val) -> Result<Val, NetworkError> {
    let y = g.partner(x)?;
    let op = one_of(g, &["add", "sub", "mul", "max", "min"]);
    let z = g.op(op, Attrs::new(), &[x, &y])?;
    if wide(x.dtype()) { g.op("tanh", Attrs::new(), &[&z]) } else { Ok(z) }
}

fn compare(g: &mut Grow, x: &Val) -> Result<Val, NetworkError> {
    if x.dtype().is_float() {
        // Far from all values, so that roundings don't matter.
        let far = g.number(x.dtype(), 64.0)?;
        return g.op("less", Attrs::new(), &[x, &far]);
    }
    let y = g.partner(x)?;
    let op = if x.dtype() == DType::Bool { "equal" } else { one_of(g, &["equal", "less", "greater"]) };
    g.op(op, Attrs::new(), &[x, &y])
}

fn unary(g: &mut Grow, x: &Val) -> Result<Val, NetworkError> {
    let floats = ["neg", "abs", "sigmoid", "erf", "sin"];
    let op = if wide(x.dtype()) { one_of(g, &floats) } else { one_of(g, &["neg", "abs", "sign"]) };
    g.op(op, Attrs::new(), &[x])
}

fn logic(g: &mut Grow, x: &Val) -> Result<Val, NetworkError> {
    let y = g.partner(x)?;
    match one_of(g, &["and", "or", "xor", "not"]) {
        "not" => g.op("not", Attrs::new(), &[x]),
        op => g.op(op, Attrs::new(), &[x, &y]),
    }
}

fn select(g: &mut Grow, x: &Val) -> Result<Val, NetworkError> {
    let y = g.partner(x)?;
    let like = g.constant(DType::Bool, x.shape())?;
    let asked = g.partner(&like)?;
    g.op("select", Attrs::new(), &[&asked, x, &y])
}

fn cast(g: &mut Grow, x: &Val) -> Result<Val, NetworkError> {
    let to: Vec<DType> = DType::ALL
        .into_iter()
        .filter(|d| *d != x.dtype() && (d.is_float() || !x.dtype().is_float()))
        .collect();
    let to = g.rng.pick(&to).unwrap_or(DType::F32);
    g.op("cast", Attrs::new().with("to", to), &[x])
}

fn clip(g: &mut Grow, x: &Val) -> Result<Val, NetworkError> {
    g.op("clip", Attrs::new().with("min", 0.0).with("max", 3.0), &[x])
}

fn reduce(g: &mut Grow, x: &Val) -> Result<Val, NetworkError> {
    let op = match (x.dtype(), x.shape().contains(&0)) {
        (DType::Bool, false) => one_of(g, &["max", "min"]),
        (d, true) if wide(d) => "sum",
        (d, false) if wide(d) => one_of(g, &["mean", "max", "min"]),
        (_, true) => "sum",
        (_, false) => one_of(g, &["sum", "max", "min"]),
    };
    let axis = axis(g, x)?;
    let axes = g.ints(&[axis])?;
    let keep = g.rng.int(0, 1) == 1;
    g.op("reduce", Attrs::new().with("op", op).with("keep_dims", keep), &[x, &axes])
}

fn softmax(g: &mut Grow, x: &Val) -> Result<Val, NetworkError> {
    filled(x)?;
    let axis = axis(g, x)?;
    let op = one_of(g, &["softmax", "log_softmax"]);
    g.op(op, Attrs::new().with("axis", axis), &[x])
}

fn norm(g: &mut Grow, x: &Val) -> Result<Val, NetworkError> {
    filled(x)?;
    axis(g, x)?;
    let op = one_of(g, &["layer_norm", "rms_norm"]);
    g.op(op, Attrs::new().with("epsilon", 0.5), &[x])
}

fn matmul(g: &mut Grow, x: &Val) -> Result<Val, NetworkError> {
    let k = x.shape().last().copied().ok_or_else(|| refused(x, "has no row"))?;
    let n = g.rng.int(1, 3) as usize;
    let w = g.constant(x.dtype(), &[k, n])?;
    let y = g.op("matmul", Attrs::new(), &[x, &w])?;
    if wide(y.dtype()) { g.op("tanh", Attrs::new(), &[&y]) } else { Ok(y) }
}

fn concat(g: &mut Grow, x: &Val) -> Result<Val, NetworkError> {
    let axis = axis(g, x)?;
    let y = g.partner(x)?;
    g.op("concat", Attrs::new().with("axis", axis), &[x, &y])
}

fn slice(g: &mut Grow, x: &Val) -> Result<Val, NetworkError> {
    let axis = axis(g, x)?;
    let extent = x.shape()[axis as usize] as i64;
    let start = g.rng.int(0, extent.min(1));
    let parts = [g.ints(&[start])?, g.ints(&[extent])?, g.ints(&[axis])?];
    g.op("slice", Attrs::new(), &[x, &parts[0], &parts[1], &parts[2]])
}

fn transpose(g: &mut Grow, x: &Val) -> Result<Val, NetworkError> {
    let perm: Vec<i64> = (0..x.shape().len() as i64).rev().collect();
    g.op("transpose", Attrs::new().with("perm", perm), &[x])
}

fn reshape(g: &mut Grow, x: &Val) -> Result<Val, NetworkError> {
    g.flat(x)
}

fn gather(g: &mut Grow, x: &Val) -> Result<Val, NetworkError> {
    filled(x)?;
    let axis = axis(g, x)?;
    let last = x.shape()[axis as usize] as i64 - 1;
    let at: Vec<i64> = (0..g.rng.int(1, 2)).map(|i| (i * 7) % (last + 1)).collect();
    let at = g.ints(&at)?;
    g.op("gather", Attrs::new().with("axis", axis), &[x, &at])
}

fn scatter(g: &mut Grow, x: &Val) -> Result<Val, NetworkError> {
    filled(x)?;
    let axis = axis(g, x)?;
    let shape: Vec<usize> = x.shape().iter().map(|_| 1).collect();
    let at = g.rng.int(0, x.shape()[axis as usize] as i64 - 1);
    let at = g.ints_of(&shape, &[at])?;
    let with = g.constant(x.dtype(), &shape)?;
    g.op("scatter_elements", Attrs::new().with("axis", axis), &[x, &at, &with])
}

fn pad(g: &mut Grow, x: &Val) -> Result<Val, NetworkError> {
    let axis = axis(g, x)?;
    let mut pads = vec![0; 2 * x.shape().len()];
    pads[axis as usize] = 1;
    let pads = g.ints(&pads)?;
    g.op("pad", Attrs::new(), &[x, &pads])
}

fn expand(g: &mut Grow, x: &Val) -> Result<Val, NetworkError> {
    let shape: Vec<i64> = [2].into_iter().chain(x.shape().iter().map(|&d| d as i64)).collect();
    if g.rng.int(0, 1) == 0 {
        let shape = g.ints(&shape)?;
        return g.op("expand", Attrs::new(), &[x, &shape]);
    }
    axis(g, x)?;
    let times: Vec<i64> = x.shape().iter().enumerate().map(|(i, _)| 1 + i64::from(i == 0)).collect();
    let times = g.ints(&times)?;
    g.op("tile", Attrs::new(), &[x, &times])
}

fn order(g: &mut Grow, x: &Val) -> Result<Val, NetworkError> {
    filled(x)?;
    let axis = axis(g, x)?;
    // Which of two close floats is the greater, roundings decide.
    if x.dtype().is_float() || g.rng.int(0, 1) == 0 {
        let at = g.ints_of(&[], &[axis])?;
        let y = g.op("cumulative", Attrs::new(), &[x, &at])?;
        return if wide(y.dtype()) { g.op("tanh", Attrs::new(), &[&y]) } else { Ok(y) };
    }
    let op = one_of(g, &["argmax", "argmin"]);
    g.op(op, Attrs::new().with("axis", axis), &[x])
}

fn cache(g: &mut Grow, x: &Val) -> Result<Val, NetworkError> {
    if x.shape().len() < 2 {
        return Err(refused(x, "has less than two axes"));
    }
    filled(x)?;
    let mut shape = x.shape().to_vec();
    shape[1] = 1;
    let part = g.constant(x.dtype(), &shape)?;
    let last = x.shape()[1] as i64 - 1;
    let at: Vec<i64> = (0..shape[0]).map(|i| i as i64 % (last + 1)).collect();
    let at = g.ints(&at)?;
    g.op("kv_cache_update", Attrs::new().with("axis", 1), &[x, &part, &at])
}

fn dequantize(g: &mut Grow, x: &Val) -> Result<Val, NetworkError> {
    let scale = g.number(DType::F32, 0.25)?;
    g.op("dequantize", Attrs::new(), &[x, &scale])
}

/// The sum of the places, so that the shape is known again.
fn nonzero(g: &mut Grow, x: &Val) -> Result<Val, NetworkError> {
    axis(g, x)?;
    let axes = g.ints(&[1])?;
    g.counted("nonzero", x, &axes)
}

fn shape(g: &mut Grow, x: &Val) -> Result<Val, NetworkError> {
    axis(g, x)?;
    g.op("shape", Attrs::new(), &[x])
}

fn identity(g: &mut Grow, x: &Val) -> Result<Val, NetworkError> {
    g.op("identity", Attrs::new(), &[x])
}
