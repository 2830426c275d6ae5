//! Stores of eight neighbouring results at once, with the fused expression's operands read as vectors.

use super::{cell, load, store};
use kiln_families::scalar::{narrow, register};
use kiln_families::site::Site;
use kiln_ir::DType;
use std::fmt::Write;

/// `fetch<j>_run(at)` reads what the expression wants beside eight results of the anchor, `emit<j>_run(at, v, fetched)` stores
/// these; they lie in one row of the output's last dimension and start at a multiple of eight. Apart, so that many reads may
/// be on their way at once. `emit<j>_run(at, v)` does both.
pub fn emit(site: &Site<'_>, j: usize, t: DType) -> String {
    let of = register(site.out_dtype(j));
    let mut s = fetch(site, j);
    let _ = writeln!(s, "DEV void emit{j}_run(u32 at, const {of}* v, const Fetched{j}& f) const {{");
    if t.bits() < 8 {
        let _ = writeln!(s, "    for (u32 i = 0u; i < 8u; i++) {{ emit{j}(at + i, v[i]); }}\n}}");
    } else {
        let put = store(t, "all.v", "i", &value(site, j));
        let _ = writeln!(
            s,
            "    Run<{}> all;\n#pragma unroll\n    for (u32 i = 0u; i < 8u; i++) {{\n        {put}\n    }}\n    all.put(by{j} \
             + at);\n}}",
            cell(t)
        );
    }
    let _ = writeln!(
        s,
        "DEV void emit{j}_run(u32 at, const {of}* v) const {{ emit{j}_run(at, v, fetch{j}_run(at)); }}"
    );
    s
}

/// The i-th of eight results.
pub fn value(site: &Site<'_>, j: usize) -> String {
    if site.fused.is_none() {
        return "v[i]".to_owned();
    }
    let anchored = site.anchor.map(|_| narrow(site.out_dtype(j), "v[i]"));
    let mut given: Vec<String> = anchored.into_iter().collect();
    for (k, &extra) in site.extras.iter().enumerate() {
        let of = site.graph.ty(extra).dtype;
        given.push(match of.bits() {
            0..8 => format!("e{k}(f.o{k} + i * f.s{k})"),
            _ => load(of, &format!("f.p{k}.v"), "i"),
        });
    }
    format!("apply({})", given.join(", "))
}

/// The structure of what is read, and the function that reads: offsets of the first operands, their steps, and where
/// elements are bytes all eight.
pub fn fetch(site: &Site<'_>, j: usize) -> String {
    let extras: Vec<DType> = site.extras.iter().map(|&v| site.graph.ty(v).dtype).collect();
    let mut s = format!("struct Fetched{j} {{\n");
    for (k, &of) in extras.iter().enumerate() {
        let _ = match of.bits() {
            0..8 => writeln!(s, "    u32 o{k}, s{k};"),
            _ => writeln!(s, "    Run<{}> p{k};", cell(of)),
        };
    }
    let _ = writeln!(s, "}};\nDEV Fetched{j} fetch{j}_run(u32 at) const {{\n    Fetched{j} f;");
    if !extras.is_empty() {
        s += "    const u32 base = extras_at;\n    const u32 rank = m(base);\n    u32 rest = at;\n";
        for k in 0..extras.len() {
            let _ = writeln!(s, "    u32 o{k} = rank == 0u ? at : 0u;");
            let _ = writeln!(s, "    const u32 s{k} = rank == 0u ? 1u : m(base + rank * {}u);", k + 2);
        }
        s += "    for (u32 d = rank; d > 0u; d--) {\n        const u32 n = m(base + d);\n";
        s += "        const u32 c = d == 1u ? rest : rest % n;\n        rest = d == 1u ? 0u : rest / n;\n";
        for k in 0..extras.len() {
            let _ = writeln!(s, "        o{k} += c * m(base + rank * {}u + d);", k + 1);
        }
        s += "    }\n";
    }
    for (k, &of) in extras.iter().enumerate() {
        let _ = match of.bits() {
            0..8 => writeln!(s, "    f.o{k} = o{k};\n    f.s{k} = s{k};"),
            _ => writeln!(s, "    f.p{k} = Run<{}>::of(be{k} + o{k}, s{k});", cell(of)),
        };
    }
    s + "    return f;\n}\n"
}
