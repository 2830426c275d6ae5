//! Errors of the command, and how they are shown.

use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme};
use std::error::Error;
use std::fmt;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use thiserror::Error as ThisError;

/// Reason why a command failed.
#[derive(Debug, ThisError)]
pub enum Failure {
    /// The library refused.
    #[error(transparent)]
    Kiln(#[from] kiln::Error),
    /// A file of arrays could not be read or written.
    #[error("cannot use {}", path.display())]
    Arrays {
        /// The file.
        path: PathBuf,
        /// Reason.
        #[source]
        source: kiln_npz::NpzError,
    },
    /// A file could not be read or written.
    #[error("cannot access {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Reason.
        #[source]
        source: std::io::Error,
    },
    /// A timing cache is not one.
    #[error("{} is not a timing cache: {message}", path.display())]
    Cache {
        /// The file.
        path: PathBuf,
        /// Defect of the file.
        message: String,
    },
    /// An argument or file does not fit.
    #[error("{0}")]
    Input(String),
    /// Results differ from what was expected.
    #[error("mismatch: {0}")]
    Mismatch(String),
}

macro_rules! through_the_facade {
    ($($source:ty),*) => {
        $(impl From<$source> for Failure {
            fn from(e: $source) -> Self {
                Failure::Kiln(e.into())
            }
        })*
    };
}
through_the_facade!(kiln::RuntimeError, kiln::PlanError);

/// One message of a chain of causes. A cause that the message above it repeats is left out.
#[derive(Debug)]
struct Shown {
    message: String,
    cause: Option<Box<Shown>>,
}

impl Shown {
    fn of(e: &dyn Error) -> Shown {
        let message = e.to_string();
        let mut next = e.source();
        while let Some(c) = next.filter(|c| message.contains(&c.to_string())) {
            next = c.source();
        }
        let message = crate::terminal::shown(&message);
        Shown { message, cause: next.map(|c| Box::new(Shown::of(c))) }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for Shown {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.as_deref().map(|c| c as _)
    }
}

impl Diagnostic for Shown {}

/// Writes the error with all its causes to stderr.
pub fn report(e: &dyn Error) {
    let plain = !std::io::stderr().is_terminal() || std::env::var_os("NO_COLOR").is_some();
    let theme = if plain { GraphicalTheme::unicode_nocolor() } else { GraphicalTheme::unicode() };
    let handler = GraphicalReportHandler::new_themed(theme).with_wrap_lines(false);
    let shown = Shown::of(e);
    let mut text = String::new();
    if handler.render_report(&mut text, &shown).is_err() {
        text = format!("error: {shown}\n");
    }
    // Nobody is left to tell if stderr is closed.
    drop(std::io::stderr().write_all(text.as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, ThisError)]
    #[error("{text}")]
    struct Link {
        text: &'static str,
        #[source]
        source: Option<Box<Link>>,
    }

    #[test]
    fn a_cause_that_is_repeated_is_shown_once() {
        let deep = Link { text: "no file", source: None };
        let middle = Link { text: "reading: no file", source: Some(Box::new(deep)) };
        let top = Link { text: "cannot build", source: Some(Box::new(middle)) };
        let shown = Shown::of(&top);
        let cause = shown.cause.as_ref().map(|c| c.message.as_str());
        assert_eq!((shown.message.as_str(), cause), ("cannot build", Some("reading: no file")));
        assert!(shown.cause.is_some_and(|c| c.cause.is_none()));
    }
}
