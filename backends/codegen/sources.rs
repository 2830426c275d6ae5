// Included by the build scripts of backends that print kernels.

use std::path::{Path, PathBuf};

/// Sources that launches depend on, beside the backend's own kernels: the families, and the rules of operators that they call.
const LAUNCH_CODE: [&str; 2] = ["../codegen/src", "../../engine/ops/src"];

/// Sets `KILN_LAUNCH_CODE` to a digest of the code that plans launches: [`LAUNCH_CODE`] and the backend's files under `own`.
fn launch_code(own: &[&str]) -> std::io::Result<()> {
    digest("KILN_LAUNCH_CODE", &[&LAUNCH_CODE, own].concat())
}

/// Sets a variable to a digest of the files under these folders; blank lines, whole-line comments and unit tests aside.
fn digest(variable: &str, roots: &[&str]) -> std::io::Result<()> {
    let mut files = Vec::new();
    for root in roots {
        println!("cargo:rerun-if-changed={root}");
        collect(Path::new(root), &mut files)?;
    }
    files.sort();
    // FNV-1a.
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut put = |bytes: &[u8]| {
        for b in bytes {
            hash = (hash ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    for file in files {
        put(file.to_string_lossy().replace('\\', "/").as_bytes());
        let text = std::fs::read_to_string(&file)?;
        let text = without_tests(&text);
        for line in text.map(str::trim).filter(|l| !l.is_empty()) {
            if !line.starts_with("//") {
                put(line.as_bytes());
                put(b"\n");
            }
        }
    }
    println!("cargo:rustc-env={variable}={hash:016x}");
    Ok(())
}

/// The lines of a file without its module of unit tests, which ends at the first brace that is not indented.
fn without_tests(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.lines().filter(move |line| {
        let was_inside = inside || *line == "mod tests {";
        inside = was_inside && *line != "}";
        !was_inside
    })
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if path.is_file() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in std::fs::read_dir(path)? {
        collect(&entry?.path(), files)?;
    }
    Ok(())
}

/// Writes `files.rs`, a table of the files with this ending under a folder: name without the ending, text. A new kernel file
/// needs no line anywhere.
fn table(folder: &str, ending: &str) -> std::io::Result<()> {
    let mut found = Vec::new();
    gather(&Path::new(folder).canonicalize()?, "", ending, &mut found)?;
    found.sort();
    let rows: String =
        found.iter().map(|(name, path)| format!("    ({name:?}, include_str!({path:?})),\n")).collect();
    let text = format!("/// Name and text of every kernel file.\npub const FILES: &[(&str, &str)] = &[\n{rows}];\n");
    let to = std::env::var("OUT_DIR").map_err(std::io::Error::other)?;
    std::fs::write(Path::new(&to).join("files.rs"), text)
}

fn gather(folder: &Path, prefix: &str, ending: &str, found: &mut Vec<(String, PathBuf)>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            gather(&path, &format!("{prefix}{name}/"), ending, found)?;
        } else if let Some(name) = name.strip_suffix(ending) {
            found.push((format!("{prefix}{name}"), path));
        }
    }
    Ok(())
}
