//! Names of element types in options.

use kiln::DType;

/// An element type by Kiln's name, or by that of TensorRT's tools.
pub fn element_type(text: &str) -> Result<DType, String> {
    let name = match text {
        "fp32" => "f32",
        "fp16" => "f16",
        "fp8" => "f8e4m3",
        "int4" => "i4",
        "int8" => "i8",
        "uint8" => "u8",
        "int32" => "i32",
        "int64" => "i64",
        own => own,
    };
    let all = || DType::ALL.map(DType::name).join(", ");
    name.parse().map_err(|_| format!("\"{text}\" is no element type; wants one of {}", all()))
}
