//! Links the files in `shaders/` to a module: what its text calls, and what that calls in turn.
//!
//! Every file is WGSL that a compiler accepts as it stands. Functions and variables that are defined elsewhere have stand-ins at
//! its end. A name is looked up in the module's own text first, then in the libraries, then in what the kernel files define. Last
//! come the stand-ins: one is linked only where nothing else defines the name, as for an input that the operator lacks.

use kiln_backend::BackendError;
use std::collections::{BTreeMap, HashSet};
use std::sync::OnceLock;

include!(concat!(env!("OUT_DIR"), "/files.rs"));

/// Files whose items every module may use.
const LIBRARIES: [&str; 6] = ["launch", "spans", "storage", "math", "integer", "runs"];

/// The text of a file of `shaders/` by name, `"norm/lrn"`.
pub fn file(name: &str) -> Option<&'static str> {
    FILES.binary_search_by_key(&name, |f| f.0).ok().map(|at| FILES[at].1)
}

/// The line that precedes the stand-ins of a file begins with this.
const STAND_INS: &str = "\n// Stand-ins for ";

/// Definitions of a file, and its stand-ins.
fn parts(text: &str) -> (&str, &str) {
    text.split_once(STAND_INS).unwrap_or((text, ""))
}

/// Items by name.
pub type Items = BTreeMap<String, String>;

/// The library of conversions of f16, which goes before the others where the device's own are exact.
pub const HALVES: &str = "halves";

/// Every item of the library [`HALVES`] by name.
pub fn halves() -> &'static Items {
    static ITEMS: OnceLock<Items> = OnceLock::new();
    ITEMS.get_or_init(|| {
        let mut out = BTreeMap::new();
        split(parts(file(HALVES).unwrap_or_default()).0, &mut out);
        out
    })
}

/// Every item of the libraries by name.
fn libraries() -> &'static Items {
    static ITEMS: OnceLock<Items> = OnceLock::new();
    ITEMS.get_or_init(|| {
        let mut out = BTreeMap::new();
        for name in LIBRARIES {
            split(parts(file(name).unwrap_or_default()).0, &mut out);
        }
        out
    })
}

/// Beginnings of items.
const STARTS: [&str; 8] = ["fn ", "struct ", "const ", "alias ", "var ", "var<", "override ", "@"];

/// Items start at the margin and end with a line that is `}` or, of one line, ends with `;`.
fn split(text: &str, out: &mut Items) {
    let mut item = String::new();
    for line in text.lines() {
        if item.is_empty() && !STARTS.iter().any(|s| line.starts_with(s)) {
            continue;
        }
        item.push_str(line);
        item.push('\n');
        if line == "}" || (line.ends_with(';') && !line.starts_with(' ')) {
            if let Some(name) = defined(&item) {
                out.entry(name.to_owned()).or_insert_with(|| std::mem::take(&mut item));
            }
            item.clear();
        }
    }
}

/// The name that an item defines.
fn defined(item: &str) -> Option<&str> {
    let line = item.lines().find(|l| !l.starts_with('@') || l.contains(" var<"))?;
    let line = line.split_once(" var<").map_or(line, |p| p.1);
    let rest = ["fn ", "struct ", "const ", "alias ", "override "].iter().find_map(|s| line.strip_prefix(s));
    // Behind the address space of a variable.
    let rest = rest.or_else(|| line.split_once("> ").map(|p| p.1))?;
    names(rest).next()
}

/// Words of a text that look like names.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|w| !w.is_empty())
}

/// The names that the text of a module defines by itself.
fn own(text: &str) -> HashSet<&str> {
    let starts = |l: &&str| STARTS.iter().any(|s| l.starts_with(s));
    text.lines().filter(starts).filter_map(defined).collect()
}

/// The items of the libraries and of kernel files that `text` and the entry points need, sorted by name. Items of `before` take the
/// place of others.
pub fn needed_by(
    text: &str,
    files: &[&str],
    entries: &[String],
    before: Option<&Items>,
) -> Result<String, BackendError> {
    let before = before.unwrap_or(const { &Items::new() });
    let mut given = Items::new();
    let mut stand_ins = Items::new();
    for name in files {
        let missing = || BackendError::Internal(format!("there is no kernel file \"{name}.wgsl\""));
        let (defined, rest) = parts(file(name).ok_or_else(missing)?);
        split(defined, &mut given);
        split(rest, &mut stand_ins);
    }
    let own = own(text);
    let mut wanted: BTreeMap<&str, &str> = BTreeMap::new();
    let entries = entries.join(" ");
    let mut open: Vec<&str> = vec![text, &entries];
    while let Some(t) = open.pop() {
        for n in names(t).filter(|n| !own.contains(n)) {
            let found = [before, libraries(), &given, &stand_ins]
                .into_iter()
                .find_map(|items| items.get_key_value(n));
            if let Some((k, v)) = found
                && wanted.insert(k, v).is_none()
            {
                open.push(v);
            }
        }
    }
    Ok(wanted.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_codegen::params::{renewed, wgsl};

    #[test]
    fn what_is_called_comes_along() {
        let text = needed_by("let y = ktanh(x);", &[], &[], None).unwrap();
        assert!(text.contains("fn kexpm1(") && text.contains("fn is_nan("));
        assert!(!text.contains("fn kerf("));
    }

    #[test]
    fn stand_ins_give_way() {
        let text = needed_by("fn x0(at: u32) -> f32 { return lrn(at); }", &["norm/lrn"], &[], None).unwrap();
        assert!(text.contains("fn lrn_sum(") && text.contains("fn kpow("), "{text}");
        assert!(!text.contains("fn x0(") && !text.contains("return k;"), "{text}");
    }

    #[test]
    fn items_are_found_by_name_whatever_they_are() {
        let mut items = Items::new();
        let text = "// Of no item.\n@group(0) @binding(0) var<storage, read> args: array<u32>;\nvar<workgroup> w: u32;\n\
                    alias T = f32;\nconst N = 3u;\nconst M: u32 = 4u;\n@compute @workgroup_size(64)\nfn rows(\n    a: u32,\n) {\n}\n";
        split(text, &mut items);
        assert_eq!(items.keys().collect::<Vec<_>>(), ["M", "N", "T", "args", "rows", "w"]);
        assert!(items["rows"].starts_with("@compute"));
    }

    #[test]
    fn every_file_is_accepted_as_it_stands() {
        let mut refused = Vec::new();
        for (name, text) in FILES {
            let parsed = naga::front::wgsl::parse_str(text).map_err(|e| e.emit_to_string(text));
            let valid = parsed.and_then(|m| {
                let mut v = naga::valid::Validator::new(
                    naga::valid::ValidationFlags::all(),
                    naga::valid::Capabilities::all(),
                );
                v.validate(&m).map(drop).map_err(|e| e.emit_to_string(text))
            });
            refused.extend(valid.err().map(|e| format!("{name}: {e}")));
        }
        assert!(refused.is_empty(), "{}", refused.join("\n"));
    }

    /// `KILN_BLESS=1` writes the declared structures into the files.
    #[test]
    fn structures_of_parameters_are_those_that_are_declared() {
        for (name, text) in FILES {
            let new = renewed(text, wgsl).unwrap_or_else(|e| panic!("{name}: {e}"));
            if new != *text && std::env::var_os("KILN_BLESS").is_some() {
                let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shaders/");
                std::fs::write(format!("{root}{name}.wgsl"), &new).unwrap();
                continue;
            }
            assert_eq!(new, *text, "{name}: run the test with KILN_BLESS=1");
        }
    }
}
