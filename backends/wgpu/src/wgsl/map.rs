//! Maps: entry points whose threads compute neighbouring elements of an output.
//!
//! A thread of a quick map computes several words. Where it has all of their elements and they are in one row, it finds places once
//! and loads whole words. It stores when all is loaded, as a driver moves no load across a store. Elsewhere it goes element by element.

use super::array::Array;
use super::types::{self, encode};
use super::{ENTRY_ARGS, MAP_THREADS, element_of, link, out_array};
use kiln_backend::BackendError;
use kiln_codegen::scalar::{narrow, register};
use kiln_codegen::site::{Site, unsupported};
use kiln_codegen::{Body, Entry};
use kiln_ir::DType;
use std::fmt::Write;

/// Instructions of an expression up to which it is written for each element of a thread.
const SHORT: usize = 48;

/// The way in which a thread of a quick map finds the values of four neighbours in front of the expression.
enum Fours {
    /// There are none: the expression is all.
    None,
    /// A function of the kernel file, `<name>_run(at) -> Run`, says where they lie in input 0; see `runs.wgsl`.
    Run(&'static str),
    /// A function of the kernel file, `<name>_four(at) -> vec4<value>`, computes them.
    Four(&'static str),
}

/// The values of an entry that maps output `j`, if the map is quick.
fn fours(site: &Site<'_>, body: &Body, entry: &Entry, j: usize) -> Option<Fours> {
    let short = site.fused.as_ref().is_none_or(|e| j > 0 || e.insts.len() <= SHORT);
    if site.side.is_some() || !short {
        return None;
    }
    let Some(name) = entry.element() else { return Some(Fours::None) };
    let defines = |suffix: &str| {
        let start = format!("fn {name}_{suffix}(");
        body.files.iter().filter_map(|f| link::file(f)).any(|f| f.contains(&start))
    };
    if defines("run") {
        return Some(Fours::Run(name));
    }
    defines("four").then_some(Fours::Four(name))
}

/// Elements of a thread of a quick map of this type.
fn wide(t: DType) -> u32 {
    if types::lanes(t) == 1 { 4 } else { 8 }
}

/// Elements of each stored output that one thread of a map computes.
pub fn lanes(site: &Site<'_>, body: &Body) -> Vec<u32> {
    let of = |(j, t): (usize, DType)| {
        let maps = |e: &&Entry| e.mapped() == Some(j);
        let quick = body.entries.iter().find(maps).and_then(|e| fours(site, body, e, j));
        if quick.is_some() { wide(t) } else { types::lanes(t) }
    };
    site.stored().into_iter().enumerate().map(of).collect()
}

/// `fn <name>(at: u32, step: u32) -> vec4<value>`, which loads four elements `step` apart by the function `one` or by words of the array.
pub fn four_loader(name: &str, one: &str, from: Option<&Array>, t: DType) -> String {
    let (r, n) = (register(t), types::lanes(t));
    let each: Vec<String> = (0..4).map(|c| format!("{one}(at + {c}u * step)")).collect();
    let mut text = format!("fn {name}(at: u32, step: u32) -> vec4<{r}> {{\n");
    let _ = writeln!(text, "    if (step == 0u) {{\n        return vec4<{r}>({one}(at));\n    }}");
    if let Some(from) = from.filter(|a| n > 1 && a.cell != super::array::QUAD) {
        let whole = n.min(4);
        let words: Vec<String> = (0..4 / whole)
            .map(|w| format!("        let w{w} = {};\n", from.get(&format!("at / {n}u + {w}u"))))
            .collect();
        let lane = |c: u32| match n {
            8 => types::decode(t, "w0", &format!("(at % 8u + {c}u)")),
            _ => types::decode(t, &format!("w{}", c / whole), &format!("{}u", c % whole)),
        };
        let values: Vec<String> = (0..4).map(lane).collect();
        let _ = writeln!(
            text,
            "    if (step == 1u && at % {whole}u == 0u) {{\n{}        return vec4<{r}>({});\n    }}",
            words.concat(),
            values.join(", ")
        );
    }
    let _ = writeln!(text, "    return vec4<{r}>({});\n}}", each.join(", "));
    text
}

/// Whether a function of the kernel's files says where runs of elements lie in input 0.
pub fn has_runs(body: &Body) -> bool {
    body.files.iter().filter_map(|f| link::file(f)).any(|f| f.contains("_run(at: u32) -> Run {"))
}

/// `four_of_run(run, j)`: four elements of input 0 from element `j` of a run on.
pub fn four_of_run(t: DType) -> String {
    let each: Vec<String> = (0..4).map(|c| format!("x0(run_place(run, j + {c}u))")).collect();
    format!(
        "fn four_of_run(run: Run, j: u32) -> vec4<{0}> {{\n    if (run.left >= j + 4u) {{\n        return fx0(run.start + j * \
         run.step, run.step);\n    }}\n    return vec4<{0}>({1});\n}}\n",
        register(t),
        each.join(", ")
    )
}

/// `struct Spots` and `fn spots(at: u32) -> Spots`: places of an element's operands, how far apart those of its neighbours are, and
/// the number of neighbours for which that holds.
pub fn spots(site: &Site<'_>) -> String {
    let n = site.extras.len();
    let fields: String = (0..n).map(|k| format!("    o{k}: u32,\n    s{k}: u32,\n")).collect();
    let mut s = format!("struct Spots {{\n    left: u32,\n{fields}}}\n\n");
    s.push_str("fn spots(at: u32) -> Spots {\n    let base = fused_words();\n    let rank = arg(base);\n    var rest = at;\n");
    s.push_str("    var left = 0xffffffffu;\n");
    for k in 0..n {
        let _ = writeln!(
            s,
            "    var o{k} = {}select(0u, at, rank == 0u);\n    var s{k} = 1u;",
            super::offset(site, k)
        );
    }
    s.push_str("    for (var d = rank; d > 0u; d--) {\n        let n = arg(base + d);\n        let c = rest % n;\n        rest = rest / n;\n");
    for k in 0..n {
        let _ =
            writeln!(s, "        let t{k} = arg(base + rank * {}u + d);\n        o{k} += c * t{k};", k + 1);
    }
    s.push_str("        if (d == rank) {\n            left = n - c;\n");
    for k in 0..n {
        let _ = writeln!(s, "            s{k} = t{k};");
    }
    let all: String = (0..n).map(|k| format!(", o{k}, s{k}")).collect();
    let _ = writeln!(s, "        }}\n    }}\n    return Spots(left{all});\n}}");
    s
}

/// The entry point of a map of output `j`.
pub fn entry(
    site: &Site<'_>,
    body: &Body,
    (k, e): (usize, &Entry),
    j: usize,
    free: bool,
) -> Result<String, BackendError> {
    let Some(&t) = site.stored().get(j) else { return unsupported("an output that is not stored") };
    let value = element_of(site, e);
    let mut s = format!("@compute @workgroup_size({MAP_THREADS})\nfn main{k}({ENTRY_ARGS}) {{\n");
    s.push_str("    let t = (w.y * g.x + w.x) * 64u + l;\n    let count = grid();\n");
    match fours(site, body, e, j) {
        Some(way) => {
            let _ = writeln!(
                s,
                "    let first = t * {}u;\n    if (first >= count) {{\n        return;\n    }}",
                wide(t)
            );
            s += &whole(site, &way, j, t, free);
            let n = types::lanes(t);
            let _ =
                writeln!(s, "    for (var q = first / {n}u; q < first / {n}u + {}u; q++) {{", wide(t) / n);
            s += &one_word(site, j, t, free, &value, "q");
            s.push_str("    }\n");
        }
        None => s += &one_word(site, j, t, free, &value, "t"),
    }
    s.push_str("}\n");
    Ok(s)
}

/// Statements that compute the elements of a word one by one, as far as there are any.
fn one_word(site: &Site<'_>, j: usize, t: DType, free: bool, value: &str, word: &str) -> String {
    let n = types::lanes(t);
    if site.insert.is_some() && j == 0 {
        return format!(
            "    for (var k = 0u; k < {n}u; k++) {{\n        let at = {word} * {n}u + k;\n        if (at < count) {{ put{j}(placed(at), \
             {value}); }}\n    }}\n"
        );
    }
    if n == 1 {
        let store = out_array(site, j, free).set("at", value);
        return format!("    {{\n        let at = {word};\n        if (at < count) {{ {store} }}\n    }}\n");
    }
    let store = out_array(site, j, free).set(word, "word");
    format!(
        "    if ({word} * {n}u < count) {{\n    var word = 0u;\n    for (var k = 0u; k < {n}u; k++) {{\n        \
         let at = {word} * {n}u + k;\n        if (at < count) {{\n            let v = {value};\n            word |= {} << (k * {}u);\n        \
         }}\n    }}\n    {store}\n    }}\n",
        encode(t, "v"),
        t.bits()
    )
}

/// The part of a quick map that computes all elements of a thread at once, and returns.
fn whole(site: &Site<'_>, way: &Fours, j: usize, t: DType, free: bool) -> String {
    let (v, n) = (wide(t), types::lanes(t));
    let groups = v / 4;
    let fused = site.fused.is_some() && j == 0;
    let placed = site.insert.is_some() && j == 0;
    let extras = if fused { site.extras.len() } else { 0 };
    let mut s = format!("    if (first + {v}u <= count) {{\n");
    let mut tests = Vec::new();
    if placed {
        // Neighbours of a part that lie in one run, from the start of a word on.
        s.push_str("        let to = placed(first);\n");
        tests.push(format!("placed(first + {}u) == to + {}u && to % {n}u == 0u", v - 1, v - 1));
    }
    if extras > 0 {
        s.push_str("        let lie = spots(first);\n");
        tests.push(format!("lie.left >= {v}u"));
    }
    if let Fours::Run(name) = way {
        let _ = writeln!(s, "        let run = {name}_run(first);");
        tests.push(format!("run.both >= {v}u"));
    }
    let test = if tests.is_empty() { "true".to_owned() } else { tests.join(" && ") };
    let _ = writeln!(s, "        if ({test}) {{");
    for g in 0..groups {
        let at = format!("first + {}u", g * 4);
        match way {
            Fours::None => {}
            Fours::Run(_) => {
                let _ = writeln!(s, "            let x{g} = four_of_run(run, {}u);", g * 4);
            }
            Fours::Four(name) => {
                let _ = writeln!(s, "            let x{g} = {name}_four({at});");
            }
        }
        for k in 0..extras {
            let _ =
                writeln!(s, "            let e{k}_{g} = fe{k}(lie.o{k} + {}u * lie.s{k}, lie.s{k});", g * 4);
        }
    }
    for c in 0..v {
        let (g, lane) = (c / 4, c % 4);
        let own = match way {
            Fours::None => None,
            _ => Some(format!("x{g}[{lane}]")),
        };
        let value = match (fused, own) {
            (false, own) => own.unwrap_or_default(),
            (true, own) => {
                let own = own.map(|x| narrow(site.out_dtype(0), &x));
                let others = (0..extras).map(|k| format!("e{k}_{g}[{lane}]"));
                let all: Vec<String> = own.into_iter().chain(others).collect();
                format!("fused({})", all.join(", "))
            }
        };
        let _ = writeln!(s, "            let v{c} = {value};");
    }
    let cells = if placed { format!("to / {n}u") } else { format!("t * {}u", v / n) };
    for word in 0..v / n {
        let lane = |k: u32| format!("({} << {}u)", encode(t, &format!("v{}", word * n + k)), k * t.bits());
        let cell = match n {
            1 => format!("v{word}"),
            _ => (0..n).map(lane).collect::<Vec<_>>().join(" | "),
        };
        let _ =
            writeln!(s, "            {}", out_array(site, j, free).set(&format!("{cells} + {word}u"), &cell));
    }
    s.push_str("            return;\n        }\n    }\n");
    s
}
