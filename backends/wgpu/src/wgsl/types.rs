//! Storage of element types in WGSL buffers, and their types in registers.

use super::array::{Array, QUAD};
use kiln_codegen::scalar::register;
use kiln_ir::DType;

/// Number of elements that share a stored word; 1 for types with array elements of their own.
pub fn lanes(t: DType) -> u32 {
    if t.bits() < 32 { 32 / t.bits() } else { 1 }
}

/// The element type of the buffer.
pub fn cell(t: DType) -> &'static str {
    match t {
        DType::F32 => "f32",
        DType::I32 => "i32",
        DType::I64 => "i64",
        _ => "u32",
    }
}

/// A word's lane as a register value; `w` is the word, `lane` the lane's number.
pub fn decode(t: DType, w: &str, lane: &str) -> String {
    let bits = t.bits();
    let field = format!("extractBits({w}, {lane} * {bits}u, {bits}u)");
    match t {
        DType::F16 => format!("f16_to_f32({field})"),
        DType::BF16 => format!("bf16_to_f32({field})"),
        DType::F8E4M3 => format!("f8e4m3_to_f32({field})"),
        DType::I8 | DType::I4 => format!("extractBits(bitcast<i32>({w}), {lane} * {bits}u, {bits}u)"),
        DType::Bool => format!("({field} != 0u)"),
        _ => format!("i32({field})"),
    }
}

/// A register value as the bits of a lane.
pub fn encode(t: DType, v: &str) -> String {
    match t {
        DType::F16 => format!("f32_to_f16({v})"),
        DType::BF16 => format!("f32_to_bf16({v})"),
        DType::F8E4M3 => format!("f32_to_f8e4m3({v})"),
        DType::Bool => format!("select(0u, 1u, {v})"),
        _ => format!("(bitcast<u32>({v}) & {}u)", (1u64 << t.bits()) - 1),
    }
}

/// `fn <name>(at: u32) -> value`, which loads from an array.
pub fn loader(name: &str, from: &Array, t: DType) -> String {
    let r = register(t);
    let n = lanes(t);
    if n == 1 {
        return format!("fn {name}(at: u32) -> {r} {{ return {}; }}\n", from.get("at"));
    }
    if from.cell == QUAD {
        return format!("fn {name}(at: u32) -> {r} {{ return f32({}[at % 4u]); }}\n", from.get("at / 4u"));
    }
    let word = from.get(&format!("at / {n}u"));
    let value = decode(t, "w", &format!("(at % {n}u)"));
    format!("fn {name}(at: u32) -> {r} {{ let w = {word}; return {value}; }}\n")
}

/// `fn <name>(at: u32, v: value)`, which stores one element; packed lanes by atomics, so that threads may share
/// words.
pub fn storer(name: &str, to: &Array, t: DType) -> String {
    let r = register(t);
    let n = lanes(t);
    if n == 1 {
        return format!("fn {name}(at: u32, v: {r}) {{ {} }}\n", to.set("at", "v"));
    }
    let bits = encode(t, "v");
    let mask = (1u64 << t.bits()) - 1;
    let word = format!("at / {n}u");
    format!(
        "fn {name}(at: u32, v: {r}) {{\n    let s = (at % {n}u) * {}u;\n    let bits = {bits} << s;\n    {}\n    {}\n}}\n",
        t.bits(),
        to.combine("and", &word, &format!("~({mask}u << s)")),
        to.combine("or", &word, "bits")
    )
}
