//! Failures of a layer, as its author reports them.

/// Reason why a layer fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A field or the contents of an input are illegal.
    Invalid(String),
    /// Legal, but not implemented.
    Unsupported(String),
}

impl Error {
    /// The text.
    pub fn message(&self) -> &str {
        match self {
            Error::Invalid(m) | Error::Unsupported(m) => m,
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for Error {}
