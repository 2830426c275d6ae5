//! Stores of eight neighbouring results at once, with the fused expression's operands read as vectors.

use super::reach::{self, Reach, whole_bytes};
use super::{anchored, cell, load, store};
use kiln_families::scalar::register;
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
        s += &all_eight(site, j, t);
    }
    let _ = writeln!(
        s,
        "DEV void emit{j}_run(u32 at, const {of}* v) const {{\n    emit{j}_run(at, v, even{j}() ? fetch{j}_run<true>(at) : \
         fetch{j}_run<false>(at));\n}}"
    );
    s
}

/// How types of 16 bits are converted by pairs.
fn pair(t: DType) -> Option<&'static str> {
    match t {
        DType::F16 => Some("f16x2"),
        DType::BF16 => Some("bf16x2"),
        _ => None,
    }
}

/// Statements that store the eight results.
fn all_eight(site: &Site<'_>, j: usize, t: DType) -> String {
    let mut s = String::new();
    let narrow = anchored(site, j, "v[i]");
    let rounded = pair(site.out_dtype(j)).filter(|_| site.fused.is_some() && narrow != "v[i]");
    if let Some(p) = rounded {
        let _ = writeln!(
            s,
            "    f32 w[8];\n#pragma unroll\n    for (u32 i = 0u; i < 8u; i += 2u) {{ {p}_to_f32(f32_to_{p}(v[i], v[i + 1u]), \
             w[i], w[i + 1u]); }}"
        );
    }
    let value = value(site, if rounded.is_some() { "w[i]" } else { &narrow });
    match pair(t) {
        Some(p) => {
            let _ = writeln!(
                s,
                "    const auto value = [&](u32 i) {{ return {value}; }};\n    Halves all;\n#pragma unroll\n    for (u32 i = \
                 0u; i < 8u; i += 2u) {{ all.v[i / 2u] = f32_to_{p}(value(i), value(i + 1u)); }}"
            );
        }
        None => {
            let put = store(t, "all.v", "i", &value);
            let _ = writeln!(
                s,
                "    Run<{}> all;\n#pragma unroll\n    for (u32 i = 0u; i < 8u; i++) {{\n        {put}\n    }}",
                cell(t)
            );
        }
    }
    s + &format!("    all.put(by{j} + at);\n}}\n")
}

/// The i-th of eight results, of the anchor's where there is one.
pub fn value(site: &Site<'_>, anchored: &str) -> String {
    if site.fused.is_none() {
        return "v[i]".to_owned();
    }
    let mut given: Vec<String> = site.anchor.map(|_| anchored.to_owned()).into_iter().collect();
    for (k, (&extra, reach)) in site.extras.iter().zip(reach::reaches(site)).enumerate() {
        let of = site.graph.ty(extra).dtype;
        given.push(match reach {
            _ if !whole_bytes(of) => format!("e{k}(f.o{k} + i * f.s{k})"),
            Reach::One => load(of, &format!("f.p{k}"), "0"),
            _ => load(of, &format!("f.p{k}.v"), "i"),
        });
    }
    format!("apply({})", given.join(", "))
}

/// The structure of what is read, and the functions that read: `even<j>` tells whether vectors start at multiples of 16 bytes,
/// `fetch<j>_run<true>` relies on it.
pub fn fetch(site: &Site<'_>, j: usize) -> String {
    let reaches: Vec<Reach> = reach::reaches(site).into_iter().map(Reach::of_eight).collect();
    let extras: Vec<(DType, Reach)> =
        site.extras.iter().map(|&v| site.graph.ty(v).dtype).zip(reaches.clone()).collect();
    let mut s = format!("struct Fetched{j} {{\n");
    for (k, &(of, reach)) in extras.iter().enumerate() {
        let _ = match reach {
            _ if !whole_bytes(of) => writeln!(s, "    u32 o{k}, s{k};"),
            Reach::One => writeln!(s, "    {} p{k}[1];", cell(of)),
            _ => writeln!(s, "    Run<{}> p{k};", cell(of)),
        };
    }
    let _ = writeln!(s, "}};\nDEV bool even{j}() const {{ return {}; }}", reach::even(site, &reaches));
    let _ =
        writeln!(s, "template <bool EVEN> DEV Fetched{j} fetch{j}_run(u32 at) const {{\n    Fetched{j} f;");
    s += &reach::offsets(&reaches, true);
    for (k, &(of, reach)) in extras.iter().enumerate() {
        let step = match reach {
            Reach::Same | Reach::Tail(_) => "1u".to_owned(),
            Reach::One => "0u".to_owned(),
            Reach::Strided => format!("s{k}"),
        };
        let _ = match reach {
            _ if !whole_bytes(of) => writeln!(s, "    f.o{k} = o{k};\n    f.s{k} = {step};"),
            Reach::One => writeln!(s, "    f.p{k}[0] = be{k}[0];"),
            Reach::Strided => writeln!(s, "    f.p{k} = Run<{}>::of(be{k} + o{k}, s{k});", cell(of)),
            _ => writeln!(s, "    f.p{k} = Run<{}>::template next<EVEN>(be{k} + o{k});", cell(of)),
        };
    }
    s + "    return f;\n}\n"
}
