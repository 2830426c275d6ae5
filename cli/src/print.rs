//! Output: tables for people, JSON for programs, both to stdout; notes to stderr.

use crate::terminal;
use comfy_table::{ContentArrangement, Table, presets};
use serde_json::Value;
use std::io::Write;

/// Destination of results.
#[derive(Debug)]
pub struct Printer {
    json: bool,
}

impl Printer {
    /// Prints JSON, or text.
    pub fn new(json: bool) -> Printer {
        Printer { json }
    }

    /// Whether JSON is wanted.
    pub fn json(&self) -> bool {
        self.json
    }

    /// The result for programs, if they are to have it.
    pub fn value(&self, value: &Value) {
        if self.json {
            // A value with text keys always has a JSON form.
            self.write(&terminal::json(&serde_json::to_string_pretty(value).unwrap_or_default()));
        }
    }

    /// One of several results for programs, in a line of its own.
    pub fn row(&self, value: &Value) {
        if self.json {
            self.write(&terminal::json(&value.to_string()));
        }
    }

    /// A line for people.
    pub fn line(&self, text: impl AsRef<str>) {
        if !self.json {
            self.write(&terminal::shown(text.as_ref()));
        }
    }

    /// A table for people; none where there is no row.
    pub fn table(&self, head: &[&str], rows: Vec<Vec<String>>) {
        if self.json || rows.is_empty() {
            return;
        }
        let mut t = Table::new();
        t.load_style(presets::UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
        t.set_header(head.to_vec());
        t.add_rows(rows.into_iter().map(|row| row.iter().map(|c| terminal::cell(c)).collect::<Vec<_>>()));
        self.write(&t.trim_fmt());
    }

    /// Lines that are a result of a format of its own, whatever is wanted; only what a terminal obeys is escaped.
    pub fn raw(&self, text: &str) {
        self.write(&terminal::json(text.trim_end_matches('\n')));
    }

    /// A remark on stderr, where it disturbs no program.
    pub fn note(&self, text: impl AsRef<str>) {
        drop(writeln!(std::io::stderr(), "note: {}", terminal::shown(text.as_ref())));
    }

    /// A reader that closed the pipe has seen enough: that is not a failure.
    fn write(&self, text: &str) {
        drop(writeln!(std::io::stdout(), "{text}"));
    }
}

/// Bytes with a unit.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut x, mut i) = (n as f64, 0);
    while x >= 1024.0 && i + 1 < UNITS.len() {
        x /= 1024.0;
        i += 1;
    }
    if i == 0 { format!("{n} B") } else { format!("{x:.1} {}", UNITS[i]) }
}

/// A time with a unit.
pub fn time(ns: f64) -> String {
    match ns {
        n if !n.is_finite() => "–".into(),
        n if n < 1e3 => format!("{n:.0} ns"),
        n if n < 1e6 => format!("{:.2} µs", n / 1e3),
        n if n < 1e9 => format!("{:.3} ms", n / 1e6),
        n => format!("{:.3} s", n / 1e9),
    }
}

/// A number with as many digits as are worth reading.
pub fn number(x: f64) -> String {
    let a = x.abs();
    if x == 0.0 || ((1e-3..1e6).contains(&a) && x.fract() != 0.0) {
        format!("{x:.5}").trim_end_matches('0').trim_end_matches('.').to_owned()
    } else if x.fract() == 0.0 && a < 1e15 {
        format!("{x:.0}")
    } else {
        format!("{x:.4e}")
    }
}

/// Dimensions as people write them: `1x3x224`, `scalar`.
pub fn dims<T: ToString>(dims: &[T]) -> String {
    if dims.is_empty() {
        return "scalar".into();
    }
    dims.iter().map(T::to_string).collect::<Vec<_>>().join("x")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let n = [0.0, 1.0, 0.5, 1234.5678, 1e-7, 3.0e20, -2.25];
        let text: Vec<String> = n.into_iter().map(number).collect();
        assert_eq!(text, ["0", "1", "0.5", "1234.5678", "1.0000e-7", "3.0000e20", "-2.25"]);
        assert_eq!(
            (bytes(100), bytes(1536), time(2.5e6)),
            ("100 B".into(), "1.5 KiB".into(), "2.500 ms".into())
        );
        assert_eq!((dims::<i64>(&[]), dims(&[1, 28])), ("scalar".into(), "1x28".into()));
    }
}
