//! Calibration tables in TensorRT's text format.
//!
//! The first line is `TRT-<version>-<algorithm>`. Each further line is `<tensor>: <scale>`, where the scale is the step between two
//! codes as the eight hexadecimal digits of an f32, the sign first.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The greatest code.
const GREATEST: f32 = 127.0;

/// Tables of more bytes are not read.
const LARGEST: u64 = 64 << 20;

/// The version in the first line of tables that are written; it means nothing when one is read.
const VERSION: &str = "101600";

/// Steps between codes of a network's tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct CalibrationTable {
    algorithm: String,
    scales: BTreeMap<String, f32>,
}

/// A calibration that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CalibrationError {
    /// A text that is not a table.
    #[error("line {line} of the calibration table is \"{found}\"; wanted {wanted}")]
    Line {
        /// Its number, from 1 on.
        line: usize,
        /// Its text.
        found: String,
        /// Form that is wanted.
        wanted: &'static str,
    },
    /// A file that cannot be read or written.
    #[error("the calibration table {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: std::io::Error,
    },
    /// Inputs that do not divide into the same number of batches.
    #[error(
        "input \"{input}\" has {found} elements along its first dimension, which are no batches of {size}, or fewer than others have"
    )]
    Batches {
        /// The input.
        input: String,
        /// Elements of a batch.
        size: usize,
        /// Elements that it has.
        found: usize,
    },
    /// No tensor was seen.
    #[error("no tensor was calibrated: add a batch of inputs first")]
    Empty,
}

impl CalibrationTable {
    /// An empty table of an algorithm.
    pub fn new(algorithm: &str) -> CalibrationTable {
        CalibrationTable { algorithm: algorithm.to_owned(), scales: BTreeMap::new() }
    }

    /// Name of the algorithm that made it.
    pub fn algorithm(&self) -> &str {
        &self.algorithm
    }

    /// Sets the greatest absolute value of a tensor.
    pub fn set(&mut self, tensor: &str, greatest: f64) {
        self.scales.insert(tensor.to_owned(), greatest as f32 / GREATEST);
    }

    /// Steps between codes by tensor.
    pub fn scales(&self) -> &BTreeMap<String, f32> {
        &self.scales
    }

    /// Ranges by tensor, as a build takes them.
    pub fn ranges(&self) -> BTreeMap<String, [f32; 2]> {
        self.scales.iter().map(|(name, s)| (name.clone(), [-s * GREATEST, s * GREATEST])).collect()
    }

    /// Reads a table.
    ///
    /// # Errors
    /// [`CalibrationError::Line`] for the first line that is wrong.
    pub fn parse(text: &str) -> Result<CalibrationTable, CalibrationError> {
        let wrong = |line: usize, found: &str, wanted| CalibrationError::Line {
            line: line + 1,
            found: found.chars().take(80).collect(),
            wanted,
        };
        let mut lines = text.lines().enumerate().filter(|(_, l)| !l.trim().is_empty());
        let (at, head) = lines.next().unwrap_or((0, ""));
        let version = "TRT-<version>-<algorithm>";
        let rest = head.trim().strip_prefix("TRT-").ok_or_else(|| wrong(at, head, version))?;
        let (_, algorithm) = rest.split_once('-').ok_or_else(|| wrong(at, head, version))?;
        let mut table = CalibrationTable::new(algorithm);
        for (at, line) in lines {
            let form = "<tensor>: <eight hexadecimal digits>";
            let (name, hex) = line.rsplit_once(':').ok_or_else(|| wrong(at, line, form))?;
            let bits = u32::from_str_radix(hex.trim(), 16).map_err(|_| wrong(at, line, form))?;
            let scale = f32::from_bits(bits);
            if !scale.is_finite() || scale < 0.0 {
                return Err(wrong(at, line, "a scale that is finite and not negative"));
            }
            table.scales.insert(name.to_owned(), scale);
        }
        Ok(table)
    }

    /// Reads a table from a file.
    ///
    /// # Errors
    /// [`CalibrationError::File`] if the file cannot be read, else as [`CalibrationTable::parse`].
    pub fn read(path: impl AsRef<Path>) -> Result<CalibrationTable, CalibrationError> {
        let path = path.as_ref();
        let fail = |source| CalibrationError::File { path: path.into(), source };
        let bytes = kiln_files::read_regular(path, LARGEST).map_err(fail)?;
        CalibrationTable::parse(&String::from_utf8_lossy(&bytes))
    }

    /// Writes the table to a file, which it replaces.
    ///
    /// # Errors
    /// [`CalibrationError::File`] if the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), CalibrationError> {
        let path = path.as_ref();
        let fail = |source| CalibrationError::File { path: path.into(), source };
        kiln_files::replace(path, None, self.to_text().as_bytes()).map_err(fail)
    }

    /// The table as text.
    pub fn to_text(&self) -> String {
        let mut text = format!("TRT-{VERSION}-{}\n", self.algorithm);
        for (name, scale) in &self.scales {
            text += &format!("{name}: {:08x}\n", scale.to_bits());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn tables_are_read_as_they_are_written() {
        let text = "TRT-8401-EntropyCalibration2\ninput: 3c010a14\nconv:1/out: 00000000\n";
        let table = CalibrationTable::parse(text).unwrap();
        assert_eq!(table.algorithm(), "EntropyCalibration2");
        assert_eq!(table.scales()["input"].to_bits(), 0x3c01_0a14);
        assert!((table.ranges()["input"][1] - 1.0).abs() < 1e-3);
        assert_eq!(table.scales()["conv:1/out"], 0.0);
        assert_eq!(CalibrationTable::parse(&table.to_text()).unwrap(), table);
    }

    #[test]
    fn lines_that_are_wrong_are_named() {
        for (text, line) in [
            ("", 1),
            ("cache\n", 1),
            ("TRT-1-X\nno colon\n", 2),
            ("TRT-1-X\na: 3c010a14\nb: zz\n", 3),
            ("TRT-1-X\na: ff800000\n", 2),
        ] {
            let e = CalibrationTable::parse(text).unwrap_err().to_string();
            assert!(e.contains(&format!("line {line} ")), "{text}: {e}");
        }
    }
}
