//! Operators whose result follows from a few numbers and the position: ranges, windows, mel filters, random numbers, ones. The numbers travel as argument words, the device makes the elements.

pub mod assertion;

use crate::scalar::{cast, narrow, register};
use crate::site::{Cx, Site, op_error, unsupported};
use crate::{Body, Kernel, Launch};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::{DType, Elems, Tensor};
use kiln_ops::generate::mel;
use kiln_ops::generate::random::{Uniform, key};

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    Kernel::of("range", &["range"], range_source, range),
    Kernel::of("window_function", &["window"], |s, _| made(s, "generate/window", "window_function"), window),
    Kernel::of("mel", &["mel_weight_matrix"], |s, _| made(s, "generate/mel", "mel_filter"), mel_filters),
    Kernel::of("random", &["random"], random_source, random),
    Kernel::of("one_hot", &["one_hot"], one_hot_source, one_hot),
    Kernel::of("eye_like", &["eye_like"], eye_source, eye_like),
];

crate::params! {
    /// Lines with one value at an index.
    struct OneHotParams {
        /// Elements of a line.
        depth: u32,
        /// Elements from one of a line to the next.
        inner: u32,
    }
}

crate::params! {
    /// Ones on a diagonal.
    struct EyeLikeParams {
        /// Columns of the matrix.
        columns: u32,
        /// Distance of the diagonal to the right of the main one.
        diagonal: i32,
    }
}

crate::params! {
    /// Integers of up to 32 bits at equal distances; higher bits of start and step do not count.
    struct RangeParams {
        /// The first number.
        start: u32,
        /// The distance.
        step: u32,
    }
}

crate::params! {
    /// Integers of 64 bits at equal distances.
    struct WideRangeParams {
        /// The first number.
        start: i64,
        /// The distance.
        step: i64,
    }
}

crate::params! {
    /// Floats at equal distances. Steps and sums are scaled so that none overflows or is too small to be normal.
    struct FloatRangeParams {
        /// The first number.
        start: f32,
        /// The upper 12 bits of the distance.
        upper: f32,
        /// Its lower bits.
        lower: f32,
        /// A power of two that scales the result.
        scale: f32,
        /// Another one.
        scale_again: f32,
    }
}

crate::params! {
    /// C + A·s + B·s² with s = sin²(π·at / period), and D = A + 2·B.
    struct WindowParams {
        /// Elements of a period.
        period: u32,
        /// C.
        c: f32,
        /// A.
        a: f32,
        /// B.
        b: f32,
        /// D.
        d: f32,
    }
}

crate::params! {
    /// Mel filters.
    struct MelParams {
        /// Number of bands.
        bands: u32,
        /// The spectral bin of each edge, of at most 2³⁰ in size.
        bins: [i32],
        /// Bins of the edges as floats.
        floats: [f32],
    }
}

crate::params! {
    /// Uniform random numbers.
    struct UniformParams {
        /// The lower half of the key.
        key: u32,
        /// Its upper half.
        key_high: u32,
        /// The first end.
        start: f32,
        /// The distance to the other end.
        width: f32,
        /// The other end.
        end: f32,
        /// The last number before it.
        last: f32,
        /// Zero, which a compiler does not know.
        zero: u32,
    }
}

crate::params! {
    /// Normal random numbers.
    struct NormalParams {
        /// The lower half of the key.
        key: u32,
        /// Its upper half.
        key_high: u32,
        /// Their mean.
        mean: f32,
        /// Their standard deviation.
        deviation: f32,
    }
}

/// A map over output 0 that binds no input.
fn alone(file: &'static str, element: &'static str) -> Body {
    Body { inputs: Some(Vec::new()), ..Body::element(file, element) }
}

/// A map over output 0 whose floats become the type of the output.
fn made(site: &Site<'_>, file: &'static str, element: &'static str) -> Result<Body, BackendError> {
    let t = site.out_dtype(0);
    let code = site.alias("Value", t)
        + &site.function("converted", &[("v", "f32")], register(t), &cast("v", DType::F32, t));
    Ok(alone(file, element).with(code))
}

fn range_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let t = site.out_dtype(0);
    Ok(match register(t) {
        "f32" => alone("generate/range", "range_float"),
        "i64" => alone("generate/range", "range_wide"),
        _ => {
            let narrowed = site.function("narrowed", &[("v", "i32")], "i32", &narrow(t, "v"));
            alone("generate/range", "range_narrow").with(narrowed)
        }
    })
}

fn range(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let content = |i: usize| {
        let t: Option<&Tensor> = cx.inputs.get(i).copied().flatten().and_then(|f| f.as_const());
        let elems = t.map(Tensor::elems).filter(|e| !matches!(e, Elems::F(v) if v.is_empty()));
        elems.ok_or_else(|| BackendError::Internal(format!("input {i} of range is not known at launch")))
    };
    let words = match (content(0)?, content(2)?) {
        (Elems::F(start), Elems::F(step)) => {
            let n = cx.out_shape(0)?.first().copied().unwrap_or(0);
            scaled(start[0], step[0], n).words()?
        }
        (Elems::I(start), Elems::I(step)) => match (&start[..], &step[..]) {
            (&[start, ..], &[step, ..]) => {
                let wide = cx.outputs.first().is_some_and(|f| register(f.ty.dtype) == "i64");
                match wide {
                    true => WideRangeParams { start, step }.words()?,
                    false => RangeParams { start: lower(start), step: lower(step) }.words()?,
                }
            }
            _ => return unsupported("a range without a start or a step"),
        },
        _ => return unsupported("a range whose start and step differ in type"),
    };
    Ok(vec![Launch::map(0, words)])
}

/// The lower 32 bits.
fn lower(n: i64) -> usize {
    n as u32 as usize
}

/// Steps and sums are scaled so that none overflows or is too small to be normal.
///
/// The result differs from start + i·step, rounded once, by half a unit in the last place and 2⁻⁴⁴·(|start| + |i·step|) at most:
/// the six products are exact, and each of their sums keeps what it lost in a second number of 24 bits.
fn scaled(start: f64, step: f64, n: usize) -> FloatRangeParams {
    let most = start.abs().max(step.abs() * n as f64);
    let exponent = match most {
        m if m == 0.0 || (2f64.powi(-60)..2f64.powi(100)).contains(&m) => 0,
        m => m.log2().floor() as i32,
    };
    let (start, step) = (start * 2f64.powi(-exponent), step * 2f64.powi(-exponent));
    let upper = f32::from_bits((step as f32).to_bits() & 0xffff_f000);
    let half = exponent / 2;
    FloatRangeParams {
        start: start as f32,
        upper,
        lower: (step - f64::from(upper)) as f32,
        scale: 2f32.powi(half),
        scale_again: 2f32.powi(exponent - half),
    }
}

fn window(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (n, attrs) = (cx.out_shape(0)?.iter().product::<usize>(), cx.op()?.attrs());
    let period = if attrs.bool("periodic").map_err(op_error)? { n } else { n.saturating_sub(1) };
    let (c, a, b): (f64, f64, f64) = match attrs.str("kind").map_err(op_error)? {
        "hann" => (0.0, 1.0, 0.0),
        "hamming" => (4.0 / 46.0, 42.0 / 46.0, 0.0),
        _ => (0.0, 0.36, 0.64),
    };
    let params = WindowParams { period, c: c as f32, a: a as f32, b: b as f32, d: (a + 2.0 * b) as f32 };
    Ok(vec![Launch::map(0, params.words()?)])
}

/// The spectral bins on which edges fall are found in f64, as their rounding down decides which elements are zero at all.
fn mel_filters(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let out = cx.out_shape(0)?;
    let [_, bands] = out[..] else { return unsupported("a matrix of filters of another rank than 2") };
    let number = |i: usize| -> Result<f64, BackendError> {
        let v = cx.floats(i)?.and_then(|v| v.first().copied());
        v.ok_or_else(|| BackendError::Internal(format!("input {i} is not known at launch")))
    };
    let edges = mel::edges(bands, number(1)?, number(2)?, number(3)?, number(4)?);
    let params = MelParams {
        bands,
        bins: edges.iter().map(|&e| e.clamp(-(1 << 30), 1 << 30)).collect(),
        floats: edges.iter().map(|&e| e as f32).collect(),
    };
    Ok(vec![Launch::map(0, params.words()?)])
}

fn random_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    Ok(match site.op()?.attrs().str("dist").map_err(op_error)? {
        "normal" => alone("generate/random", "normal"),
        _ => {
            let narrowed = site.function("narrowed", &[("v", "f32")], "f32", &narrow(site.out_dtype(0), "v"));
            alone("generate/random", "uniform_number").with(narrowed)
        }
    })
}

fn random(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let a = cx.op()?.attrs();
    let [key, key_high] = key(a.int("seed").map_err(op_error)?).map(|k| k as usize);
    let words = match a.str("dist").map_err(op_error)? {
        "normal" => {
            let number =
                |name: &str| -> Result<f32, BackendError> { Ok(a.float(name).map_err(op_error)? as f32) };
            NormalParams { key, key_high, mean: number("a")?, deviation: number("b")? }.words()?
        }
        _ => {
            let u = Uniform::of(a).map_err(op_error)?;
            UniformParams { key, key_high, start: u.from, width: u.width, end: u.end, last: u.last, zero: 0 }
                .words()?
        }
    };
    Ok(vec![Launch::map(0, words)])
}

fn one_hot_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let body = Body::element("generate/one_hot", "one_hot");
    Ok(body.with(site.alias("Value", site.out_dtype(0))))
}

fn one_hot(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let out = cx.out_shape(0)?;
    let axis = cx.axis(out.len())?;
    let params = OneHotParams { depth: out[axis], inner: out[axis + 1..].iter().product() };
    Ok(vec![Launch::map(0, params.words()?)])
}

fn eye_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let t = site.out_dtype(0);
    let code = site.alias("Value", t)
        + &site.function("from_bool", &[("v", "bool")], register(t), &cast("v", DType::Bool, t));
    Ok(Body { inputs: Some(Vec::new()), ..Body::element("generate/eye_like", "eye_like").with(code) })
}

fn eye_like(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let out = cx.out_shape(0)?;
    let diagonal = cx.op()?.attrs().int("k").map_err(op_error)?.clamp(-(1 << 30), 1 << 30);
    let params = EyeLikeParams { columns: *out.get(1).unwrap_or(&1), diagonal };
    Ok(vec![Launch::map(0, params.words()?)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect;
    use kiln_ir::{Attrs, Fact, Op, TensorType};

    /// Evaluates `range_float` in f64 from its words.
    #[test]
    fn words_of_ranges_hold_start_and_step_exactly() {
        for (start, step, n) in
            [(0.1f32, 0.3f32, 1000usize), (-3e38, 1e38, 6), (0.0, 1e-42, 9), (7.0, 0.0, 3)]
        {
            let p = scaled(start.into(), step.into(), n);
            let w = [p.start, p.upper, p.lower, p.scale, p.scale_again].map(f64::from);
            let scale = w[3] * w[4];
            assert_eq!((w[0] * scale, (w[1] + w[2]) * scale), (start.into(), step.into()), "{start} {step}");
            let short = |x: f64| (x as f32).to_bits() & 0xfff == 0;
            assert!(short(w[1]) && short(w[2]), "{start} {step}");
            assert!((w[1] * n as f64).abs() < 2f64.powi(120), "{start} {step}");
        }
    }

    static NONE: Dialect = Dialect {
        launch_code: "",
        constant: |_, _, _| String::new(),
        alias: |_, _| String::new(),
        tail: "",
        function: |_, _, _, _| String::new(),
        decode: |_, _, _| String::new(),
        own: &[],
        generic: &[],
        spans: None,
        reshapes: false,
        at_once: 1,
        far: false,
    };

    /// Argument words of the only launch.
    fn words(name: &str, attrs: Attrs, inputs: &[Fact]) -> Vec<u32> {
        let op = Op::new(name, attrs).unwrap();
        let given: Vec<Option<Fact>> = inputs.iter().cloned().map(Some).collect();
        let outputs = op.infer(&given, "t").unwrap();
        let cx = Cx {
            op: Some(&op),
            tactic: &Tactic::plain("t"),
            inputs: inputs.iter().map(Some).collect(),
            outputs: outputs.iter().collect(),
            fused: false,
            side: None,
            holds: &|_| false,
            views: Vec::new(),
            wanted: Vec::new(),
            rounds: usize::MAX,
            lanes: 1,
            dialect: &NONE,
            missed: Default::default(),
        };
        let kernel = KERNELS.iter().chain(crate::shape::KERNELS).find(|k| k.ops.contains(&name)).unwrap();
        let mut launches = (kernel.launch)(&cx).unwrap();
        assert_eq!(launches.len(), 1);
        launches.remove(0).words
    }

    /// Results of 16 MiB and more come from a few words: none is made on the host.
    #[test]
    fn no_result_travels_in_argument_words() {
        let int = |n: i64| Fact::constant(Tensor::i64(&[], &[n]).unwrap());
        let float = |x: f32| Fact::constant(Tensor::f32(&[], &[x]).unwrap());
        let n = 1 << 22;
        assert_eq!(words("range", Attrs::new(), &[float(0.0), float(n as f32), float(1.0)]).len(), 5);
        assert_eq!(words("range", Attrs::new(), &[int(5), int(n + 5), int(1)]), [5, 0, 1, 0]);
        assert_eq!(words("window", Attrs::new(), &[int(n)]).len(), 5);
        let mel = [int(64), int(n), int(16000), float(0.0), float(8000.0)];
        assert_eq!(words("mel_weight_matrix", Attrs::new(), &mel).len(), 5 + 2 * 66);
        let shape = Fact::constant(Tensor::i64(&[2], &[2048, 2048]).unwrap());
        for dist in ["uniform", "normal"] {
            let attrs = Attrs::new().with("dist", dist).with("seed", 9i64);
            let w = words("random", attrs, &[shape.clone()]);
            assert!(w.len() <= 7 && w[..2] == [9, 0], "{w:?}");
        }
        let x = Fact::of(TensorType::new(DType::F32, [7, 1 << 20, 3]));
        assert_eq!(words("shape", Attrs::new().with("start", 1i64), &[x.clone()])[2..], [1 << 20, 0, 3, 0]);
        assert_eq!(words("size", Attrs::new(), &[x])[2..], [21 << 20, 0]);
    }
}
