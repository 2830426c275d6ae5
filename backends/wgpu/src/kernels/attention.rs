//! Attention: scores, softmax and weighted sum, one pass each, with the weights in scratch memory.

use kiln_backend::{BackendError, Tactic};
use kiln_families::long::repeated;
use kiln_families::site::{Cx, Site, op_error, unsupported};
use kiln_families::template::{fill, sections};
use kiln_families::{Body, Entry, Grid, Kernel, Launch, plain, words};
use kiln_ir::DType;
use kiln_ir::ops::util::broadcast_strides;

const TEXT: &str = include_str!("../../../../shaders/attention.wgsl");
const MASK: usize = 3;
const PAST: usize = 4;
const NONPAD: usize = 6;

pub const KERNELS: &[Kernel] = &[Kernel {
    name: "attention",
    ops: &["attention"],
    epilogue: false,
    tactics: |_| plain("attention"),
    source,
    launch,
}];

const PAST_KEY: &str = "if (j < m(7u)) { return x4(((b * m(2u) + h) * m(7u) + j) * m(5u) + d); }";
const PAST_VALUE: &str = "if (j < m(7u)) { return x5(((b * m(2u) + h) * m(7u) + j) * m(6u) + d); }";
const NONPAD_TEST: &str = "if (j >= u32(max(near6(b), 0))) { return out; }";

fn source(site: &Site<'_>, _: &Tactic) -> Result<Body, BackendError> {
    let has = |i| site.dtype(i).is_some();
    let given = |yes: bool, text: &'static str| if yes { text } else { "" };
    let mask = match site.dtype(MASK) {
        None => "",
        Some(DType::Bool) => {
            "if (j >= m(9u)) { return out; }\n    return select(out, 0.0, x3(b * m(10u) + h * m(11u) + i * m(12u) + j * \
             m(13u)));"
        }
        Some(_) => {
            "if (j >= m(9u)) { return out; }\n    return x3(b * m(10u) + h * m(11u) + i * m(12u) + j * m(13u));"
        }
    };
    let qk = match site.op()?.attrs().int("qk_output").map_err(op_error)? {
        0 => "product(b, h, i, j)",
        1 => "product(b, h, i, j) + bias(b, h, i, j)",
        2 => "capped(product(b, h, i, j) + bias(b, h, i, j))",
        _ => "bitcast<f32>(scratch[t])",
    };
    let empty = match site.op()?.attrs().bool("zero_nan").map_err(op_error)? {
        true => "0u, none || (w & 0x7fffffffu) > 0x7f800000u",
        false => "0x7fc00000u, none",
    };
    let pairs = [
        ("EMPTY", empty),
        ("PAST_KEY", given(has(PAST), PAST_KEY)),
        ("PAST_VALUE", given(has(PAST), PAST_VALUE)),
        ("NONPAD", given(has(NONPAD), NONPAD_TEST)),
        ("MASK", mask),
        ("QK", qk),
    ];
    let code = fill(&sections(TEXT, &["common", "entries"]), &pairs);
    let entries = ["scores", "weigh", "mix", "keys", "values", "qk"].map(Entry::Free).into();
    Ok(Body { code, entries, scratch: true, ..Body::default() })
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let attrs = cx.op()?.attrs();
    let (q, keys, values, qk) = (cx.shape(0)?, cx.out_shape(1)?, cx.out_shape(2)?, cx.out_shape(3)?);
    let [batch, heads, queries, total] = qk[..] else {
        return Err(BackendError::Internal("attention scores are 4-D".into()));
    };
    let past = if cx.has(PAST) { cx.shape(PAST)?[2] } else { 0 };
    let (size, v_size, kv_heads) = (keys[3], values[3], keys[1]);
    let (mask_len, strides) = if cx.has(MASK) {
        let own = cx.shape(MASK)?;
        let len = own.last().copied().unwrap_or(0);
        (len, broadcast_strides(&own, &[batch, heads, queries, len]))
    } else {
        (0, vec![0; 4])
    };
    let mut w = words([
        batch,
        heads,
        kv_heads,
        queries,
        total,
        size,
        v_size,
        past,
        usize::from(q.len() == 3),
        mask_len,
    ])?;
    w.extend(words(strides)?);
    let scale = match attrs.float("scale").map_err(op_error)? {
        0.0 => 1.0 / (size as f64).sqrt(),
        s => s,
    };
    w.push((scale as f32).to_bits());
    w.push((attrs.float("softcap").map_err(op_error)? as f32).to_bits());
    w.push(u32::from(attrs.bool("causal").map_err(op_error)?));
    let count = |shape: &[usize]| shape.iter().map(|&d| d as u64).product::<u64>();
    let rows = (batch * heads * queries) as u64;
    let scores = count(&qk);
    // Loops that are not split: over a head for each score, three over the keys of a row.
    let longest = size.max(total.div_ceil(64) * 3 + 128);
    if longest > cx.rounds {
        return unsupported(format!(
            "attention over {total} keys with heads of {size}: loops of {longest} iterations, {} are possible",
            cx.rounds
        ));
    }
    let threads = Grid::Threads;
    let grids = [
        threads(scores),
        Grid::Groups(rows),
        threads(rows * v_size as u64),
        threads(count(&keys)),
        threads(count(&values)),
        threads(scores),
    ];
    let mut out = Vec::new();
    for (k, grid) in grids.into_iter().enumerate() {
        let launch = Launch::map(k, w.clone()).on(grid).scratch((scores * 4).max(4));
        if k == 2 {
            out.extend(repeated(cx, &launch, (total, 1), rows * v_size as u64 * 4)?);
        } else {
            out.push(launch);
        }
    }
    // All bind the scratch memory at its largest.
    let bytes = out.iter().map(|l| l.scratch).max().unwrap_or(0);
    Ok(out.into_iter().map(|l| l.scratch(bytes)).collect())
}
