//! CUDA C++ as a language for kernels.

use kiln_codegen::{Dialect, FAMILIES};
use kiln_ir::DType;

/// CUDA C++.
pub static CUDA: Dialect = Dialect {
    launch_code: env!("KILN_LAUNCH_CODE"),
    function,
    constant,
    alias,
    tail: "extras_at",
    decode,
    own: crate::kernels::FAMILIES,
    generic: FAMILIES,
    spans: None,
    reshapes: false,
    at_once: 8,
    far: true,
};

fn function(name: &str, arguments: &[(&str, &str)], result: &str, value: &str) -> String {
    let argument = |(n, t): &(&str, &str)| match t.strip_prefix('[').and_then(|t| t.split_once(';')) {
        Some((element, _)) => format!("const {element}* {n}"),
        None => format!("{t} {n}"),
    };
    let list: Vec<String> = arguments.iter().map(argument).collect();
    format!("DEV {result} {name}({}) const {{ return {value}; }}\n", list.join(", "))
}

fn constant(name: &str, of: &str, value: &str) -> String {
    format!("static constexpr {of} {name} = {value};\n")
}

fn alias(name: &str, of: &str) -> String {
    format!("typedef {of} {name};\n")
}

fn decode(t: DType, word: &str, lane: &str) -> String {
    let bits = t.bits();
    let field = format!("({word} >> ({lane} * {bits}u))");
    match t {
        DType::F16 => format!("f16_to_f32(u16({field}))"),
        DType::BF16 => format!("bf16_to_f32(u16({field}))"),
        DType::F8E4M3 => format!("f8e4m3_to_f32(u8({field}))"),
        DType::I8 => format!("i32(i8({field}))"),
        DType::U8 => format!("i32(u8({field}))"),
        DType::I4 => format!("(i32({field} << 28u) >> 28)"),
        DType::Bool => format!("(u8({field}) != 0)"),
        _ => format!("i32({field})"),
    }
}
