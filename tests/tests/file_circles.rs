//! Files of a crate that need each other: reading one means reading all of its circle, so that circles stay few and small.
//!
//! A file needs another one when it imports from it or names a path into it. Names that `mod.rs` and `lib.rs` only pass on
//! lead to the file that has them. Comments, strings and inline tests do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The most circles in the workspace.
const MOST_CIRCLES: usize = 5;

/// The most files in one circle.
const MOST_FILES: usize = 4;

/// Folders of crates.
const FOLDERS: &[&str] =
    &["engine", "backends", "plugins/examples", "cli", "capi", "integrations", "python", "tests", "xtask"];

type Module = Vec<String>;

/// The files of a crate by module, and what `mod.rs` and `lib.rs` pass on: name to module.
struct Crate {
    files: BTreeMap<Module, String>,
    text: BTreeMap<Module, String>,
    passed_on: BTreeMap<(Module, String), Module>,
}

impl Crate {
    fn read(src: &Path) -> Crate {
        let mut all = Vec::new();
        collect(src, &mut all);
        let (mut files, mut text) = (BTreeMap::new(), BTreeMap::new());
        for path in all {
            let name = path.strip_prefix(src).expect("a file of the crate").with_extension("");
            let mut module: Module = name.iter().map(|part| part.to_string_lossy().into_owned()).collect();
            if matches!(module.last().map(String::as_str), Some("mod" | "lib" | "main")) {
                module.pop();
            }
            let code = code_only(&fs::read_to_string(&path).expect("a readable file"));
            let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
            files.insert(module.clone(), name.with_extension("rs").display().to_string());
            text.insert(module, code);
        }
        let mut all = Crate { files, text, passed_on: BTreeMap::new() };
        for (module, text) in &all.text {
            for path in imports(text).into_iter().filter(|u| u.public).flat_map(|u| u.paths) {
                let (from, rest) = all.walk(module, &path, &BTreeMap::new());
                if let (true, [name]) = (from != *module, &rest[..]) {
                    all.passed_on.insert((module.clone(), name.clone()), from);
                }
            }
        }
        all
    }

    /// The module that a path of another module leads to, and what is left of the path.
    fn walk(
        &self,
        from: &Module,
        path: &[String],
        passed_on: &BTreeMap<(Module, String), Module>,
    ) -> (Module, Vec<String>) {
        let mut at = from.clone();
        let mut rest = path.to_vec();
        match rest.first().map(String::as_str) {
            Some("crate") => (at, rest) = (Module::new(), rest.split_off(1)),
            Some("self") => rest = rest.split_off(1),
            Some("super") => {
                while rest.first().is_some_and(|r| r == "super") {
                    at.pop();
                    rest = rest.split_off(1);
                }
            }
            Some(name) if self.files.contains_key(&child(&at, name)) => {}
            _ => return (at, Vec::new()),
        }
        while let Some(name) = rest.first() {
            let below = child(&at, name);
            if self.files.contains_key(&below) {
                at = below;
            } else if let Some(other) = passed_on.get(&(at.clone(), name.clone())) {
                return (other.clone(), rest);
            } else {
                break;
            }
            rest = rest.split_off(1);
        }
        (at, rest)
    }

    /// Files that each file depends on, `lib.rs` aside.
    fn needs(&self) -> BTreeMap<&Module, BTreeSet<&Module>> {
        let mut all = BTreeMap::new();
        for (module, text) in &self.text {
            let passes_on = ["lib.rs", "mod.rs"].iter().any(|f| self.files[module].ends_with(f));
            let uses = imports(text);
            let imported = uses.iter().filter(|u| !(u.public && passes_on)).flat_map(|u| u.paths.clone());
            let named = paths(&without_imports(text));
            let found = imported.chain(named).map(|path| self.walk(module, &path, &self.passed_on).0);
            let known = found.filter_map(|to| self.files.get_key_value(&to).map(|(m, _)| m));
            all.insert(module, known.filter(|to| *to != module && !to.is_empty()).collect());
        }
        all
    }

    /// Files that need each other, in groups.
    fn circles(&self) -> Vec<Vec<&str>> {
        let needs = self.needs();
        let reach: BTreeMap<&Module, BTreeSet<&Module>> = needs
            .keys()
            .map(|&from| {
                let mut all = BTreeSet::new();
                let mut next: Vec<&Module> = needs[from].iter().copied().collect();
                while let Some(m) = next.pop() {
                    if all.insert(m) {
                        next.extend(needs[m].iter().copied());
                    }
                }
                (from, all)
            })
            .collect();
        let groups: BTreeSet<Vec<&str>> = reach
            .iter()
            .filter(|(m, all)| all.contains(*m))
            .map(|(m, all)| {
                let back = |o: &&&Module| reach[**o].contains(*m);
                all.iter().filter(back).map(|o| self.files[*o].as_str()).collect()
            })
            .collect();
        groups.into_iter().collect()
    }
}

fn child(of: &Module, name: &str) -> Module {
    of.iter().cloned().chain([name.to_owned()]).collect()
}

fn collect(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

/// Rust without comments and without the contents of strings.
fn code_only(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(c) = rest.chars().next() {
        let skip = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(raw) = rest.strip_prefix("r#\"") {
            raw.find("\"#").map_or(rest.len(), |n| n + 5)
        } else if c == '"' {
            end_of_string(rest)
        } else if rest.starts_with("'\"'") {
            3
        } else if rest.starts_with("'\\\"'") || rest.starts_with("'\\\\'") {
            4
        } else {
            out.push(c);
            c.len_utf8()
        };
        rest = &rest[skip..];
    }
    out
}

/// The length of the string that a text begins with, quotes included.
fn end_of_string(text: &str) -> usize {
    let mut escaped = false;
    for (i, c) in text.char_indices().skip(1) {
        match c {
            '"' if !escaped => return i + 1,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

/// A `use` item.
struct Import {
    public: bool,
    paths: Vec<Vec<String>>,
}

/// A line that is a `use` item: whether it is public, and where its tree begins.
fn import_at(line: &str) -> Option<(bool, usize)> {
    let trimmed = line.trim_start();
    let lead = line.len() - trimmed.len();
    let after = match trimmed.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')')?.1.trim_start(),
        Some(rest) => rest.trim_start(),
        None => trimmed,
    };
    let tree = after.strip_prefix("use ")?;
    Some((trimmed.starts_with("pub"), lead + trimmed.len() - tree.len()))
}

/// The positions of all `use` items: start of the line, start of the tree, semicolon, and whether it is public.
fn import_spans(text: &str) -> Vec<(usize, usize, usize, bool)> {
    let mut at = 0;
    let mut out = Vec::new();
    for line in text.split_inclusive('\n') {
        if let Some((public, tree)) = import_at(line)
            && let Some(end) = text[at + tree..].find(';')
        {
            out.push((at, at + tree, at + tree + end, public));
        }
        at += line.len();
    }
    out
}

fn imports(text: &str) -> Vec<Import> {
    let spans = import_spans(text).into_iter();
    spans.map(|(_, tree, end, public)| Import { public, paths: expand(&text[tree..end]) }).collect()
}

fn without_imports(text: &str) -> String {
    let (mut out, mut from) = (String::new(), 0);
    for (start, _, end, _) in import_spans(text) {
        out.push_str(&text[from..start]);
        from = end;
    }
    out + &text[from..]
}

/// The paths of a `use` tree.
fn expand(tree: &str) -> Vec<Vec<String>> {
    let tree = tree.trim();
    let parts = |path: &str| -> Vec<String> {
        let path = path.split(" as ").next().unwrap_or_default();
        path.split("::").map(|p| p.trim().to_owned()).filter(|p| !p.is_empty()).collect()
    };
    let Some((lead, rest)) = tree.split_once('{') else { return vec![parts(tree)] };
    let inner = &rest[..rest.rfind('}').unwrap_or(rest.len())];
    let (mut depth, mut from, mut out) = (0usize, 0, Vec::new());
    let mut add = |item: &str| {
        let below = expand(item).into_iter().filter(|p| !p.is_empty());
        out.extend(below.map(|p| parts(lead).into_iter().chain(p).collect::<Vec<_>>()));
    };
    for (i, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                add(&inner[from..i]);
                from = i + 1;
            }
            _ => {}
        }
    }
    add(&inner[from..]);
    out
}

/// Paths that begin with `crate` or `super`.
fn paths(text: &str) -> Vec<Vec<String>> {
    let name = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = text.split(|c| !name(c)).filter(|w| w.starts_with("crate::") || w.starts_with("super::"));
    words.map(|w| w.split("::").filter(|p| !p.is_empty()).map(str::to_owned).collect()).collect()
}

/// The crates of the workspace: folders with sources.
fn crates() -> Vec<(String, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let below = |folder: &str| -> Vec<String> {
        let entries = fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
        entries.map(|e| format!("{folder}/{}", e.file_name().to_string_lossy())).collect()
    };
    let all = FOLDERS.iter().flat_map(|f| below(f).into_iter().chain([(*f).to_owned()]));
    let found = all.map(|name| (name.clone(), root.join(name).join("src"))).filter(|(_, src)| src.is_dir());
    found.collect::<BTreeMap<_, _>>().into_iter().collect()
}

#[test]
fn few_files_need_each_other() {
    let crates = crates();
    assert!(crates.len() > 15, "the workspace has more crates than {crates:?}");
    let (mut all, mut large) = (Vec::new(), Vec::new());
    for (name, src) in &crates {
        let read = Crate::read(src);
        for circle in read.circles() {
            let line = format!("{name}: {}", circle.join(" "));
            if circle.len() > MOST_FILES {
                large.push(line.clone());
            }
            all.push(line);
        }
    }
    assert!(large.is_empty(), "circles of more files than allowed ({MOST_FILES}):\n{}", large.join("\n"));
    assert!(
        all.len() <= MOST_CIRCLES,
        "{} circles of files, where {MOST_CIRCLES} are allowed; move what both need into a file below both:\n{}",
        all.len(),
        all.join("\n")
    );
}

/// A crate in memory: module name (`a::b`, empty for `lib.rs`) and code.
fn made(files: &[(&str, &str)]) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, code) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("it can be made");
        fs::write(path, code).expect("it can be written");
    }
    let read = Crate::read(folder.path());
    read.circles().into_iter().map(|c| c.join(" ")).collect()
}

#[test]
fn circles_are_found_through_imports_paths_and_names_passed_on() {
    let lib = ("lib.rs", "mod a;\nmod b;\npub use a::{A, C};\npub use b::B;\n");
    let other = ("b.rs", "pub struct B(crate::a::A);\n");
    assert_eq!(made(&[lib, ("a.rs", "use crate::b::{self, B};\n"), other]), ["a.rs b.rs"]);
    assert_eq!(made(&[lib, ("a.rs", "use crate::{\n    x::Y,\n    B,\n};\n"), other]), ["a.rs b.rs"]);
    assert_eq!(made(&[lib, ("a.rs", "fn f() { super::b::g() }\n"), other]), ["a.rs b.rs"]);
    let parent = ("a.rs", "mod c;\nuse c::D;\n");
    assert_eq!(made(&[lib, parent, ("a/c.rs", "use super::A;\n"), other]), ["a.rs a/c.rs"]);
}

#[test]
fn comments_strings_tests_and_one_way_imports_are_no_circles() {
    let lib = ("lib.rs", "mod a;\nmod b;\npub use a::A;\npub use b::B;\n");
    let one = ("b.rs", "pub struct B(crate::a::A);\n");
    assert_eq!(made(&[lib, ("a.rs", "/// See [`crate::b::B`].\nstruct A;\n"), one]), [""; 0]);
    assert_eq!(made(&[lib, ("a.rs", "fn f() -> &'static str { \"crate::b::B\" }\n"), one]), [""; 0]);
    let tests = "struct A;\n#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n";
    assert_eq!(made(&[lib, ("a.rs", tests), one]), [""; 0]);
}
