//! Names of operators as constants, so that a mistyped one does not compile.

use std::fmt;
use std::ops::Deref;

/// Declares the names of the operators that a file defines: `op_names! { CONV = "conv" }`.
#[macro_export]
macro_rules! op_names {
    ($($name:ident = $text:literal),* $(,)?) => {
        $(
            #[doc = concat!("The operator `", $text, "`.")]
            pub const $name: $crate::op::OpName = $crate::op::OpName::new($text);
        )*
    };
}

/// Name of an operator: snake case, stable. Constants of the crate that defines the operator ([`op_names!`](crate::op_names)).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpName(&'static str);

impl OpName {
    /// The name with this text. For the file that defines the operator; all others use its constant.
    pub const fn new(text: &'static str) -> OpName {
        OpName(text)
    }

    /// The text.
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl Deref for OpName {
    type Target = str;
    fn deref(&self) -> &str {
        self.0
    }
}

impl AsRef<str> for OpName {
    fn as_ref(&self) -> &str {
        self.0
    }
}

impl fmt::Display for OpName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}

impl fmt::Debug for OpName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.0, f)
    }
}

// Control flow, whose regions the graph itself knows; the records are in `kiln-ops` like all others.
op_names! {
    LOOP = "loop",
    IF = "if",
}
