//! Writing a kernel's module: bindings, loads and stores of every tensor, the fused expression, entry points.

pub mod expr;
mod library;
pub mod types;

use crate::kernels::{Body, Entry};
use crate::site::{Site, unsupported};
use kiln_backend::BackendError;
use kiln_ir::DType;
use std::fmt::Write;
use types::{encode, lanes, loader, register, storer};

/// What one binding of a kernel holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// The argument words.
    Args,
    /// An input of the anchor, by position.
    Input(usize),
    /// A further input of the region, by position among the extras.
    Extra(usize),
    /// A stored output.
    Output(usize),
    /// Scratch memory.
    Scratch,
    /// Sizes for the host.
    Sizes,
}

/// What the first line of a module tells: how many bindings it has, and its entry points.
pub struct Head {
    pub bindings: u32,
    pub entries: Vec<String>,
}

impl Head {
    /// Reads the first line; `None` if the text is no module of this backend.
    pub fn parse(text: &str) -> Option<Head> {
        let mut words = text.lines().next()?.strip_prefix("// kiln ")?.split(' ');
        let bindings = words.next()?.parse().ok().filter(|n| *n <= 64)?;
        Some(Head { bindings, entries: words.map(str::to_owned).collect() })
    }
}

/// The bindings of a kernel in order.
pub fn slots(site: &Site<'_>, body: &Body) -> Vec<Slot> {
    let inputs = body.inputs.clone().unwrap_or_else(|| site.device_inputs());
    let mut out = vec![Slot::Args];
    if site.anchor.is_some() {
        out.extend(inputs.into_iter().map(Slot::Input));
    }
    out.extend((0..site.extras.len()).map(Slot::Extra));
    out.extend((0..site.stored().len()).map(Slot::Output));
    out.extend(body.scratch.then_some(Slot::Scratch));
    out.extend(body.sizes.then_some(Slot::Sizes));
    out
}

/// The whole text.
pub fn module(site: &Site<'_>, body: &Body) -> Result<String, BackendError> {
    let slots = slots(site, body);
    let limit = site.target.numbers.get("storage_buffers").copied().unwrap_or(8);
    if slots.len() as u64 > limit {
        return unsupported(format!("{} bindings of one kernel, the device has {limit}", slots.len()));
    }
    let free = body.entries.iter().any(|e| matches!(e, Entry::Free(_)));
    let mut text = String::new();
    for (i, slot) in slots.iter().enumerate() {
        text.push_str(&binding(site, i, *slot, free));
        if let Slot::Input(k) = *slot
            && body.code.contains(&format!("near{k}("))
        {
            text.push_str(&types::near(&format!("near{k}"), &format!("x{k}"), site.dtype(k)));
        }
    }
    text.push_str("fn m(k: u32) -> u32 { return args[k + 2u]; }\n");
    text.push_str("fn mi(k: u32) -> i32 { return bitcast<i32>(args[k + 2u]); }\n");
    text.push_str("fn mf(k: u32) -> f32 { return bitcast<f32>(args[k + 2u]); }\n");
    let result = if site.fused.is_some() { finish(site)? } else { String::new() };
    text.push_str(&result);
    if free {
        for (j, t) in site.stored().into_iter().enumerate() {
            text.push_str(&emit(site, j, t));
        }
    }
    text.push_str(&body.code);
    let mut names = Vec::new();
    for (k, e) in body.entries.iter().enumerate() {
        match e {
            Entry::Free(name) => names.push((*name).to_owned()),
            Entry::Map(j) => {
                names.push(format!("main{k}"));
                text.push_str(&map_entry(site, k, *j, free)?);
            }
        }
    }
    let head = format!("// kiln {} {}\n", slots.len(), names.join(" "));
    Ok(head + &library::needed_by(&text) + &text)
}

fn binding(site: &Site<'_>, i: usize, slot: Slot, free: bool) -> String {
    let var = |access: &str, name: &str, ty: &str| {
        format!("@group(0) @binding({i}) var<storage, {access}> {name}: array<{ty}>;\n")
    };
    let rw = "read_write";
    match slot {
        Slot::Args => var("read", "args", "u32"),
        Slot::Scratch => var(rw, "scratch", "u32"),
        Slot::Sizes => var(rw, "sizes", "u32"),
        Slot::Input(k) => {
            let t = site.dtype(k).unwrap_or(DType::F32);
            let b = format!("bx{k}");
            var(rw, &b, types::cell(t)) + &loader(&format!("x{k}"), &b, t, false)
        }
        Slot::Extra(k) => {
            let t = site.extras.get(k).map_or(DType::F32, |&v| site.graph.ty(v).dtype);
            let b = format!("be{k}");
            var(rw, &b, types::cell(t)) + &loader(&format!("e{k}"), &b, t, false)
        }
        Slot::Output(j) => {
            let t = site.stored().get(j).copied().unwrap_or(DType::F32);
            let b = format!("by{j}");
            let atomic = free && lanes(t) > 1;
            let cell = if atomic { "atomic<u32>" } else { types::cell(t) };
            var(rw, &b, cell) + &loader(&format!("ry{j}"), &b, t, atomic)
        }
    }
}

/// `fn finish(at: u32, a0: value) -> value`, or without `a0` if there is no anchor. The words from `args[1]` on are
/// the rank of the output, its dimensions, and strides of every extra; rank 0 says that all lie like the output.
fn finish(site: &Site<'_>) -> Result<String, BackendError> {
    let Some(e) = &site.fused else { return Ok(String::new()) };
    let first = usize::from(site.anchor.is_some());
    let mut s = String::from("fn finish(at: u32");
    if first == 1 {
        let _ = write!(s, ", v: {}", register(site.out_dtype(0)));
    }
    let _ = writeln!(s, ") -> {} {{", register(e.result_type()));
    if !site.extras.is_empty() {
        s.push_str("    let base = args[1];\n    let rank = args[base];\n    var rest = at;\n");
        for k in 0..site.extras.len() {
            let _ = writeln!(s, "    var o{k} = select(0u, at, rank == 0u);");
        }
        s.push_str("    for (var d = rank; d > 0u; d--) {\n        let n = args[base + d];\n        let c = rest % n;\n");
        s.push_str("        rest = rest / n;\n");
        for k in 0..site.extras.len() {
            let _ = writeln!(s, "        o{k} += c * args[base + rank * {}u + d];", k + 1);
        }
        s.push_str("    }\n");
    }
    if first == 1 {
        let _ = writeln!(s, "    let a0 = {};", types::narrow(site.out_dtype(0), "v"));
    }
    for k in 0..site.extras.len() {
        let _ = writeln!(s, "    let a{} = e{k}(o{k});", k + first);
    }
    s.push_str(&expr::print(e)?);
    let _ = writeln!(s, "    return r{};\n}}", e.result);
    Ok(s)
}

/// `fn emit<j>(at: u32, v: value)`: finishes one element and stores it.
fn emit(site: &Site<'_>, j: usize, t: DType) -> String {
    let store = storer(&format!("put{j}"), &format!("by{j}"), t);
    let value = if site.fused.is_some() { "finish(at, v)" } else { "v" };
    store + &format!("fn emit{j}(at: u32, v: {}) {{ put{j}(at, {value}); }}\n", register(site.out_dtype(j)))
}

/// Threads of a map's workgroup.
pub const MAP_THREADS: u64 = 64;

/// Builtins of every entry point, and the number of this workgroup in a folded dispatch.
pub const ENTRY_ARGS: &str = "@builtin(workgroup_id) w: vec3<u32>, @builtin(num_workgroups) g: vec3<u32>, \
                              @builtin(local_invocation_index) l: u32";

fn map_entry(site: &Site<'_>, k: usize, j: usize, free: bool) -> Result<String, BackendError> {
    let stored = site.stored();
    let Some(&t) = stored.get(j) else { return unsupported("an output that is not stored") };
    let value = match (&site.fused, site.anchor) {
        (Some(_), None) => "finish(at)".to_owned(),
        (Some(_), Some(_)) => format!("finish(at, compute{j}(at))"),
        _ => format!("compute{j}(at)"),
    };
    let mut s = format!("@compute @workgroup_size({MAP_THREADS})\nfn main{k}({ENTRY_ARGS}) {{\n");
    s.push_str("    let t = (w.y * g.x + w.x) * 64u + l;\n    let count = args[0];\n");
    let n = lanes(t);
    if n == 1 {
        let _ = writeln!(s, "    let at = t;\n    if (at < count) {{ by{j}[at] = {value}; }}\n}}");
        return Ok(s);
    }
    let store = if free { format!("atomicStore(&by{j}[t], word)") } else { format!("by{j}[t] = word") };
    let _ = writeln!(
        s,
        "    if (t * {n}u >= count) {{ return; }}\n    var word = 0u;\n    for (var k = 0u; k < {n}u; k++) {{\n        \
         let at = t * {n}u + k;\n        if (at < count) {{\n            let v = {value};\n            word |= {} << (k * {}u);\n        \
         }}\n    }}\n    {store};\n}}",
        encode(t, "v"),
        t.bits()
    );
    Ok(s)
}
