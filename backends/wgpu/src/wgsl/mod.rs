//! Writing a kernel's module: bindings, loads and stores of every tensor, the fused expression, entry points.

pub mod array;
pub mod link;
mod map;
pub mod types;

use crate::halves::EXACT_HALVES;
use array::Array;
use kiln_backend::{BackendError, Binding, Tactic};
use kiln_codegen::scalar::{self, narrow, near, register};
use kiln_codegen::site::{Site, unsupported};
use kiln_codegen::{Body, Entry, Kernel, rows};
use kiln_ir::{DType, ValueId};
pub use map::lanes;
use std::fmt::Write;
use types::{encode, storer};

/// Tensor or memory of one binding of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The argument words.
    Args,
    /// An input of the anchor, by position, and which piece of it.
    Input(usize, usize),
    /// A further input of the region, by position among the extras, and which piece of it.
    Extra(usize, usize),
    /// A stored output, and which piece of it.
    Output(usize, usize),
    /// Scratch memory.
    Scratch,
    /// Sizes for the host.
    Sizes,
    /// A record for each step, set by what the host answers with an error.
    Faults,
}

impl Slot {
    /// The slot as blobs store it.
    pub fn binding(&self) -> Binding {
        match *self {
            Slot::Args => Binding::Arguments,
            Slot::Input(k, p) => Binding::Input(k as u32, p as u32),
            Slot::Extra(k, p) => Binding::Extra(k as u32, p as u32),
            Slot::Output(j, p) => Binding::Output(j as u32, p as u32),
            Slot::Scratch => Binding::Scratch,
            Slot::Sizes => Binding::Sizes,
            Slot::Faults => Binding::Faults,
        }
    }

    /// The slot of a stored binding.
    pub fn of(binding: &Binding) -> Slot {
        match *binding {
            Binding::Arguments => Slot::Args,
            Binding::Input(k, p) => Slot::Input(k as usize, p as usize),
            Binding::Extra(k, p) => Slot::Extra(k as usize, p as usize),
            Binding::Output(j, p) => Slot::Output(j as usize, p as usize),
            Binding::Scratch => Slot::Scratch,
            Binding::Sizes => Slot::Sizes,
            Binding::Faults => Slot::Faults,
        }
    }
}

/// First line of a module: the number of its bindings, and its entry points.
pub struct Head {
    pub bindings: u32,
    pub entries: Vec<String>,
}

impl Head {
    /// Reads the first line; `None` if the text is not a module of this backend.
    pub fn parse(text: &str) -> Option<Head> {
        let mut words = text.lines().next()?.strip_prefix("// kiln ")?.split(' ');
        let bindings = words.next()?.parse().ok().filter(|n| *n <= 1024)?;
        Some(Head { bindings, entries: words.map(str::to_owned).collect() })
    }
}

/// The bindings of a kernel in order.
pub fn slots(site: &Site<'_>, body: &Body) -> Vec<Slot> {
    let inputs = body.inputs.clone().unwrap_or_else(|| site.device_inputs());
    let mut out = vec![Slot::Args];
    let mut add = |v: Option<ValueId>, slot: &dyn Fn(usize) -> Slot| {
        out.extend((0..pieces(site, v)).map(slot));
    };
    for k in inputs.into_iter().filter(|_| site.anchor.is_some()) {
        add(site.bound(k), &|p| Slot::Input(k, p));
    }
    for (k, &v) in site.extras.iter().enumerate() {
        add(Some(v), &|p| Slot::Extra(k, p));
    }
    for j in 0..site.stored().len() {
        add(site.stored_value(j), &|p| Slot::Output(j, p));
    }
    out.extend(body.scratch.then_some(Slot::Scratch));
    out.extend(body.sizes.then_some(Slot::Sizes));
    out.extend((!body.checks.is_empty()).then_some(Slot::Faults));
    out
}

/// Bindings that a value takes: several if it is known to be larger than what one spans.
fn pieces(site: &Site<'_>, v: Option<ValueId>) -> usize {
    let ty = v.map(|v| site.graph.ty(v));
    let bytes = ty.and_then(|t| t.dtype.bytes_for(t.static_volume()? as u64)).unwrap_or(0);
    bytes.div_ceil(array::piece_bytes(site.target.memory.max_binding)).clamp(1, 1 << 16) as usize
}

/// The array of a bound value.
fn array(site: &Site<'_>, name: String, v: Option<ValueId>, t: DType, atomic: bool) -> Array {
    let cell_bytes = if t.bits() > 32 { 8 } else { 4 };
    let cells = array::piece_bytes(site.target.memory.max_binding) / cell_bytes;
    Array {
        name,
        cell: types::cell(t),
        pieces: pieces(site, v),
        shift: cells.ilog2(),
        atomic: atomic && types::lanes(t) > 1,
    }
}

/// The array of output `j`.
fn out_array(site: &Site<'_>, j: usize, free: bool) -> Array {
    let t = site.stored().get(j).copied().unwrap_or(DType::F32);
    array(site, format!("by{j}"), site.stored_value(j), t, free)
}

/// Refuses a kernel with more bindings than the device has, without its text.
pub fn check_bindings(kernel: &Kernel, site: &Site<'_>, tactic: &Tactic) -> Result<(), BackendError> {
    let limit = site.target.numbers.get("storage_buffers").copied().unwrap_or(8);
    let most = Body { scratch: true, sizes: true, checks: vec![0], ..Body::default() };
    if slots(site, &most).len() as u64 <= limit {
        return Ok(());
    }
    let count = slots(site, &kernel.outline(site, tactic)?).len();
    match count as u64 <= limit {
        true => Ok(()),
        false => unsupported(format!("{count} bindings of one kernel, the device has {limit}")),
    }
}

/// The whole text.
pub fn module(site: &Site<'_>, body: &Body) -> Result<String, BackendError> {
    let slots = slots(site, body);
    let free = body.entries.iter().any(Entry::writes) || site.insert.is_some();
    let files: Vec<&str> = body.files.iter().filter_map(|f| link::file(f)).collect();
    let calls = |name: String| body.code.contains(&name) || files.iter().any(|f| f.contains(&name));
    let mut text = String::new();
    for (i, slot) in slots.iter().enumerate() {
        let quads = |k: usize| site.dtype(k) == Some(DType::F16) && calls(format!("quad{k}("));
        text.push_str(&binding(site, body, i, *slot, (free, &quads, calls("&scratch[".into()))));
        if let Slot::Input(k, 0) = *slot {
            if calls(format!("near{k}(")) {
                let value = near(&format!("x{k}"), site.dtype(k));
                text += &site.function(&format!("near{k}"), &[("at", "u32")], "i32", &value);
            }
            if quads(k) {
                let cells = array(site, format!("bx{k}"), site.bound(k), DType::F16, false).of_quads();
                let (cell, quad) = (cells.get("at / 4u"), cells.cell);
                let _ = writeln!(text, "fn quad{k}(at: u32) -> {quad} {{ return {cell}; }}");
            }
            let runs = k == 0 && map::has_runs(body);
            if runs || calls(format!("fx{k}(")) {
                let t = site.dtype(k).unwrap_or(DType::F32);
                let from = array(site, format!("bx{k}"), site.bound(k), t, false);
                let words = (body.view_words(site, k).is_none() && !quads(k)).then_some(&from);
                text += &map::four_loader(&format!("fx{k}"), &format!("x{k}"), words, t);
                text += &if runs { map::four_of_run(t) } else { String::new() };
            }
            if calls(format!("w{k}(")) {
                let t = site.dtype(k).unwrap_or(DType::F32);
                let word = array(site, format!("bx{k}"), site.bound(k), t, false).get("at");
                let _ = writeln!(text, "fn w{k}(at: u32) -> u32 {{ return bitcast<u32>({word}); }}");
            }
        }
    }
    let result = if site.fused.is_some() { finish(site)? } else { String::new() };
    text.push_str(&result);
    text.push_str(&placed(site, body));
    if free {
        for (j, t) in site.stored().into_iter().enumerate() {
            text.push_str(&emit(site, j, t));
            if calls(format!("emit_four{j}(")) {
                text.push_str(&emit_four(site, j, t));
            }
            if calls(format!("put_word{j}(")) {
                let store = out_array(site, j, true).set("at", &format!("bitcast<{}>(w)", types::cell(t)));
                let _ = writeln!(text, "fn put_word{j}(at: u32, w: u32) {{ {store} }}");
            }
        }
        for j in site.dropped() {
            let _ = writeln!(text, "fn emit{j}(at: u32, v: {}) {{}}", register(site.out_dtype(j)));
        }
    }
    text.push_str(&body.code);
    let mut names = Vec::new();
    for (k, e) in body.entries.iter().enumerate() {
        match e {
            Entry::Expression | Entry::Element(..) => {
                names.push(format!("main{k}"));
                let mapped = e.mapped().unwrap_or(0);
                text.push_str(&map::entry(site, body, (k, e), mapped, free)?);
            }
            Entry::Rows(_) => {
                names.push(rows::BLOCKS.name.to_owned());
                text.push_str(&storing(site, "side_element(at: u32)", &element_of(site, e)));
            }
            Entry::Threads(e) => names.push(e.name.to_owned()),
            Entry::Check(input) => {
                names.push(format!("check{input}"));
                text.push_str(&check_entry(site, *input));
            }
            Entry::Blocks(e) if e.cluster == 1 && !e.together => names.push(e.name.to_owned()),
            Entry::Blocks(e) => {
                return unsupported(format!("\"{}\": workgroups that know each other", e.name));
            }
        }
    }
    text.push_str(&declared_head(slots.len()));
    let head = format!("// kiln {} {}\n", slots.len(), names.join(" "));
    let halves = site.target.has(EXACT_HALVES).then(link::halves);
    let linked = link::needed_by(&text, &body.files, &names, halves)?;
    let used = |word: &&(&str, &str)| [&linked, &text].iter().any(|t| t.contains(word.0));
    let enables: String = ENABLED.iter().filter(used).map(|(_, e)| format!("enable {e};\n")).collect();
    Ok(head + &enables + &linked + &text)
}

/// The declaration of the uniform buffer of argument words, which is bound behind `bindings` storage buffers.
pub fn declared_head(bindings: usize) -> String {
    format!("@group(0) @binding({bindings}) var<uniform> head: array<vec4<u32>, {}>;\n", HEAD_BYTES / 16)
}

/// Extensions of the language by what texts contain that need them.
const ENABLED: [(&str, &str); 2] = [("<f16", "f16"), ("coop_mat", "wgpu_cooperative_matrix")];

/// The declaration of a binding with the functions that load from it. `free` says whether threads store where they like, and `combined`
/// whether they combine words of scratch memory. `quads` finds inputs that are bound as vectors of four f16.
fn binding(
    site: &Site<'_>,
    body: &Body,
    i: usize,
    slot: Slot,
    (free, quads, combined): (bool, &dyn Fn(usize) -> bool, bool),
) -> String {
    let var = |access: &str, name: &str, ty: &str| {
        format!("@group(0) @binding({i}) var<storage, {access}> {name}: array<{ty}>;\n")
    };
    let rw = "read_write";
    // Behind the last piece comes the function that loads an element.
    let tensor = |a: Array, p: usize, name: String, t: DType| {
        let loads = if p + 1 == a.pieces { types::loader(&name, &a, t) } else { String::new() };
        a.declare(i, p) + &loads
    };
    match slot {
        Slot::Args => var("read", "args", "u32"),
        Slot::Scratch => var(rw, "scratch", if combined { "atomic<u32>" } else { "u32" }),
        Slot::Sizes => var(rw, "sizes", "u32"),
        Slot::Faults => var(rw, "faults", "atomic<u32>"),
        Slot::Input(k, p) => {
            let t = site.dtype(k).unwrap_or(DType::F32);
            let from = array(site, format!("bx{k}"), site.bound(k), t, false);
            let from = if quads(k) { from.of_quads() } else { from };
            match body.view_words(site, k).filter(|_| p + 1 == from.pieces) {
                Some(before) => {
                    tensor(from, p, format!("lying{k}"), t) + &view(k, site.rank(k).unwrap_or(0), before, t)
                }
                None => tensor(from, p, format!("x{k}"), t),
            }
        }
        Slot::Extra(k, p) => {
            let v = site.extras.get(k).copied();
            let t = v.map_or(DType::F32, |v| site.graph.ty(v).dtype);
            let from = array(site, format!("be{k}"), v, t, false);
            let four = map::four_loader(&format!("fe{k}"), &format!("e{k}"), Some(&from), t);
            let last = p + 1 == from.pieces;
            tensor(from, p, format!("e{k}"), t) + if last { &four } else { "" }
        }
        Slot::Output(j, p) => {
            let t = site.stored().get(j).copied().unwrap_or(DType::F32);
            match site.insert.filter(|_| j == 0) {
                Some(_) => tensor(out_array(site, j, free), p, format!("part{j}"), t) + &read_placed(j, t),
                None => tensor(out_array(site, j, free), p, format!("ry{j}"), t),
            }
        }
    }
}

/// Functions that read an input of this rank through moves: `lying<k>` reads the value that they begin with. The words of the
/// view lie so many words in front of those of the expression.
fn view(k: usize, rank: usize, before: u32, t: DType) -> String {
    format!(
        "fn x{k}(at: u32) -> {} {{\n    let own = fused_words() - {}u;\n    let rank = word(own);\n    return lying{k}(word(own + 1u) + \
         strided(List(own + 2u, rank), List(own + {}u, rank), at));\n}}\n",
        register(t),
        before + HEADER_WORDS as u32,
        2 + rank
    )
}

/// `fn finish(at: u32, a0: value) -> value`, or without `a0` if there is no anchor. The words from `fused_words()` on are
/// the rank of the output, its dimensions, strides of every extra, and offsets of slices; rank 0 says that all are laid out like the output.
fn finish(site: &Site<'_>) -> Result<String, BackendError> {
    let Some(e) = &site.fused else { return Ok(String::new()) };
    let first = usize::from(site.anchor.is_some());
    let mut s = String::from("fn finish(at: u32");
    if first == 1 {
        let _ = write!(s, ", v: {}", register(site.out_dtype(0)));
    }
    let _ = writeln!(s, ") -> {} {{", register(e.result_type()));
    if !site.extras.is_empty() {
        s.push_str("    let base = fused_words();\n    let rank = arg(base);\n    var rest = at;\n");
        for k in 0..site.extras.len() {
            let _ = writeln!(s, "    var o{k} = {}select(0u, at, rank == 0u);", offset(site, k));
        }
        s.push_str("    for (var d = rank; d > 0u; d--) {\n        let n = arg(base + d);\n        let c = rest % n;\n");
        s.push_str("        rest = rest / n;\n");
        for k in 0..site.extras.len() {
            let _ = writeln!(s, "        o{k} += c * arg(base + rank * {}u + d);", k + 1);
        }
        s.push_str("    }\n");
    }
    let own = (first == 1).then(|| narrow(site.out_dtype(0), "v"));
    let given: Vec<String> =
        own.into_iter().chain((0..site.extras.len()).map(|k| format!("e{k}(o{k})"))).collect();
    let _ = writeln!(s, "    return fused({});\n}}", given.join(", "));
    let anchor = (first == 1).then(|| site.out_dtype(0));
    let types = anchor.into_iter().chain(site.extras.iter().map(|&v| site.graph.ty(v).dtype));
    let arguments: Vec<String> = types.enumerate().map(|(k, t)| format!("a{k}: {}", register(t))).collect();
    let _ = writeln!(s, "fn fused({}) -> {} {{", arguments.join(", "), register(e.result_type()));
    s.push_str(&scalar::print(e, &[], &scalar::Forms::NONE)?);
    let _ = writeln!(s, "    return r{};\n}}", e.result);
    if !site.extras.is_empty() {
        s.push_str(&map::spots(site));
    }
    Ok(s)
}

/// The place of the first element of an extra that is read through a slice, as a summand; nothing for others.
fn offset(site: &Site<'_>, k: usize) -> String {
    // Offsets of slices stand behind the strides of all extras.
    let sliced = |k: &usize| site.slices.get(*k).is_some_and(Option::is_some);
    let before = (0..k).filter(sliced).count();
    match sliced(&k) {
        true => format!("arg(base + rank * {}u + {}u) + ", site.extras.len() + 1, before + 1),
        false => String::new(),
    }
}

/// The expression of element `at` of what an entry point maps, or whose rows it computes.
fn element_of(site: &Site<'_>, entry: &Entry) -> String {
    match entry.element() {
        None => "finish(at)".to_owned(),
        Some(name) if site.fused.is_some() => format!("finish(at, {name}(at))"),
        Some(name) => format!("{name}(at)"),
    }
}

/// A function that stores an element of output 0 and returns it as it is stored.
fn storing(site: &Site<'_>, function: &str, value: &str) -> String {
    let t = site.stored().first().copied().unwrap_or(DType::F32);
    format!(
        "fn {function} -> {} {{\n    let wide = {value};\n    let stored = {};\n    put0({}, stored);\n    return stored;\n}}\n",
        register(t),
        narrow(t, "wide"),
        place(site, 0)
    )
}

/// `fn emit<j>(at: u32, v: value)`: finishes one element and stores it. `put<j>` only stores it.
fn emit(site: &Site<'_>, j: usize, t: DType) -> String {
    let store = storer(&format!("put{j}"), &out_array(site, j, true), t);
    if site.anchor.is_none() && j == 0 {
        return store;
    }
    let value = if site.fused.is_some() && j == 0 { "finish(at, v)" } else { "v" };
    let (place, of) = (place(site, j), register(site.out_dtype(j)));
    let mut text = store + &format!("fn emit{j}(at: u32, v: {of}) {{ put{j}({place}, {value}); }}\n");
    if site.side.is_some() && j == 0 {
        text += &storing(site, &format!("emitted0(at: u32, v: {of})"), value);
    }
    text
}

/// `fn emit_four<j>(at: u32, v: vec4<value>)`: finishes and stores four neighbours. Where they fill words, these are stored whole.
fn emit_four(site: &Site<'_>, j: usize, t: DType) -> String {
    let fused = site.fused.is_some() && j == 0;
    let (n, bits) = (types::lanes(t), t.bits());
    let each: String = (0..4).map(|c| format!("    emit{j}(at + {c}u, v[{c}]);\n")).collect();
    let head = format!("fn emit_four{j}(at: u32, v: vec4<{}>) {{\n", register(site.out_dtype(j)));
    if n > 4 {
        return format!("{head}{each}}}\n");
    }
    let (to, in_run) = match site.insert.is_some() && j == 0 {
        true => ("placed(at)", " && placed(at + 3u) == to + 3u"),
        false => ("at", ""),
    };
    // All is loaded before anything is stored.
    let stores = |value: &dyn Fn(u32) -> String| {
        let mut s: String = (0..4).map(|c| format!("        let r{c} = {};\n", value(c))).collect();
        for word in 0..4 / n {
            let lane = |k: u32| format!("({} << {}u)", encode(t, &format!("r{}", word * n + k)), k * bits);
            let cell = match n {
                1 => format!("r{word}"),
                _ => (0..n).map(lane).collect::<Vec<_>>().join(" | "),
            };
            let _ = writeln!(
                s,
                "        {}",
                out_array(site, j, true).set(&format!("to / {n}u + {word}u"), &cell)
            );
        }
        s + "        return;\n"
    };
    let mut s = format!("{head}    let to = {to};\n");
    let whole = format!("to % {n}u == 0u{in_run}");
    if fused && !site.extras.is_empty() {
        let loads = |k: usize| format!("        let e{k} = fe{k}(lie.o{k}, lie.s{k});\n");
        let loads: String = (0..site.extras.len()).map(loads).collect();
        let others = |c: u32| (0..site.extras.len()).map(|k| format!(", e{k}[{c}]")).collect::<String>();
        let value = |c: u32| format!("fused({}{})", narrow(site.out_dtype(0), &format!("v[{c}]")), others(c));
        let _ = write!(
            s,
            "    let lie = spots(at);\n    if ({whole} && lie.left >= 4u) {{\n{loads}{}    }}\n",
            stores(&value)
        );
    }
    let value = |c: u32| match fused {
        true => format!("finish(at + {c}u, v[{c}])"),
        false => format!("v[{c}]"),
    };
    let _ = write!(s, "    if ({whole}) {{\n{}    }}\n", stores(&value));
    s + &each + "}\n"
}
/// The place of element `at` of a stored output.
fn place(site: &Site<'_>, output: usize) -> &'static str {
    if site.insert.is_some() && output == 0 { "placed(at)" } else { "at" }
}

/// The function `placed(at)`, by which a result is stored as a part of another tensor. Its words lie in front of those of views.
fn placed(site: &Site<'_>, body: &Body) -> String {
    let Some(before) = body.place_words(site) else { return String::new() };
    format!(
        "fn placed(at: u32) -> u32 {{\n    let own = fused_words() - {}u;\n    let run = word(own);\n    \
         return at / run * word(own + 1u) + at % run + word(own + 2u);\n}}\n",
        before + HEADER_WORDS as u32
    )
}

/// The function that reads an element of a result which is a part.
fn read_placed(j: usize, t: DType) -> String {
    format!("fn ry{j}(at: u32) -> {} {{\n    return part{j}(placed(at));\n}}\n", register(t))
}

/// Words before those of a kernel: the size of the grid, where the words of the fused expression start, the span of this
/// launch, the number of the step.
pub const HEADER_WORDS: usize = 5;

/// Bytes of argument words that kernels read as a uniform buffer.
pub const HEAD_BYTES: u64 = 1024;

/// Threads of a map's workgroup.
pub const MAP_THREADS: u64 = 64;

/// Builtins of every entry point, and the number of this workgroup in a folded dispatch.
const ENTRY_ARGS: &str = "@builtin(workgroup_id) w: vec3<u32>, @builtin(num_workgroups) g: vec3<u32>, \
                              @builtin(local_invocation_index) l: u32";

/// One thread passes an element of an index input to `check_index`, as two halves.
fn check_entry(site: &Site<'_>, input: usize) -> String {
    let high = match site.dtype(input) {
        Some(DType::I64) => "u32(i32(v >> 32u))",
        _ => "select(0u, 4294967295u, v < 0)",
    };
    format!(
        "@compute @workgroup_size({MAP_THREADS})\nfn check{input}({ENTRY_ARGS}) {{\n    let t = (w.y * g.x + w.x) * 64u + l;\n    \
         if (t >= grid()) {{ return; }}\n    let v = x{input}(t);\n    check_index({input}u, t, u32(i32(v)), {high});\n}}\n"
    )
}
