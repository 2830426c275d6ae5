//! Files that tests write when they are told to.

use crate::suite::root;

/// Whether `KILN_BLESS=1` asks to write what was found instead of comparing.
pub fn blessing() -> bool {
    std::env::var_os("KILN_BLESS").is_some_and(|v| v == "1")
}

/// Compares a file of the repository with what it should hold, or writes it where that was asked for. The error names
/// the first line that differs.
pub fn check(path: &str, wanted: &str) -> Result<(), String> {
    let file = root().join(path);
    if blessing() {
        return std::fs::write(&file, wanted).map_err(|e| format!("{path}: {e}"));
    }
    let found =
        std::fs::read_to_string(&file).map_err(|e| format!("{path}: {e}; write it with KILN_BLESS=1"))?;
    if found == wanted {
        return Ok(());
    }
    let (f, w): (Vec<&str>, Vec<&str>) = (found.lines().collect(), wanted.lines().collect());
    let at = f.iter().zip(&w).position(|(a, b)| a != b).unwrap_or(f.len().min(w.len()));
    Err(format!(
        "{path} is out of date in line {}: \"{}\", wants \"{}\"; KILN_BLESS=1 writes it",
        at + 1,
        f.get(at).unwrap_or(&"(end)"),
        w.get(at).unwrap_or(&"(end)")
    ))
}
