//! Attention: scores, softmax and weighted sum, one pass each, with the weights in scratch memory.

use kiln_backend::{BackendError, Tactic};
use kiln_families::attention::Problem;
use kiln_families::long::repeated;
use kiln_families::site::{Cx, Site, op_error, unsupported};
use kiln_families::template::{fill, sections};
use kiln_families::{Body, Entry, Grid, Kernel, Launch, plain};
use kiln_ir::DType;

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
    let p = Problem::of(cx)?;
    let w = p.words()?;
    let (total, size) = (p.keys, p.size);
    let count = |shape: &[usize]| shape.iter().map(|&d| d as u64).product::<u64>();
    let rows = count(&[p.batch, p.heads, p.queries]);
    let scores = rows * total as u64;
    let cache = count(&[p.batch, p.kv_heads, total]);
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
        threads(rows * p.v_size as u64),
        threads(cache * size as u64),
        threads(cache * p.v_size as u64),
        threads(scores),
    ];
    let mut out = Vec::new();
    for (k, grid) in grids.into_iter().enumerate() {
        let launch = Launch::map(k, w.clone()).on(grid).scratch((scores * 4).max(4));
        if k == 2 {
            out.extend(repeated(cx, &launch, (total, 1), rows * p.v_size as u64 * 4)?);
        } else {
            out.push(launch);
        }
    }
    // All bind the scratch memory at its largest.
    let bytes = out.iter().map(|l| l.scratch).max().unwrap_or(0);
    Ok(out.into_iter().map(|l| l.scratch(bytes)).collect())
}
