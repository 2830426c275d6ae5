//! The rules of `docs/prose.md` that can be checked by machine, on pages, doc comments and error messages.
//!
//! `KILN_PROSE=1 cargo test -p kiln-tests --test prose -- --nocapture` lists every breach; `KILN_PROSE=trip` those of one rule.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Pages that are written by tests, hold no prose, or quote what they forbid.
const NO_PROSE: &[&str] = &["docs/support.md", "docs/tiles.md", "docs/prose.md", "CHANGELOG.md"];

/// Folders with sources and pages.
const FOLDERS: &[&str] =
    &["docs", "engine", "backends", "cli", "plugins", "python", "tests", "xtask", "benches"];

/// Words of a sentence at most.
const LONGEST: usize = 25;

/// The rule about the length of sentences, as `docs/prose.md` names it.
const LENGTH: &str = "a sentence of more than 25 words";

/// A piece of prose and where it begins.
struct Prose {
    place: String,
    text: String,
    /// Whether it is a doc comment, whose first words have rules of their own.
    doc: bool,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn files(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() && name != "target" && name != "data" && !name.to_string_lossy().starts_with('.') {
            files(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs" || e == "md") {
            out.push(path);
        }
    }
}

/// Text without what stands in backticks, which is code.
fn without_code(line: &str) -> String {
    let mut out = String::new();
    for (i, part) in line.split('`').enumerate() {
        out.push_str(if i % 2 == 0 { part } else { "X" });
    }
    out
}

/// Paragraphs, list items and table cells of a page.
fn of_page(name: &str, text: &str) -> Vec<Prose> {
    let mut all: Vec<Prose> = Vec::new();
    let (mut fenced, mut open) = (false, false);
    for (i, line) in text.lines().enumerate() {
        let place = || format!("{name}:{}", i + 1);
        let trimmed = line.trim();
        if trimmed.starts_with("```") {
            fenced = !fenced;
        }
        let code = fenced || trimmed.starts_with("```") || line.starts_with("    ") && !open;
        if code || trimmed.is_empty() || trimmed.starts_with('#') || trimmed.starts_with("|--") {
            open = false;
        } else if trimmed.starts_with('|') {
            let cells = trimmed.split('|').filter(|c| !c.trim().is_empty());
            all.extend(cells.map(|c| Prose { place: place(), text: c.trim().to_owned(), doc: false }));
            open = false;
        } else {
            let item = trimmed.starts_with("* ") || trimmed.starts_with("- ");
            match all.last_mut().filter(|_| open && !item) {
                Some(last) => last.text = format!("{} {trimmed}", last.text),
                None => all.push(Prose { place: place(), text: trimmed.to_owned(), doc: false }),
            }
            open = true;
        }
    }
    all
}

/// Doc comments and error messages of a source file.
fn of_source(name: &str, text: &str) -> Vec<Prose> {
    let mut all: Vec<Prose> = Vec::new();
    let (mut fenced, mut open) = (false, false);
    for (i, line) in text.lines().enumerate() {
        let place = || format!("{name}:{}", i + 1);
        let trimmed = line.trim();
        let comment = trimmed.strip_prefix("///").or_else(|| trimmed.strip_prefix("//!"));
        let Some(comment) = comment.map(str::trim) else {
            if let Some(message) = trimmed.strip_prefix("#[error(\"") {
                let text = message.split("\")]").next().unwrap_or_default().to_owned();
                all.push(Prose { place: place(), text, doc: false });
            }
            (open, fenced) = (false, false);
            continue;
        };
        let first = !open;
        if comment.starts_with("```") {
            fenced = !fenced;
        } else if fenced || comment.is_empty() || comment.starts_with('#') || comment.starts_with('|') {
        } else if first || comment.starts_with("* ") || comment.starts_with("- ") || after_blank(text, i) {
            all.push(Prose { place: place(), text: comment.to_owned(), doc: first });
        } else if let Some(last) = all.last_mut() {
            last.text = format!("{} {comment}", last.text);
        }
        open = true;
    }
    all
}

/// Whether the line in front of this one is an empty line of a comment.
fn after_blank(text: &str, line: usize) -> bool {
    let before = line.checked_sub(1).and_then(|n| text.lines().nth(n));
    before.is_some_and(|l| matches!(l.trim(), "///" | "//!"))
}

/// A row of the table of `docs/prose.md`: what is not written, what is written instead, and how often it is still there.
struct Rule {
    name: String,
    instead: String,
    most: usize,
}

fn rules() -> Vec<Rule> {
    let page = fs::read_to_string(root().join("docs/prose.md")).unwrap();
    let rows = page.lines().filter(|l| l.starts_with("| ") && !l.starts_with("| not"));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [name, instead, most] = cells[..] else { panic!("{row}: wants three cells") };
        let most = most.parse().unwrap_or_else(|_| panic!("{row}: the last cell is a number"));
        Rule { name: name.to_owned(), instead: instead.to_owned(), most }
    })
    .collect()
}

/// Whether a phrase stands in a text as whole words.
fn has(text: &str, phrase: &str) -> bool {
    let inside = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '-');
    text.match_indices(phrase).any(|(at, found)| {
        !inside(text[..at].chars().next_back()) && !inside(text[at + found.len()..].chars().next())
    })
}

/// The words of the longest sentence.
fn longest(text: &str) -> usize {
    let ends = |w: &&str| w.ends_with(['.', ';', ':', '?']) || w.ends_with(".)");
    let (mut most, mut words) = (0, 0);
    for word in text.split_whitespace() {
        words += usize::from(word.chars().any(char::is_alphanumeric));
        most = most.max(words);
        if ends(&word) {
            words = 0;
        }
    }
    most
}

/// Whether a piece of prose breaks a rule. `first: …` is about the first words of a doc comment.
fn breaks(rule: &Rule, prose: &Prose) -> bool {
    // "There is no" is good English, "is no" in the place of "is not a" is not.
    let text = without_code(&prose.text).replace("here is no ", "").replace("here are no ", "");
    match rule.name.strip_prefix("first: ") {
        Some(words) => prose.doc && (text.starts_with(&format!("{words} ")) || text == *words),
        None if rule.name == LENGTH => longest(&text) > LONGEST,
        None if rule.name.chars().any(char::is_uppercase) => has(&text, &rule.name),
        None => has(&text.to_lowercase(), &rule.name),
    }
}

fn all_prose() -> Vec<Prose> {
    let root = root();
    let mut paths: Vec<PathBuf> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|f| root.join(f)).into();
    FOLDERS.iter().for_each(|f| files(&root.join(f), &mut paths));
    paths.sort();
    let mut all = Vec::new();
    for path in paths {
        let name = path.strip_prefix(&root).unwrap().display().to_string();
        if NO_PROSE.contains(&name.as_str()) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        all.extend(if name.ends_with(".md") { of_page(&name, &text) } else { of_source(&name, &text) });
    }
    all
}

#[test]
fn prose_keeps_the_rules() {
    let wanted = std::env::var("KILN_PROSE").unwrap_or_default();
    let (rules, prose) = (rules(), all_prose());
    assert!(rules.len() > 10 && prose.len() > 5000, "{} rules, {} pieces of prose", rules.len(), prose.len());
    let mut failed = Vec::new();
    for rule in &rules {
        let found: Vec<&Prose> = prose.iter().filter(|p| breaks(rule, p)).collect();
        if wanted == "1" || wanted == rule.name {
            println!("{}: {} of {}", rule.name, found.len(), rule.most);
            found.iter().for_each(|p| println!("  {}: {}", p.place, p.text));
        }
        if found.len() > rule.most {
            let places: Vec<String> = found.iter().map(|p| format!("{}: {}", p.place, p.text)).collect();
            failed.push(format!(
                "\"{}\" (write: {}) stands {} times, {} are allowed:\n  {}",
                rule.name,
                rule.instead,
                found.len(),
                rule.most,
                places.join("\n  ")
            ));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn rules_find_what_they_forbid_and_nothing_else() {
    let rule = |name: &str| Rule { name: name.into(), instead: String::new(), most: 0 };
    let doc = |text: &str| of_source("a.rs", &format!("    /// {text}\n    fn f() {{}}\n")).remove(0);
    assert!(breaks(&rule("trip"), &doc("One trip of a loop.")));
    assert!(!breaks(&rule("trip"), &doc("One `trip` of a round-trip, strip by strip.")));
    assert!(
        breaks(&rule("first: What"), &doc("What it is."))
            && !breaks(&rule("first: What"), &doc("Whatever it is."))
    );
    assert!(breaks(&rule("our"), &doc("Our own.")) && !breaks(&rule("our"), &doc("Four hours.")));
    assert!(
        breaks(&rule("is no"), &doc("It is no view.")) && !breaks(&rule("is no"), &doc("There is no view."))
    );
    let page = of_page("a.md", "# Not read: trip\n\nOne\ntrip.\n\n    trip\n\n| a trip | b |\n|---|---|\n");
    let found: BTreeMap<&str, bool> =
        page.iter().map(|p| (p.place.as_str(), breaks(&rule("trip"), p))).collect();
    assert_eq!(found, BTreeMap::from([("a.md:3", true), ("a.md:8", false)]));
    let error = of_source("a.rs", "    #[error(\"a trip of {n}\")]\n");
    assert!(breaks(&rule("trip"), &error[0]));
    let long = "word ".repeat(25) + "ends. Short.";
    assert!(
        breaks(&rule(LENGTH), &doc(&long)) && !breaks(&rule(LENGTH), &doc(&long.replacen("word ", "", 1)))
    );
}
