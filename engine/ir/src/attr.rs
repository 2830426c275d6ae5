//! Attributes of operators: a small map from names to values.

use crate::dtype::DType;
use crate::error::OpError;
use std::collections::BTreeMap;
use std::fmt;

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Attr {
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A name out of a closed list, or free text.
    Str(String),
    /// Integers.
    Ints(Vec<i64>),
    /// Floats.
    Floats(Vec<f64>),
    /// Names.
    Strs(Vec<String>),
    /// An element type.
    DType(DType),
    /// Bytes that only the operator reads (a plug-in's fields).
    Bytes(Vec<u8>),
}

impl Attr {
    /// The name of the kind of value, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Attr::Int(_) => "an integer",
            Attr::Float(_) => "a float",
            Attr::Bool(_) => "a truth value",
            Attr::Str(_) => "a string",
            Attr::Ints(_) => "a list of integers",
            Attr::Floats(_) => "a list of floats",
            Attr::Strs(_) => "a list of strings",
            Attr::DType(_) => "an element type",
            Attr::Bytes(_) => "bytes",
        }
    }

    /// Whether both values are of the same kind.
    pub fn same_kind(&self, o: &Attr) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(o)
    }
}

macro_rules! from {
    ($($t:ty => $v:ident),* $(,)?) => {$(
        impl From<$t> for Attr { fn from(x: $t) -> Attr { Attr::$v(x.into()) } }
    )*};
}
from!(i64 => Int, f64 => Float, bool => Bool, &str => Str, String => Str, Vec<i64> => Ints, &[i64] => Ints,
      Vec<f64> => Floats, DType => DType, Vec<u8> => Bytes, Vec<String> => Strs);

/// The attributes of one operator, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attrs(BTreeMap<String, Attr>);

impl Attrs {
    /// An empty map of attributes.
    pub fn new() -> Attrs {
        Attrs::default()
    }

    /// Adds or replaces one; for building in a chain.
    pub fn with(mut self, name: &str, value: impl Into<Attr>) -> Attrs {
        self.set(name, value);
        self
    }

    /// Adds or replaces one.
    pub fn set(&mut self, name: &str, value: impl Into<Attr>) {
        self.0.insert(name.to_owned(), value.into());
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&Attr> {
        self.0.get(name)
    }

    /// Names and values in the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Attr)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// Number of attributes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// None at all?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn wrong(&self, name: &str, wanted: &str) -> OpError {
        let found = self.get(name).map_or("missing".to_owned(), |a| a.kind().to_owned());
        OpError::Attr { name: name.to_owned(), found, wanted: wanted.to_owned() }
    }

    /// An integer.
    pub fn int(&self, name: &str) -> Result<i64, OpError> {
        match self.get(name) {
            Some(Attr::Int(x)) => Ok(*x),
            _ => Err(self.wrong(name, "an integer")),
        }
    }

    /// A float.
    pub fn float(&self, name: &str) -> Result<f64, OpError> {
        match self.get(name) {
            Some(Attr::Float(x)) => Ok(*x),
            _ => Err(self.wrong(name, "a float")),
        }
    }

    /// A truth value.
    pub fn bool(&self, name: &str) -> Result<bool, OpError> {
        match self.get(name) {
            Some(Attr::Bool(x)) => Ok(*x),
            _ => Err(self.wrong(name, "a truth value")),
        }
    }

    /// A string.
    pub fn str(&self, name: &str) -> Result<&str, OpError> {
        match self.get(name) {
            Some(Attr::Str(x)) => Ok(x),
            _ => Err(self.wrong(name, "a string")),
        }
    }

    /// A list of integers.
    pub fn ints(&self, name: &str) -> Result<&[i64], OpError> {
        match self.get(name) {
            Some(Attr::Ints(x)) => Ok(x),
            _ => Err(self.wrong(name, "a list of integers")),
        }
    }

    /// A list of floats.
    pub fn floats(&self, name: &str) -> Result<&[f64], OpError> {
        match self.get(name) {
            Some(Attr::Floats(x)) => Ok(x),
            _ => Err(self.wrong(name, "a list of floats")),
        }
    }

    /// An element type.
    pub fn dtype(&self, name: &str) -> Result<DType, OpError> {
        match self.get(name) {
            Some(Attr::DType(x)) => Ok(*x),
            _ => Err(self.wrong(name, "an element type")),
        }
    }
}

impl fmt::Display for Attr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attr::Int(x) => write!(f, "{x}"),
            Attr::Float(x) => write!(f, "{x:?}"),
            Attr::Bool(x) => write!(f, "{x}"),
            Attr::Str(x) => write!(f, "{x:?}"),
            Attr::Ints(x) => write!(f, "{x:?}"),
            Attr::Floats(x) => write!(f, "f{x:?}"),
            Attr::Strs(x) => write!(f, "s{x:?}"),
            Attr::DType(x) => write!(f, "{x}"),
            Attr::Bytes(x) => {
                f.write_str("0x")?;
                x.iter().try_for_each(|b| write!(f, "{b:02x}"))
            }
        }
    }
}
