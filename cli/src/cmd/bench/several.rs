//! Several engines in one process, which starts the device once.

use crate::failure::{Failure, report};
use crate::print::Printer;
use crate::signals;
use crate::subject::Subject;
use serde_json::{Value, json};
use std::io::BufRead;
use std::path::{Path, PathBuf};

/// Measures each path in turn; of `-` each line of standard input, as soon as it comes. A path that fails has its error in its
/// line, and makes the whole fail at the end.
pub fn run(
    paths: &[PathBuf],
    out: &Printer,
    mut measured: impl FnMut(&Path) -> Result<(Value, Subject), Failure>,
) -> Result<(), Failure> {
    let (mut done, mut failed) = (0, 0);
    // The engine before keeps the device open while the next one is loaded.
    let mut kept = None;
    let mut one = |path: &Path| {
        done += 1;
        let name = path.display().to_string();
        match measured(path) {
            Ok((mut value, subject)) => {
                kept = Some(subject);
                if let Some(fields) = value.as_object_mut() {
                    fields.insert("path".into(), json!(name));
                }
                out.row(&value);
            }
            Err(e) => {
                failed += 1;
                report(&e);
                out.row(&json!({"path": name, "error": with_causes(&e)}));
            }
        }
        signals::received().is_none()
    };
    'all: for path in paths {
        if path.as_os_str() != "-" {
            if !one(path) {
                break;
            }
            continue;
        }
        for line in std::io::stdin().lock().lines() {
            let line = line.map_err(|source| Failure::File { path: path.clone(), source })?;
            let line = line.trim();
            if !line.is_empty() && !one(Path::new(line)) {
                break 'all;
            }
        }
    }
    drop(kept);
    match failed {
        0 => Ok(()),
        n => Err(Failure::Input(format!("{n} of {done} could not be measured"))),
    }
}

/// An error and its causes in one line.
fn with_causes(e: &dyn std::error::Error) -> String {
    let mut text = e.to_string();
    let mut cause = e.source();
    while let Some(c) = cause {
        let more = c.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = c.source();
    }
    text
}
