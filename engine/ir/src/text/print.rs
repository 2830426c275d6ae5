//! Printing graphs.

use super::{INLINE_ELEMENTS, hash};
use crate::attr::Attr;
use crate::dim::text::quoted as name;
use crate::dim::{Dim, Origin, Symbol};
use crate::dtype::DType;
use crate::graph::{Graph, Meta, Node, ValueDef, ValueId, Weight};
use crate::infer::{Fact, Value};
use crate::op::Op;
use crate::tensor::{Elems, Tensor};
use crate::ty::dims_text;
use std::collections::HashSet;
use std::fmt::Write;

/// Writing to a string does not fail.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => { { let _ = write!($out, $($arg)*); } };
}

fn indent(depth: usize) -> String {
    "  ".repeat(depth)
}

pub(super) fn graph(out: &mut String, g: &Graph, depth: usize) {
    put!(out, "graph {:?} {}{{\n", g.name, if g.strong_types { "strong " } else { "" });
    let inner = indent(depth + 1);
    for (symbol, bound) in bounds(g) {
        put!(out, "{inner}device ?{} <= {bound}\n", name(&symbol.name));
    }
    for &v in &g.inputs {
        put!(out, "{inner}input {}\n", typed(g.value(v), "="));
    }
    for v in g.value_ids() {
        if let Some(w) = g.weight(v) {
            put!(out, "{inner}weight ");
            weight(out, g.value(v), w, depth + 1);
            out.push('\n');
        }
    }
    for u in &g.weight_uses {
        put!(out, "{inner}role {:?} {} {:?}\n", u.layer, u.role, u.weight);
    }
    for (name, [lo, hi]) in &g.ranges {
        put!(out, "{inner}range {name:?} [{lo:?}, {hi:?}]\n");
    }
    for name in &g.debug {
        put!(out, "{inner}debug {name:?}\n");
    }
    for (name, formats) in &g.allowed_formats {
        put!(out, "{inner}formats {name:?} [{formats}]\n");
    }
    for (name, packing) in &g.packings {
        put!(out, "{inner}packed {name:?} {} {}\n", packing.format, packing.channels().unwrap_or(0));
    }
    for (_, n) in g.nodes() {
        out.push_str(&inner);
        node(out, g, n, depth + 1);
        out.push('\n');
    }
    let outputs: Vec<String> = g.outputs.iter().map(|&v| value(g, v)).collect();
    if !outputs.is_empty() {
        put!(out, "{inner}output {}\n", outputs.join(", "));
    }
    put!(out, "{}}}", indent(depth));
}

/// Device symbols with their bounds, each after those that its bound names.
fn bounds(g: &Graph) -> Vec<(Symbol, Dim)> {
    let (mut seen, mut out) = (HashSet::new(), Vec::new());
    for v in g.numbering().map(|n| n.old).unwrap_or_default() {
        let fact = &g.value(v).fact;
        fact.ty.dims.iter().for_each(|d| bounds_in(d, &mut seen, &mut out));
        if let Some(Value::Dims(dims)) = &fact.value {
            dims.iter().for_each(|d| bounds_in(d, &mut seen, &mut out));
        }
    }
    out
}

fn bounds_in(d: &Dim, seen: &mut HashSet<std::sync::Arc<str>>, out: &mut Vec<(Symbol, Dim)>) {
    d.visit(&mut |s| {
        if let Origin::Device(Some(bound)) = &s.origin
            && seen.insert(s.name.clone())
        {
            bounds_in(bound, seen, out);
            out.push((s.clone(), (**bound).clone()));
        }
    });
}

fn value(g: &Graph, v: ValueId) -> String {
    format!("%{}", name(&g.value(v).name))
}

/// `%x: f32[2]`, with contents after `sign` if they are known.
fn typed(v: &ValueDef, sign: &str) -> String {
    let Fact { ty, value } = &v.fact;
    let contents = match value {
        None => String::new(),
        Some(Value::Const(t)) => format!(" {sign} {}", elements(t)),
        Some(Value::Dims(d)) => format!(" {sign} ({})", dims_text(d)),
    };
    format!("%{}: {ty}{contents}", name(&v.name))
}

/// The elements, or what stands for them.
fn elements(t: &Tensor) -> String {
    if t.len() > INLINE_ELEMENTS {
        return format!("ref 0x{:016x}", hash(t));
    }
    let elems = match t.elems() {
        Elems::F(v) => Elems::F(v.into_iter().map(|x| if x.is_nan() { f64::NAN } else { x }).collect()),
        ints => ints,
    };
    // Bytes that no text stands for (other NaNs than the usual one) are printed as they are.
    if Tensor::from_elems(t.dtype(), t.shape(), &elems).as_ref() != Some(t) {
        return Attr::Bytes(t.bytes().to_vec()).to_string();
    }
    let texts: Vec<String> = match elems {
        Elems::I(v) => v.iter().map(i64::to_string).collect(),
        Elems::F(v) => v.into_iter().map(|x| float(x, t.dtype())).collect(),
    };
    format!("[{}]", texts.join(", "))
}

/// The shortest text that parses to the number.
fn float(x: f64, dtype: DType) -> String {
    let short = format!("{:?}", x as f32);
    let exact = short.parse::<f64>().is_ok_and(|y| f64::from(y as f32) == x || x.is_nan());
    if dtype.is_float() && exact { short } else { format!("{x:?}") }
}

fn weight(out: &mut String, v: &ValueDef, w: &Weight, depth: usize) {
    put!(out, "%{}: {} = {}", name(&v.name), w.tensor.ty(), elements(&w.tensor));
    if let Some(n) = &w.name {
        put!(out, " name {n:?}");
    }
    if let Some(r) = &w.recipe {
        put!(out, " recipe {:?} ", r.sources);
        graph(out, &r.graph, depth);
    }
}

fn node(out: &mut String, g: &Graph, n: &Node, depth: usize) {
    let outputs: Vec<String> = n.outputs.iter().map(|&v| typed(g.value(v), "is")).collect();
    let inputs: Vec<String> = n.inputs.iter().map(|v| v.map_or("_".into(), |v| value(g, v))).collect();
    match outputs.as_slice() {
        [] => out.push_str("do "),
        _ => put!(out, "{} = ", outputs.join(", ")),
    }
    put!(out, "{}({})", n.op.name(), inputs.join(", "));
    let attrs = attributes(&n.op);
    if !attrs.is_empty() {
        put!(out, " {{{}}}", attrs.join(", "));
    }
    if n.outputs.first().is_none_or(|&v| g.value(v).name != n.name) {
        put!(out, " @{}", name(&n.name));
    }
    if n.meta != Meta::default() {
        put!(out, " meta {{{}}}", meta(&n.meta).join(", "));
    }
    for r in &n.regions {
        out.push(' ');
        graph(out, r, depth);
    }
}

/// `name=value` for all that are not defaults.
fn attributes(op: &Op) -> Vec<String> {
    let is_default =
        |k: &str, a: &Attr| op.def().attrs.iter().any(|d| d.name == k && !d.required && (d.default)() == *a);
    op.attrs().iter().filter(|(k, a)| !is_default(k, a)).map(|(k, a)| format!("{k}={a}")).collect()
}

fn meta(m: &Meta) -> Vec<String> {
    let mut out = Vec::new();
    if let Some(t) = m.precision {
        out.push(format!("precision={t}"));
    }
    if !m.output_types.is_empty() {
        let types: Vec<String> =
            m.output_types.iter().map(|t| t.map_or("_".into(), |t| t.to_string())).collect();
        out.push(format!("outputs=[{}]", types.join(", ")));
    }
    if !m.metadata.is_empty() {
        out.push(format!("text={:?}", m.metadata));
    }
    out
}
