//! WGSL as a language for kernels.

use crate::kernels::{OWN, SHARED};
use crate::wgsl::types::decode;
use kiln_codegen::Dialect;
use kiln_codegen::scalar::register;
use kiln_ir::DType;

/// WGSL.
pub static WGSL: Dialect = Dialect {
    function,
    constant,
    alias,
    tail: "(fused_words() - 5u)",
    decode,
    own: OWN,
    generic: SHARED,
    launch_code: env!("KILN_LAUNCH_CODE"),
    spans: Some(state),
    reshapes: true,
    at_once: 1,
    far: false,
};

fn function(name: &str, arguments: &[(&str, &str)], result: &str, value: &str) -> String {
    let argument = |(n, t): &(&str, &str)| match t.strip_prefix('[').and_then(|t| t.split_once("; ")) {
        Some((element, count)) => {
            format!("{n}: array<{element}, {count}>", count = count.trim_end_matches(']'))
        }
        None => format!("{n}: {t}"),
    };
    let list: Vec<String> = arguments.iter().map(argument).collect();
    format!("fn {name}({}) -> {result} {{ return {value}; }}\n", list.join(", "))
}

fn constant(name: &str, of: &str, value: &str) -> String {
    format!("const {name}: {of} = {value};\n")
}

fn alias(name: &str, of: &str) -> String {
    format!("alias {name} = {of};\n")
}

/// `keep`, `kept` and `resume` for numbers of type `t`.
fn state(t: DType) -> String {
    let r = register(t);
    let (store, load) = match r {
        "f32" | "i32" => ("scratch[at] = bitcast<u32>(v);", format!("bitcast<{r}>(scratch[at])")),
        "i64" => (
            "scratch[at * 2u] = bitcast<u32>(i32(v)); scratch[at * 2u + 1u] = bitcast<u32>(i32(v >> 32u));",
            "ci64(scratch[at * 2u + 1u], scratch[at * 2u])".to_owned(),
        ),
        _ => ("scratch[at] = select(0u, 1u, v);", "(scratch[at] != 0u)".to_owned()),
    };
    format!(
        "fn keep(at: u32, v: {r}) {{ {store} }}\nfn kept(at: u32) -> {r} {{ return {load}; }}\nfn resume(at: u32, start: \
         {r}) -> {r} {{\n    if (lo() == 0u) {{ return start; }}\n    return kept(at);\n}}\n"
    )
}
