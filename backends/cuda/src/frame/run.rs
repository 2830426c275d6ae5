//! Stores of eight neighbouring results at once, with the fused expression's operands read as vectors.

use super::reach::{self, Reach, whole_bytes};
use super::{anchored, cell, exact, load, place, store};
use kiln_codegen::scalar::register;
use kiln_codegen::site::Site;
use kiln_codegen::slice::insert::keeps_eights;
use kiln_ir::DType;
use std::fmt::Write;

/// `fetch<j>_run(at)` reads what the expression wants beside eight results of the anchor, `emit<j>_run(at, v, fetched)` stores
/// these; they lie in one row of the output's last dimension and start at a multiple of eight. Apart, so that many reads may
/// be on their way at once. `emit<j>_run(at, v)` does both.
pub fn emit(site: &Site<'_>, j: usize, t: DType) -> String {
    let of = register(site.out_dtype(j));
    let mut s = fetch(site, j);
    let _ = writeln!(s, "DEV void emit{j}_run(u32 at, const {of}* v, const Fetched{j}& f) const {{");
    if t.bits() < 8 || j == 0 && !keeps_eights(site) {
        let _ = writeln!(s, "    for (u32 i = 0u; i < 8u; i++) {{ emit{j}(at + i, v[i]); }}\n}}");
    } else {
        s += &(all_eight(site, j, t) + "}\n");
    }
    let _ = writeln!(
        s,
        "DEV void emit{j}_run(u32 at, const {of}* v) const {{\n    emit{j}_run(at, v, even{j}() ? fetch{j}_run<true>(at) : \
         fetch{j}_run<false>(at));\n}}"
    );
    if site.side.is_some() && j == 0 {
        s += &emitted(site, t);
    }
    s
}

/// `emit<j>_any(at, v)` stores eight neighbours that start at a multiple of eight, and may be in several rows of the output's last
/// dimension: one by one where they are, and operands are read by strides.
pub fn emit_any(site: &Site<'_>, j: usize) -> String {
    let of = register(site.out_dtype(j));
    let run = format!("emit{j}_run(at, v);");
    let body = match reach::strided(site) {
        false => run,
        true => format!(
            "if ({}) {{ {run} }} else {{ for (u32 i = 0u; i < 8u; i++) {{ emit{j}(at + i, v[i]); }} }}",
            reach::IN_ONE_ROW
        ),
    };
    format!("DEV void emit{j}_any(u32 at, const {of}* v) const {{\n    {body}\n}}\n")
}

/// `emitted0_run(at, v, stored)` stores eight results, and returns them as they are stored.
fn emitted(site: &Site<'_>, t: DType) -> String {
    let stored = match pair(t) {
        Some(p) => format!(
            "    for (u32 i = 0u; i < 8u; i += 2u) {{ {p}_to_f32(all.v[i / 2u], stored[i], stored[i + 1u]); }}"
        ),
        None => {
            let element = match t {
                DType::I8 | DType::U8 | DType::F8E4M3 => load(t, "(&cell)", "0"),
                _ => load(t, "all.v", "i"),
            };
            let cell = match t.bits() {
                8 if t != DType::Bool => format!("const {0} cell = all.at<{0}>(i); ", cell(t)),
                _ => String::new(),
            };
            format!("    for (u32 i = 0u; i < 8u; i++) {{ {cell}stored[i] = {element}; }}")
        }
    };
    format!(
        "DEV void emitted0_run(u32 at, const {}* v, {}* stored) const {{\n    const Fetched0 f = even0() ? \
         fetch0_run<true>(at) : fetch0_run<false>(at);\n{}#pragma unroll\n{stored}\n}}\n",
        register(site.out_dtype(0)),
        register(t),
        all_eight(site, 0, t)
    )
}

/// Conversion of pairs of a type of 16 bits.
fn pair(t: DType) -> Option<&'static str> {
    match t {
        DType::F16 => Some("f16x2"),
        DType::BF16 => Some("bf16x2"),
        _ => None,
    }
}

/// Statements that store the eight results.
fn all_eight(site: &Site<'_>, j: usize, t: DType) -> String {
    let mut s = prepared(site);
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
    s += &eight(t, &value);
    s + &format!("    all.put(by{j} + {});\n", place(site, j))
}

/// Statements that define `all`, the eight results as they are stored. The i-th of them is `value`.
pub fn eight(t: DType, value: &str) -> String {
    let of = format!("    const auto value = [&](u32 i) {{ return {value}; }};\n");
    let each = |of: &str, step: u32, put: &str| {
        format!("    {of} all;\n#pragma unroll\n    for (u32 i = 0u; i < 8u; i += {step}u) {{ {put} }}\n")
    };
    let four = "value(i), value(i + 1u), value(i + 2u), value(i + 3u)";
    of + &match t {
        DType::F16 | DType::BF16 => {
            let p = pair(t).unwrap_or_default();
            each("Halves", 2, &format!("all.v[i / 2u] = f32_to_{p}(value(i), value(i + 1u));"))
        }
        DType::I8 | DType::U8 => {
            each("Bytes", 4, &format!("all.v[i / 4u] = word_of_codes<{}>({four});", cell(t)))
        }
        DType::F8E4M3 => each("Bytes", 4, &format!("all.v[i / 4u] = f32_to_f8e4m3x4({four});")),
        _ => each(&format!("Run<{}>", cell(t)), 1, &store(t, "all.v", "i", "value(i)")),
    }
}

/// The i-th of eight results, of the anchor's where there is one.
pub fn value(site: &Site<'_>, anchored: &str) -> String {
    let Some(e) = &site.fused else { return "v[i]".to_owned() };
    let first = usize::from(site.anchor.is_some());
    let mut given: Vec<String> = site.anchor.map(|_| anchored.to_owned()).into_iter().collect();
    for (k, (&extra, reach)) in site.extras.iter().zip(reach::reaches(site)).enumerate() {
        let of = site.graph.ty(extra).dtype;
        given.push(match reach {
            _ if !whole_bytes(of) => format!("e{k}(f.o{k} + i * f.s{k})"),
            Reach::One => format!("c{k}"),
            _ if of == DType::F8E4M3 => format!("d{k}[i]"),
            _ if exact::codes(e).contains(&(k + first)) => format!("d{k}.at(i)"),
            _ => load(of, &format!("f.p{k}.v"), "i"),
        });
    }
    format!("apply({})", given.join(", "))
}

/// Statements that compute what follows from the operands that [`value`] names, once for eight results: the reciprocal of a step, codes as
/// words.
pub fn prepared(site: &Site<'_>) -> String {
    let mut s = String::new();
    let Some(e) = &site.fused else { return s };
    let (first, steps, codes) = (usize::from(site.anchor.is_some()), exact::steps(e), exact::codes(e));
    for (k, (&extra, reach)) in site.extras.iter().zip(reach::reaches(site)).enumerate() {
        let of = site.graph.ty(extra).dtype;
        let one = load(of, &format!("f.p{k}"), "0");
        let _ = match reach {
            _ if !whole_bytes(of) => Ok(()),
            Reach::One if of == DType::F32 && steps.contains(&(k + first)) => {
                writeln!(s, "    const CodeStep c{k}({one});")
            }
            Reach::One => writeln!(s, "    const auto c{k} = {one};"),
            _ if of == DType::F8E4M3 => writeln!(s, "    f32 d{k}[8];\n    f8e4m3x8_to_f32(f.p{k}, d{k});"),
            _ if codes.contains(&(k + first)) => writeln!(s, "    const Codes<{}> d{k}(f.p{k});", cell(of)),
            _ => Ok(()),
        };
    }
    s
}

/// The structures of operands, and the functions that read them. `even<j>` reports whether vectors start at
/// multiples of 16 bytes; `fetch<j>_run<true>` relies on it. `fetch<j>_columns` reads operands that are the
/// same for all rows of the anchor's result, `fetch<j>_rest` the rest.
pub fn fetch(site: &Site<'_>, j: usize) -> String {
    let reaches: Vec<Reach> = reach::reaches(site).into_iter().map(Reach::of_eight).collect();
    let columns = site.anchor.and_then(|(_, node)| {
        let y = site.graph.ty(*node.outputs.first()?);
        u64::try_from(y.dims.last()?.as_const()?).ok()
    });
    let all = reaches.iter().copied().enumerate();
    let (own, rest): (Vec<_>, Vec<_>) = all.partition(|(_, r)| r.of_column(columns));
    let mut s = part(site, &format!("Columns{j}"), &format!("fetch{j}_columns"), &own);
    s += &part(site, &format!("Rest{j}"), &format!("fetch{j}_rest"), &rest);
    let _ = writeln!(
        s,
        "struct Fetched{j} : Columns{j}, Rest{j} {{}};\nDEV bool even{j}() const {{ return {}; }}\n\
         template <bool EVEN> DEV Fetched{j} fetch{j}_run(u32 at) const {{ return Fetched{j}{{fetch{j}_columns<EVEN>(at), \
         fetch{j}_rest<EVEN>(at)}}; }}",
        reach::even(site, &reaches)
    );
    s
}

/// The structure of some extras, by position, and the function that reads them.
fn part(site: &Site<'_>, name: &str, read: &str, extras: &[(usize, Reach)]) -> String {
    let of = |k: usize| site.extras.get(k).map_or(DType::F32, |&v| site.graph.ty(v).dtype);
    let mut s = format!("struct {name} {{\n");
    for &(k, reach) in extras {
        let _ = match reach {
            _ if !whole_bytes(of(k)) => writeln!(s, "    u32 o{k}, s{k};"),
            Reach::One => writeln!(s, "    {} p{k}[1];", cell(of(k))),
            _ => writeln!(s, "    Run<{}> p{k};", cell(of(k))),
        };
    }
    let _ = writeln!(s, "}};\ntemplate <bool EVEN> DEV {name} {read}(u32 at) const {{\n    {name} f;");
    s += &reach::offsets(site, extras, true);
    for &(k, reach) in extras {
        let step = match reach {
            Reach::Same | Reach::Tail(_) => "1u".to_owned(),
            Reach::One => "0u".to_owned(),
            Reach::Strided => format!("s{k}"),
        };
        let _ = match reach {
            _ if !whole_bytes(of(k)) => writeln!(s, "    f.o{k} = o{k};\n    f.s{k} = {step};"),
            Reach::One => writeln!(s, "    f.p{k}[0] = be{k}[0];"),
            Reach::Strided => writeln!(s, "    f.p{k} = Run<{}>::of(be{k} + o{k}, s{k});", cell(of(k))),
            _ => writeln!(s, "    f.p{k} = Run<{}>::template next<EVEN>(be{k} + o{k});", cell(of(k))),
        };
    }
    s + "    return f;\n}\n"
}
