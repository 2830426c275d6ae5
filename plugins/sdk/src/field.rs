//! Fields: their definitions and values.

use crate::error::Error;
use kiln_abi::*;
use std::ffi::c_void;

/// A structure of fields, as [`fields!`](crate::fields) defines it.
pub trait Fields: Sized {
    /// Definitions in order.
    fn fields() -> Vec<Field>;
    /// The structure from values in that order.
    fn of(values: &[Value]) -> Result<Self, Error>;
}

/// Definition of a field.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Name.
    pub name: &'static str,
    /// Meaning, for users.
    pub doc: &'static str,
    /// Whether the user must give it.
    pub required: bool,
    /// Default, which also sets the kind.
    pub value: Value,
}

/// Value of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A text.
    Text(String),
    /// Integers.
    Ints(Vec<i64>),
    /// Floats.
    Floats(Vec<f64>),
    /// Texts.
    Texts(Vec<String>),
}

/// A type that fields may have.
pub trait FieldValue: Sized + Default {
    /// As a value.
    fn value(self) -> Value;
    /// From the value of a field of this name.
    fn of(value: Option<&Value>, name: &str) -> Result<Self, Error>;
}

macro_rules! field_value {
    ($($t:ty => $v:ident),* $(,)?) => {$(
        impl FieldValue for $t {
            fn value(self) -> Value {
                Value::$v(self)
            }
            fn of(value: Option<&Value>, name: &str) -> Result<Self, Error> {
                match value {
                    Some(Value::$v(v)) => Ok(v.clone()),
                    found => Err(Error::Invalid(format!("field \"{name}\" is {found:?}, wants {}", stringify!($t)))),
                }
            }
        }
    )*};
}
field_value!(i64 => Int, f64 => Float, String => Text, Vec<i64> => Ints, Vec<f64> => Floats, Vec<String> => Texts);

impl Field {
    /// A field of this type, with a default unless it is required.
    pub fn of<T: FieldValue>(name: &'static str, doc: &'static str, default: Option<T>) -> Field {
        Field { name, doc, required: default.is_none(), value: default.unwrap_or_default().value() }
    }
}

/// The view of a value, in memory that is never freed: definitions live as long as the library.
pub(crate) fn leaked(value: &Value) -> kiln_field {
    fn of<T: 'static>(kind: u32, all: Vec<T>) -> kiln_field {
        let all: &'static [T] = all.leak();
        kiln_field { kind, reserved: 0, data: all.as_ptr().cast::<c_void>(), count: all.len() as u64 }
    }
    let text = |s: &String| kiln_str::new(s.clone().leak());
    match value {
        Value::Int(n) => of(KILN_FIELD_INT, vec![*n]),
        Value::Float(x) => of(KILN_FIELD_FLOAT, vec![*x]),
        Value::Text(s) => of(KILN_FIELD_STRING, vec![text(s)]),
        Value::Ints(v) => of(KILN_FIELD_INTS, v.clone()),
        Value::Floats(v) => of(KILN_FIELD_FLOATS, v.clone()),
        Value::Texts(v) => of(KILN_FIELD_STRINGS, v.iter().map(text).collect()),
    }
}

/// Values of views.
///
/// # Safety
/// The views and what they refer to are valid for the call.
pub(crate) unsafe fn values(fields: *const kiln_field, count: u64) -> Result<Vec<Value>, Error> {
    // SAFETY: as this function's contract says.
    unsafe { slice(fields, count) }.iter().map(|f| unsafe { value(f) }).collect()
}

/// # Safety
/// As [`values`].
unsafe fn value(f: &kiln_field) -> Result<Value, Error> {
    // SAFETY: as this function's contract says.
    unsafe {
        let ints = || slice(f.data.cast::<i64>(), f.count).to_vec();
        let floats = || slice(f.data.cast::<f64>(), f.count).to_vec();
        let texts = || -> Vec<String> {
            let text = |s: &kiln_str| String::from_utf8_lossy(slice(s.ptr.cast(), s.len)).into_owned();
            slice(f.data.cast::<kiln_str>(), f.count).iter().map(text).collect()
        };
        let none = || Error::Invalid("a field without a value".into());
        Ok(match f.kind {
            KILN_FIELD_INT => Value::Int(ints().pop().ok_or_else(none)?),
            KILN_FIELD_FLOAT => Value::Float(floats().pop().ok_or_else(none)?),
            KILN_FIELD_STRING => Value::Text(texts().pop().ok_or_else(none)?),
            KILN_FIELD_INTS => Value::Ints(ints()),
            KILN_FIELD_FLOATS => Value::Floats(floats()),
            KILN_FIELD_STRINGS => Value::Texts(texts()),
            kind => return Err(Error::Unsupported(format!("a field of kind {kind}"))),
        })
    }
}

/// # Safety
/// `ptr` is valid for `len` elements during `'a`, or `len` is 0.
pub(crate) unsafe fn slice<'a, T>(ptr: *const T, len: u64) -> &'a [T] {
    if ptr.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: as this function's contract says.
    unsafe { std::slice::from_raw_parts(ptr, len as usize) }
}
