//! Writing a kernel's source: its parameter, loads and stores of every tensor, the fused expression, entry points.
//!
//! A unit is one structure `K`, passed to every entry point by value: the words of its parameters, then the addresses of all
//! bindings. What is generated are its members; kernel files are templates over it.

mod cells;
mod exact;
mod files;
mod near;
mod reach;
mod run;

pub use self::cells::cells;
use self::cells::{Field, looked_up, plain};
pub use self::reach::strided;
use crate::dialect::CUDA;
use crate::parameter::{MAP_THREADS, WORDS, may_be_cell};
use kiln_backend::BackendError;
use kiln_codegen::expression::{Slot, slots};
use kiln_codegen::rounding::stored_wide;
use kiln_codegen::scalar::{self, register};
use kiln_codegen::site::{Site, unsupported};
use kiln_codegen::slice::insert::keeps_eights;
use kiln_codegen::{Blocks, Body, Entry, Threads, rows};
use kiln_ir::DType;
use kiln_ir::expr::Expr;
use std::fmt::Write;

const PRELUDE: [&str; 5] = [
    include_str!("../../../kernels/prelude/types.cuh"),
    include_str!("../../../kernels/prelude/launch.cuh"),
    include_str!("../../../kernels/prelude/storage.cuh"),
    include_str!("../../../kernels/prelude/math.cuh"),
    include_str!("../../../kernels/prelude/integer.cuh"),
];

const FORMS: scalar::Forms = scalar::Forms { near: near::value, exact: exact::value };

/// A source with what the host has to know about it.
pub struct Source {
    pub text: String,
    /// Names of entry points with the threads of their blocks.
    pub entries: Vec<(String, u32)>,
    /// The bindings in order.
    pub slots: Vec<Slot>,
}

/// Elements of one thread where nothing but an expression is computed.
const PACK: u32 = 8;

/// Number of elements that one thread of a map makes: those that share a byte; several where there is no
/// anchor.
pub fn lanes(t: DType, anchored: bool) -> u32 {
    match t.bits() {
        bits @ 1..8 => 8 / bits,
        _ if anchored => 1,
        _ => PACK,
    }
}

/// The type of an element in memory.
pub fn cell(t: DType) -> &'static str {
    match t {
        DType::F32 => "f32",
        DType::I32 => "i32",
        DType::I64 => "i64",
        DType::F16 | DType::BF16 => "u16",
        DType::I8 => "i8",
        _ => "u8",
    }
}

pub fn load(t: DType, buffer: &str, at: &str) -> String {
    let cell = format!("{buffer}[{at}]");
    match t {
        DType::F16 => format!("f16_to_f32({cell})"),
        DType::BF16 => format!("bf16_to_f32({cell})"),
        DType::F8E4M3 => format!("f8e4m3_to_f32({cell})"),
        DType::Bool => format!("({cell} != 0)"),
        DType::I4 => format!("i4_at({buffer}, {at})"),
        DType::I8 | DType::U8 => format!("i32({cell})"),
        _ => cell,
    }
}

/// An alias of the type of elements in memory, and a function that returns the value of one.
pub fn element(alias: &str, function: &str, t: DType) -> String {
    let value = load(t, "(&cell)", "0");
    (CUDA.alias)(alias, cell(t)) + &(CUDA.function)(function, &[("cell", alias)], register(t), &value)
}

fn store(t: DType, buffer: &str, at: &str, v: &str) -> String {
    match t {
        DType::F16 => format!("{buffer}[{at}] = f32_to_f16({v});"),
        DType::BF16 => format!("{buffer}[{at}] = f32_to_bf16({v});"),
        DType::F8E4M3 => format!("{buffer}[{at}] = f32_to_f8e4m3({v});"),
        DType::Bool => format!("{buffer}[{at}] = u8({v});"),
        DType::I4 => format!("put_i4({buffer}, {at}, {v});"),
        DType::I8 => format!("{buffer}[{at}] = i8({v});"),
        DType::U8 => format!("{buffer}[{at}] = u8({v});"),
        _ => format!("{buffer}[{at}] = {v};"),
    }
}

/// Definitions that the entry point of a plug-in's kernel needs, and the members of every kernel's parameter.
pub fn launch_prelude() -> (String, String) {
    let text = [PRELUDE[0], PRELUDE[1]].concat();
    let lines = text.lines().filter(|l| !l.starts_with("#include ") && !l.starts_with("#pragma once"));
    (lines.flat_map(|l| [l, "\n"]).collect(), plain(&head()))
}

/// The members of every kernel's parameter.
fn head() -> Vec<Field> {
    let mut fields: Vec<Field> =
        ["grid_n", "extras_at", "extent", "marks"].map(|name| Field::new("u32", name)).into();
    fields.push(Field::new("const u32*", "more_words"));
    fields.push(Field::new("u64", "alive"));
    fields.push(Field::array("u32", "words", WORDS));
    fields
}

/// The whole source; bindings of these bits may be cells.
pub fn source(site: &Site<'_>, body: &Body, cells: u32) -> Result<Source, BackendError> {
    let slots = slots(site, body);
    let files = files::text(&body.files)?;
    let calls = |name: String| body.code.contains(&name) || files.contains(&name);
    let mut fields = head();
    let mut code = format!(
        "DEV u32 word(u32 k) const {{ return k < {WORDS}u ? words[k] : more_words[k - {WORDS}u]; }}\n"
    );
    for (s, slot) in slots.iter().enumerate() {
        let cell = Some(s).filter(|&s| may_be_cell(cells, s));
        fields.push(Field { cell, ..binding(site, body, *slot, &mut code) });
        if let Slot::Input(k) = *slot
            && calls(format!("near{k}("))
        {
            let value = scalar::near(&format!("x{k}"), site.dtype(k));
            code += &site.function(&format!("near{k}"), &[("at", "u32")], "i32", &value);
        }
    }
    if body.maps > 0 {
        fields.push(Field::array("TensorMap", "maps", body.maps as usize));
    }
    code += &finish(site)?;
    code += &placed(site, body);
    for (j, t) in site.stored().into_iter().enumerate().filter(|(j, _)| site.anchor.is_some() || *j > 0) {
        let value = if site.fused.is_some() && j == 0 { "finish(at, v)" } else { "v" };
        let r = register(site.out_dtype(j));
        let put = store(t, &format!("by{j}"), place(site, j), value);
        let _ = writeln!(code, "DEV void emit{j}(u32 at, {r} v) const {{ {put} }}");
        if site.side.is_some() && j == 0 {
            code += &storing(site, &format!("emitted0(u32 at, {r} v)"), value);
        }
        let any = calls(format!("emit{j}_any("));
        if any || calls(format!("emit{j}_run(")) {
            code += &run::emit(site, j, t);
        }
        if any {
            code += &run::emit_any(site, j);
        }
    }
    for j in site.dropped() {
        let _ = writeln!(code, "DEV void emit{j}(u32, {}) const {{}}", register(site.out_dtype(j)));
    }
    code += &body.code;
    let mut found = Vec::new();
    for (k, e) in body.entries.iter().enumerate() {
        found.push(match e {
            Entry::Expression | Entry::Element(..) => {
                code += &map_entry(site, k, e.mapped().unwrap_or(0), &element_of(site, e))?;
                Heading::of_map(k)
            }
            Entry::Rows(_) => {
                code += &storing(site, "side_element(u32 at)", &element_of(site, e));
                Heading::of_blocks(&rows::BLOCKS)
            }
            Entry::Threads(e) => Heading::of_threads(e),
            Entry::Blocks(e) => Heading::of_blocks(e),
            Entry::Check(input) => Heading::of_check(*input),
        });
    }
    let mut text: String = PRELUDE.concat().replace("#pragma once\n", "");
    text = text.lines().filter(|l| !l.starts_with("#include ")).flat_map(|l| [l, "\n"]).collect();
    let _ = writeln!(text, "namespace kernels {{\n{files}}}");
    let lanes = found.iter().find(|h| h.group).map_or(MAP_THREADS, |h| h.threads);
    let (parameter, fields) = match cells {
        0 => (String::new(), plain(&fields)),
        _ => looked_up(&fields),
    };
    text += &parameter;
    let _ = writeln!(text, "struct K {{\n{fields}    static constexpr u32 LANES = {lanes}u;");
    text += &code;
    text += "};\n";
    text.extend(found.iter().map(|h| h.kernel(cells != 0)));
    let entries = found.into_iter().map(|h| (h.name, h.threads)).collect();
    Ok(Source { text, entries, slots })
}

/// The heading of an entry point.
struct Heading {
    name: String,
    /// Whether its threads are those of a group.
    group: bool,
    threads: u32,
    /// Blocks that registers of a multiprocessor are to suffice for, if it matters.
    beside: Option<u32>,
    /// Whether it calls `depend` itself.
    early: bool,
    /// Blocks of a cluster.
    cluster: u32,
    /// Function that it calls: a member of `K`, or a template over it.
    call: String,
}

impl Heading {
    /// Threads `t` that run a statement.
    fn of_each(name: String, statement: &str) -> Heading {
        let call = format!(
            "const u32 t = blockIdx.x * {MAP_THREADS}u + threadIdx.x; if (t < k.grid_n) {{ {statement} }}"
        );
        Heading { name, group: false, threads: MAP_THREADS, beside: None, early: false, cluster: 1, call }
    }

    /// Threads that run the member `main<k>`.
    fn of_map(k: usize) -> Heading {
        Heading::of_each(format!("main{k}"), &format!("k.main{k}(t);"))
    }

    /// Threads that run a template.
    fn of_threads(e: &Threads) -> Heading {
        Heading::of_each(e.name.to_owned(), &format!("kernels::{}(k, t);", e.name))
    }

    /// Threads that check the elements of an index input.
    fn of_check(input: usize) -> Heading {
        let check = format!(
            "const i64 v = k.x{input}(t); kernels::check_index(k, {input}u, t, u32(v), u32(v >> 32));"
        );
        Heading::of_each(format!("check{input}"), &check)
    }

    /// Blocks that run a template.
    fn of_blocks(e: &Blocks) -> Heading {
        let Blocks { name, threads, beside, early, cluster, .. } = *e;
        Heading {
            name: name.to_owned(),
            group: true,
            threads,
            beside,
            early,
            cluster,
            call: format!("kernels::{name}(k);"),
        }
    }

    /// The text of the entry point. Cells are written by the kernel in front.
    fn kernel(&self, cells: bool) -> String {
        let Heading { name, threads, cluster, .. } = self;
        let beside = self.beside.map_or(String::new(), |n| format!(", {n}"));
        let cluster =
            if *cluster > 1 { format!(" __cluster_dims__({cluster}, 1, 1)") } else { String::new() };
        let (of, p, made) = if cells { ("Parameter", "p", "const K k(p); ") } else { ("K", "k", "") };
        let depend = match (self.early, cells) {
            (false, _) => format!("depend(); if (yields({p})) {{ release(); }} "),
            (true, false) => "if (k.alive != 0) { depend(); } ".to_owned(),
            (true, true) => "if (p.alive != 0 || p.marks != 0u) { depend(); } ".to_owned(),
        };
        format!(
            "extern \"C\" __global__ void __launch_bounds__({threads}{beside}){cluster} {name}(\
             const __grid_constant__ {of} {p}) {{ \
             if (off({p}, 1u)) {{ return; }} {depend}if (off({p}, 0u)) {{ return; }} {made}{} }}\n",
            self.call
        )
    }
}

/// A binding's member, and the function that loads its elements.
fn binding(site: &Site<'_>, body: &Body, slot: Slot, code: &mut String) -> Field {
    let (name, loader, t, constant) = match slot {
        Slot::Input(k) => (format!("bx{k}"), format!("x{k}"), site.dtype(k), "const "),
        Slot::Extra(k) => {
            let t = site.extras.get(k).map(|&v| site.graph.ty(v).dtype);
            (format!("be{k}"), format!("e{k}"), t, "const ")
        }
        Slot::Output(j) => (format!("by{j}"), format!("ry{j}"), site.stored().get(j).copied(), ""),
        Slot::Scratch => return Field::new("u32*", "scratch"),
        Slot::Sizes => return Field::new("u32*", "sizes"),
        Slot::Faults => return Field::new("u32*", "faults"),
    };
    let t = t.unwrap_or(DType::F32);
    let far = matches!(slot, Slot::Input(k) if body.far.contains(&k));
    let at = if far { "u64" } else { "u32" };
    let at_place = match slot {
        Slot::Input(k) => view(site, body, k, code),
        Slot::Output(j) => Some(place(site, j).to_owned()),
        _ => None,
    };
    let at_place = at_place.as_deref().unwrap_or("at");
    *code += &(CUDA.function)(&loader, &[("at", at)], register(t), &load(t, &name, at_place));
    Field::new(&format!("{constant}{}*", cell(t)), &name)
}

/// The place of element `at` of an input that is read through moves; none of others. Its words lie in front of those of the
/// expression.
fn view(site: &Site<'_>, body: &Body, input: usize, code: &mut String) -> Option<String> {
    let before = body.view_words(site, input)?;
    let rank = site.rank(input).unwrap_or(0);
    let _ = writeln!(
        code,
        "DEV u32 view{input}(u32 at) const {{\n    const u32 own = extras_at - {before}u;\n    const u32 rank = word(own);\n    \
         return word(own + 1u) + strided(*this, List{{own + 2u, rank}}, List{{own + {}u, rank}}, at);\n}}",
        2 + rank
    );
    Some(format!("view{input}(at)"))
}

/// The place of element `at` of a stored output.
fn place(site: &Site<'_>, output: usize) -> &'static str {
    if site.insert.is_some() && output == 0 { "placed(at)" } else { "at" }
}

/// The function `placed(at)`, by which a result is stored as a part of another tensor. Its words lie in front of those of views.
fn placed(site: &Site<'_>, body: &Body) -> String {
    let Some(before) = body.place_words(site) else { return String::new() };
    format!(
        "DEV u32 placed(u32 at) const {{\n    const u32 own = extras_at - {before}u;\n    const u32 run = word(own);\n    \
         return at / run * word(own + 1u) + at % run + word(own + 2u);\n}}\n"
    )
}

/// The anchor's result as the fused expression takes it: rounded to its type where it matters.
fn anchored(site: &Site<'_>, j: usize, v: &str) -> String {
    let wide = site.fused.as_ref().is_some_and(scalar::takes_wide);
    if wide { v.to_owned() } else { scalar::narrow(site.out_dtype(j), v) }
}

/// `finish(at, v)`, or without `v` if there is no anchor: the fused expression at one element.
fn finish(site: &Site<'_>) -> Result<String, BackendError> {
    let Some(e) = &site.fused else { return Ok(String::new()) };
    let first = usize::from(site.anchor.is_some());
    let mut s = applied(e)?;
    let _ = write!(s, "DEV {} finish(u32 at", register(e.result_type()));
    if first == 1 {
        let _ = write!(s, ", {} v", register(site.out_dtype(0)));
    }
    s.push_str(") const {\n");
    let reaches: Vec<_> = reach::reaches(site).into_iter().enumerate().collect();
    s += &reach::offsets(site, &reaches, false);
    let mut given: Vec<String> = Vec::new();
    if first == 1 {
        given.push(anchored(site, 0, "v"));
    }
    given.extend((0..site.extras.len()).map(|k| format!("e{k}(o{k})")));
    let _ = writeln!(s, "    return apply({});\n}}", given.join(", "));
    Ok(s)
}

/// `apply(a0, …)`, an expression of its inputs: steps and codes may be values, or structures with what was found of them before.
fn applied(e: &Expr) -> Result<String, BackendError> {
    let special = [exact::steps(e), exact::codes(e)].concat();
    let (mut kinds, mut given) = (Vec::new(), Vec::new());
    for (i, &t) in e.inputs.iter().enumerate() {
        if special.contains(&i) {
            kinds.push(format!("class A{i}"));
            given.push(format!("const A{i}& a{i}"));
        } else {
            given.push(format!("{} a{i}", register(t)));
        }
    }
    let (template, result) = match kinds.is_empty() {
        true => (String::new(), register(e.result_type())),
        false => (format!("template <{}> ", kinds.join(", ")), "auto"),
    };
    let mut s = format!("{template}DEV {result} apply({}) const {{\n", given.join(", "));
    s += &scalar::print(e, &stored_wide(e), &FORMS)?;
    let _ = writeln!(s, "    return r{};\n}}", e.result);
    Ok(s)
}

/// The expression of element `at` of what an entry point maps, or whose rows it computes.
fn element_of(site: &Site<'_>, entry: &Entry) -> String {
    match entry.element().map(|name| format!("kernels::{name}(*this, at)")) {
        None => "finish(at)".to_owned(),
        Some(value) if site.fused.is_some() => format!("finish(at, {value})"),
        Some(value) => value,
    }
}

/// A function that stores an element of output 0 and returns it as it is stored.
fn storing(site: &Site<'_>, function: &str, value: &str) -> String {
    let t = site.stored().first().copied().unwrap_or(DType::F32);
    format!(
        "DEV {0} {function} const {{\n    const {0} wide = {value};\n    const {0} stored = {1};\n    {2}\n    \
         return stored;\n}}\n",
        register(t),
        scalar::narrow(t, "wide"),
        store(t, "by0", place(site, 0), "stored")
    )
}

/// A map of an expression alone: eight elements at once where they lie in one row of the last dimension, else one at a time.
fn pack_entry(site: &Site<'_>, k: usize, t: DType) -> String {
    let whole = match strided(site) {
        _ if !keeps_eights(site) => "false",
        false => "true",
        true => reach::IN_ONE_ROW,
    };
    format!(
        "{}DEV void main{k}(u32 t) const {{\n    const u32 at = t * {PACK}u;\n    if (({whole}) && at + {PACK}u <= extent) {{\n        const auto \
         f = even0() ? fetch0_run<true>(at) : fetch0_run<false>(at);\n{}{}        all.put(by0 + {});\n        return;\n    }}\n    for (u32 i = \
         at; i < at + {PACK}u && i < extent; i++) {{\n        {}\n    }}\n}}\n",
        run::fetch(site, 0),
        run::prepared(site),
        run::eight(t, &run::value(site, "")),
        place(site, 0),
        store(t, "by0", &place(site, 0).replace("at", "i"), "finish(i)"),
    )
}

/// One thread makes the elements that share a byte, each by the expression `value` of `at`.
fn map_entry(site: &Site<'_>, k: usize, j: usize, value: &str) -> Result<String, BackendError> {
    let Some(&t) = site.stored().get(j) else { return unsupported("an output that is not stored") };
    let n = lanes(t, site.anchor.is_some());
    if t.bits() >= 8 && site.anchor.is_none() {
        return Ok(pack_entry(site, k, t));
    }
    if n == 1 {
        return Ok(format!(
            "DEV void main{k}(u32 t) const {{\n    const u32 at = t;\n    {}\n}}\n",
            store(t, &format!("by{j}"), place(site, j), value)
        ));
    }
    let bits = t.bits();
    Ok(format!(
        "DEV void main{k}(u32 t) const {{\n    u32 all = 0u;\n    for (u32 k = 0u; k < {n}u; k++) {{\n        const u32 at = t * {n}u + \
         k;\n        if (at < extent) {{\n            all |= (u32({value}) & {}u) << (k * {bits}u);\n        }}\n    }}\n    \
         by{j}[t] = u8(all);\n}}\n",
        (1u32 << bits) - 1
    ))
}
