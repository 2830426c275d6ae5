//! Operators whose result follows from a few numbers and the position: shapes, sizes, ranges, windows, mel filters and
//! random numbers. The numbers travel as argument words, the device makes the elements.

use crate::scalar::{cast, narrow, register};
use crate::site::{Cx, Site, op_error, unsupported};
use crate::template::{fill, section, sections};
use crate::{Body, Entry, Kernel, Launch, word};
use kiln_backend::{BackendError, Tactic};
use kiln_ir::{DType, Elems, Tensor};
use kiln_ops::generate::random::{Uniform, key};
use kiln_ops::{generate::mel, shape};

/// The kernels.
pub const KERNELS: &[Kernel] = &[
    Kernel::of("shape", &["shape", "size"], dims_source, dims),
    Kernel::of("range", &["range"], range_source, range),
    Kernel::of("window_function", &["window"], |s, _| made(s, &["window"], "weight(at)"), window),
    Kernel::of("mel", &["mel_weight_matrix"], |s, _| made(s, &["mel"], "filter_at(at)"), mel_filters),
    Kernel::of("random", &["random"], random_source, random),
];

/// A map that binds no input; `code` has the sections named, `value` is an f32.
fn made(site: &Site<'_>, parts: &[&str], value: &str) -> Result<Body, BackendError> {
    let t = site.out_dtype(0);
    let mut body = alone(sections(site.text("generate"), parts));
    body.code += &site.function("compute0", &[("at", "u32")], register(t), &cast(value, DType::F32, t));
    Ok(body)
}

/// A map over output 0 that binds no input.
fn alone(code: String) -> Body {
    Body { code, entries: vec![Entry::Map(0)], inputs: Some(Vec::new()), ..Body::default() }
}

/// An i64 as two words, the low one first.
fn long(n: i64) -> [u32; 2] {
    [n as u32, (n >> 32) as u32]
}

fn dims_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let value = "ci64(m(at * 2u + 1u), m(at * 2u))";
    Ok(alone(site.function("compute0", &[("at", "u32")], "i64", value)))
}

fn dims(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, op) = (cx.shape(0)?, cx.op()?);
    let dims = match op.name() {
        "size" => vec![x.iter().product()],
        _ => {
            let (start, end) = shape::window(op.attrs(), x.len()).map_err(op_error)?;
            x[start..end].to_vec()
        }
    };
    Ok(vec![Launch::map(0, dims.into_iter().flat_map(|d| long(d as i64)).collect())])
}

fn range_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let t = site.out_dtype(0);
    let value = match register(t) {
        "f32" => return Ok(alone(section(site.text("generate"), "range_float").to_owned())),
        "i64" => "(ci64(m(1u), m(0u)) + i64(at) * ci64(m(3u), m(2u)))".to_owned(),
        // In 32 bits the lower ones of any product and sum are right.
        _ => narrow(t, "bitcast<i32>(m(0u) + at * m(2u))"),
    };
    Ok(alone(site.function("compute0", &[("at", "u32")], register(t), &value)))
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
            scaled(start[0], step[0], n).to_vec()
        }
        (Elems::I(start), Elems::I(step)) => match (&start[..], &step[..]) {
            ([a, ..], [d, ..]) => [long(*a), long(*d)].concat(),
            _ => return unsupported("a range without a start or a step"),
        },
        _ => return unsupported("a range whose start and step differ in type"),
    };
    Ok(vec![Launch::map(0, words)])
}

/// Words of `range_float`. Steps and sums are scaled so that none overflows or is too small to be normal.
///
/// The result differs from start + i·step, rounded once, by half a unit in the last place and 2⁻⁴⁴·(|start| + |i·step|) at most:
/// the six products are exact, and each of their sums keeps what it lost in a second number of 24 bits.
fn scaled(start: f64, step: f64, n: usize) -> [u32; 5] {
    let most = start.abs().max(step.abs() * n as f64);
    let exponent = match most {
        m if m == 0.0 || (2f64.powi(-60)..2f64.powi(100)).contains(&m) => 0,
        m => m.log2().floor() as i32,
    };
    let (start, step) = (start * 2f64.powi(-exponent), step * 2f64.powi(-exponent));
    let upper = f32::from_bits((step as f32).to_bits() & 0xffff_f000);
    let lower = (step - f64::from(upper)) as f32;
    let half = exponent / 2;
    [start as f32, upper, lower, 2f32.powi(half), 2f32.powi(exponent - half)].map(f32::to_bits)
}

fn window(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (n, a) = (cx.out_shape(0)?.iter().product::<usize>(), cx.op()?.attrs());
    let span = if a.bool("periodic").map_err(op_error)? { n } else { n.saturating_sub(1) };
    // C, A and B of C + A·s + B·s² with s = sin²(πt).
    let (c, s, s2) = match a.str("kind").map_err(op_error)? {
        "hann" => (0.0, 1.0, 0.0),
        "hamming" => (4.0 / 46.0, 42.0 / 46.0, 0.0),
        _ => (0.0, 0.36, 0.64),
    };
    let mut words = vec![word(span)?];
    words.extend([c, s, s2, s + 2.0 * s2].map(|x: f64| (x as f32).to_bits()));
    Ok(vec![Launch::map(0, words)])
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
    let mut words = vec![word(bands)?];
    words.extend(edges.iter().flat_map(|&e| {
        let whole = e.clamp(-(1 << 30), 1 << 30) as i32;
        [whole as u32, (e as f32).to_bits()]
    }));
    Ok(vec![Launch::map(0, words)])
}

fn random_source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let dist = site.op()?.attrs().str("dist").map_err(op_error)?;
    let text = sections(site.text("generate"), &["philox", dist]);
    Ok(alone(fill(&text, &[("ROUNDED", &narrow(site.out_dtype(0), "sum"))])))
}

fn random(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let a = cx.op()?.attrs();
    let mut words = key(a.int("seed").map_err(op_error)?).to_vec();
    match a.str("dist").map_err(op_error)? {
        "normal" => {
            for name in ["a", "b"] {
                words.push((a.float(name).map_err(op_error)? as f32).to_bits());
            }
        }
        _ => {
            let u = Uniform::of(a).map_err(op_error)?;
            words.extend([u.from, u.width, u.end, u.last].map(f32::to_bits));
            words.push(0);
        }
    }
    Ok(vec![Launch::map(0, words)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dialect;
    use kiln_ir::{Attrs, Fact, Op, TensorType};

    /// What `range_float` computes, here in f64 from its words.
    #[test]
    fn words_of_ranges_hold_start_and_step_exactly() {
        for (start, step, n) in
            [(0.1f32, 0.3f32, 1000usize), (-3e38, 1e38, 6), (0.0, 1e-42, 9), (7.0, 0.0, 3)]
        {
            let w = scaled(start.into(), step.into(), n).map(|w| f64::from(f32::from_bits(w)));
            let scale = w[3] * w[4];
            assert_eq!((w[0] * scale, (w[1] + w[2]) * scale), (start.into(), step.into()), "{start} {step}");
            let short = |x: f64| (x as f32).to_bits() & 0xfff == 0;
            assert!(short(w[1]) && short(w[2]), "{start} {step}");
            assert!((w[1] * n as f64).abs() < 2f64.powi(120), "{start} {step}");
        }
    }

    static NONE: Dialect = Dialect {
        text: |_| "",
        constant: |_, _, _| String::new(),
        alias: |_, _| String::new(),
        function: |_, _, _, _| String::new(),
        decode: |_, _, _| String::new(),
        own: &[],
        generic: &[],
        spans: None,
        reads_through_movement: false,
        reshapes: false,
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
            constant: Vec::new(),
            aliased: Vec::new(),
            views: Vec::new(),
            wanted: Vec::new(),
            rounds: usize::MAX,
            lanes: 1,
            dialect: &NONE,
        };
        let kernel = KERNELS.iter().find(|k| k.ops.contains(&name)).unwrap();
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
        assert_eq!(words("mel_weight_matrix", Attrs::new(), &mel).len(), 1 + 2 * 66);
        let shape = Fact::constant(Tensor::i64(&[2], &[2048, 2048]).unwrap());
        for dist in ["uniform", "normal"] {
            let attrs = Attrs::new().with("dist", dist).with("seed", 9i64);
            let w = words("random", attrs, &[shape.clone()]);
            assert!(w.len() <= 7 && w[..2] == [9, 0], "{w:?}");
        }
        let x = Fact::of(TensorType::new(DType::F32, [7, 1 << 20, 3]));
        assert_eq!(words("shape", Attrs::new().with("start", 1i64), &[x.clone()]), [1 << 20, 0, 3, 0]);
        assert_eq!(words("size", Attrs::new(), &[x]), [21 << 20, 0]);
    }
}
