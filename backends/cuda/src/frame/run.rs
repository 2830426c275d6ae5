//! Stores of eight neighbouring results at once, with the fused expression's operands read as vectors.

use super::{cell, load, store};
use kiln_families::scalar::{narrow, register};
use kiln_families::site::Site;
use kiln_ir::DType;
use std::fmt::Write;

/// `emit<j>_run(at, v)`: eight results of the anchor, which lie in one row of the output's last dimension and start at a
/// multiple of eight.
pub fn emit(site: &Site<'_>, j: usize, t: DType) -> String {
    let of = site.out_dtype(j);
    let mut s = format!("DEV void emit{j}_run(u32 at, const {}* v) const {{\n", register(of));
    if t.bits() < 8 {
        let _ = writeln!(s, "    for (u32 i = 0u; i < 8u; i++) {{ emit{j}(at + i, v[i]); }}\n}}");
        return s;
    }
    let mut value = "v[i]".to_owned();
    if site.fused.is_some() {
        s += &operands(site);
        let mut given = vec![narrow(of, "v[i]")];
        for (k, &extra) in site.extras.iter().enumerate() {
            let of = site.graph.ty(extra).dtype;
            given.push(match of.bits() {
                0..8 => format!("e{k}(o{k} + i * s{k})"),
                _ => load(of, &format!("p{k}.v"), "i"),
            });
        }
        value = format!("apply({})", given.join(", "));
    }
    let put = store(t, "all.v", "i", &value);
    let _ = writeln!(
        s,
        "    Run<{}> all;\n#pragma unroll\n    for (u32 i = 0u; i < 8u; i++) {{\n        {put}\n    }}\n    all.put(by{j} + \
         at);\n}}",
        cell(t)
    );
    s
}

/// Offsets `o<k>` of the first operands, their steps `s<k>`, and all eight as `p<k>`.
fn operands(site: &Site<'_>) -> String {
    let mut s = String::new();
    if site.extras.is_empty() {
        return s;
    }
    s += "    const u32 base = extras_at;\n    const u32 rank = m(base);\n    u32 rest = at;\n";
    for k in 0..site.extras.len() {
        let _ = writeln!(s, "    u32 o{k} = rank == 0u ? at : 0u;");
        let _ = writeln!(s, "    const u32 s{k} = rank == 0u ? 1u : m(base + rank * {}u);", k + 2);
    }
    s += "    for (u32 d = rank; d > 0u; d--) {\n        const u32 n = m(base + d);\n";
    s += "        const u32 c = d == 1u ? rest : rest % n;\n        rest = d == 1u ? 0u : rest / n;\n";
    for k in 0..site.extras.len() {
        let _ = writeln!(s, "        o{k} += c * m(base + rank * {}u + d);", k + 1);
    }
    s += "    }\n";
    for (k, &extra) in site.extras.iter().enumerate() {
        let of = site.graph.ty(extra).dtype;
        if of.bits() >= 8 {
            let _ = writeln!(s, "    const auto p{k} = Run<{}>::of(be{k} + o{k}, s{k});", cell(of));
        }
    }
    s
}
