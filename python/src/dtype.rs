//! Names of element types in Kiln, NumPy, PyTorch, DLPack and the buffer protocol.

use crate::errors::argument;
use kiln::DType;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::ffi::CStr;

/// Kinds of numbers in DLPack.
pub mod code {
    /// Signed integers.
    pub const INT: u8 = 0;
    /// Unsigned integers.
    pub const UINT: u8 = 1;
    /// IEEE floats.
    pub const FLOAT: u8 = 2;
    /// bfloat16.
    pub const BFLOAT: u8 = 4;
    /// Truth values.
    pub const BOOL: u8 = 6;
    /// FP8 E4M3 with NaN and without infinities.
    pub const F8E4M3FN: u8 = 10;
}

/// One element type by all its names.
struct Names {
    dtype: DType,
    /// Names in NumPy, PyTorch and ml_dtypes.
    names: &'static [&'static str],
    /// Code and bits in DLPack.
    dlpack: (u8, u8),
    /// Format of the buffer protocol, where it has one.
    format: Option<&'static CStr>,
    /// Type of `__array_interface__`, where it has one.
    typestr: Option<&'static str>,
}

const NAMES: &[Names] = &[
    Names {
        dtype: DType::F32,
        names: &["float32", "float"],
        dlpack: (code::FLOAT, 32),
        format: Some(c"f"),
        typestr: Some("<f4"),
    },
    Names {
        dtype: DType::F16,
        names: &["float16", "half"],
        dlpack: (code::FLOAT, 16),
        format: Some(c"e"),
        typestr: Some("<f2"),
    },
    Names {
        dtype: DType::BF16,
        names: &["bfloat16"],
        dlpack: (code::BFLOAT, 16),
        format: None,
        typestr: None,
    },
    Names {
        dtype: DType::F8E4M3,
        names: &["float8_e4m3fn"],
        dlpack: (code::F8E4M3FN, 8),
        format: None,
        typestr: None,
    },
    Names {
        dtype: DType::I8,
        names: &["int8"],
        dlpack: (code::INT, 8),
        format: Some(c"b"),
        typestr: Some("|i1"),
    },
    Names {
        dtype: DType::U8,
        names: &["uint8"],
        dlpack: (code::UINT, 8),
        format: Some(c"B"),
        typestr: Some("|u1"),
    },
    Names {
        dtype: DType::I32,
        names: &["int32", "int"],
        dlpack: (code::INT, 32),
        format: Some(c"i"),
        typestr: Some("<i4"),
    },
    Names {
        dtype: DType::I64,
        names: &["int64", "long"],
        dlpack: (code::INT, 64),
        format: Some(c"q"),
        typestr: Some("<i8"),
    },
    Names {
        dtype: DType::Bool,
        names: &["bool"],
        dlpack: (code::BOOL, 8),
        format: Some(c"?"),
        typestr: Some("|b1"),
    },
    Names { dtype: DType::I4, names: &["int4"], dlpack: (code::INT, 4), format: None, typestr: None },
];

fn names(dtype: DType) -> Option<&'static Names> {
    NAMES.iter().find(|n| n.dtype == dtype)
}

/// The type of a name: Kiln's, NumPy's or PyTorch's.
pub fn of_name(name: &str) -> PyResult<DType> {
    let plain = name.strip_prefix("torch.").unwrap_or(name);
    let found = NAMES.iter().find(|n| n.dtype.name() == plain || n.names.contains(&plain));
    found.map(|n| n.dtype).ok_or_else(|| {
        let known: Vec<&str> = DType::ALL.iter().map(|t| t.name()).collect();
        argument(format!(
            "{name} is no element type of Kiln; there are {}: convert the elements first",
            known.join(", ")
        ))
    })
}

/// The type of an object that names one: a text, a NumPy or PyTorch type, a scalar class.
pub fn of_object(object: &Bound<'_, PyAny>) -> PyResult<DType> {
    if let Ok(text) = object.cast::<PyString>() {
        return of_name(&text.to_cow()?);
    }
    for attribute in ["name", "__name__"] {
        if let Ok(name) = object.getattr(attribute).and_then(|n| n.extract::<String>()) {
            return of_name(&name);
        }
    }
    of_name(&object.str()?.to_cow()?)
}

/// Code and bits in DLPack.
pub fn dlpack(dtype: DType) -> Option<(u8, u8)> {
    names(dtype).map(|n| n.dlpack)
}

/// The type of code, bits and lanes in DLPack.
pub fn of_dlpack(code: u8, bits: u8, lanes: u16) -> PyResult<DType> {
    let found = NAMES.iter().find(|n| n.dlpack == (code, bits) && lanes == 1);
    found.map(|n| n.dtype).ok_or_else(|| {
        let kind = match code {
            code::INT => "int",
            code::UINT => "uint",
            code::FLOAT => "float",
            code::BFLOAT => "bfloat",
            5 => "complex",
            _ => "DLPack type",
        };
        let name = if kind == "DLPack type" {
            format!("{kind} {code} of {bits} bits")
        } else {
            format!("{kind}{bits}")
        };
        of_name(&name).err().unwrap_or_else(|| argument(format!("{name} in vectors of {lanes} is not read")))
    })
}

/// The format of the buffer protocol.
pub fn format(dtype: DType) -> Option<&'static CStr> {
    names(dtype).and_then(|n| n.format)
}

/// The type of a format of the buffer protocol, with the size of an element in bytes.
pub fn of_format(format: &str, size: usize) -> Option<DType> {
    let plain = format.trim_start_matches(['@', '=', '<']);
    match (plain, size) {
        ("l" | "q" | "n", 8) => Some(DType::I64),
        ("i" | "l", 4) => Some(DType::I32),
        ("c", 1) => Some(DType::U8),
        _ => {
            NAMES.iter().find(|n| n.format.is_some_and(|f| f.to_bytes() == plain.as_bytes())).map(|n| n.dtype)
        }
    }
}

/// The type of `__array_interface__`.
pub fn typestr(dtype: DType) -> Option<&'static str> {
    names(dtype).and_then(|n| n.typestr)
}

/// The element type of `__array_interface__` or `__cuda_array_interface__`.
pub fn of_typestr(text: &str) -> Option<DType> {
    let little = text.trim_start_matches(['<', '|', '=']);
    NAMES.iter().find(|n| n.typestr.is_some_and(|t| t[1..] == *little)).map(|n| n.dtype)
}
