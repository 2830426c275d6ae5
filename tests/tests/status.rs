//! The pages of `docs/` that can be checked: `status.md` names tests that exist, `glossary.md` defines each term once, in order.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn page(name: &str) -> String {
    std::fs::read_to_string(root().join("docs").join(name)).unwrap()
}

/// Cells of the rows of all tables, without heads and rules.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let lines = text.lines().filter(|l| l.starts_with('|') && !l.starts_with("|--"));
    lines.map(|l| l.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// Whether a file has a function of this name that is a test: in Rust by its attribute, in Python by its name.
fn has_test(file: &str, text: &str, name: &str) -> bool {
    if file.ends_with(".py") {
        return name.starts_with("test_")
            && text.lines().any(|l| l.trim_start().starts_with(&format!("def {name}(")));
    }
    let declared = format!("fn {name}(");
    text.match_indices(&declared).any(|(at, _)| {
        let above = text[..at].trim_end_matches("pub ").lines().rev();
        above
            .skip_while(|l| l.trim().is_empty())
            .take_while(|l| l.trim_start().starts_with("#["))
            .any(|l| l.trim() == "#[test]")
    })
}

/// The first of the tests of a row that does not exist.
fn missing_test(feature: &str, tests: &str) -> Option<String> {
    tests.split("; ").find_map(|group| {
        let Some((file, names)) = group.split_once(": ") else {
            return Some(format!("\"{feature}\": wants `file`: `test`, `test`; found {group}"));
        };
        let file = file.trim_matches('`');
        let Ok(text) = std::fs::read_to_string(root().join(file)) else {
            return Some(format!("\"{feature}\": there is no file {file}"));
        };
        let missing = names.split(", ").map(|n| n.trim_matches('`')).find(|n| !has_test(file, &text, n))?;
        Some(format!("\"{feature}\": {file} has no test {missing}; name the one that shows the feature"))
    })
}

/// Fault of a row of `docs/chapters`: rule, Kiln's name, backends, tests or "planned".
fn chapter_fault(row: &[&str]) -> Option<String> {
    let [rule, own, backends, tests] = row else { return Some(format!("{row:?}: wants four cells")) };
    let known = |b: &str| ["all", "any", "cpu", "reference", "wgpu", "cuda"].contains(&b);
    match *tests {
        "planned" if own.is_empty() && backends.is_empty() => None,
        "planned" => Some(format!("\"{rule}\" is planned and has a name or backends: is it built?")),
        _ if !backends.split(", ").all(known) => Some(format!("\"{rule}\": no backends are \"{backends}\"")),
        tests => missing_test(rule, tests),
    }
}

/// Fault of a row of `status.md`: feature, status, tests.
fn fault(row: &[&str]) -> Option<String> {
    let [feature, status, tests] = row else { return Some(format!("{row:?}: wants three cells")) };
    match *status {
        "planned" if tests.is_empty() => None,
        "planned" => Some(format!("\"{feature}\" is planned and names tests: is it built?")),
        "built" if tests.is_empty() => Some(format!("\"{feature}\" is built and names no test")),
        "built" => missing_test(feature, tests),
        other => Some(format!("\"{feature}\" is \"{other}\"; a feature is built or planned")),
    }
}

#[test]
fn features_are_built_with_tests_that_exist_or_planned() {
    let text = page("status.md");
    let rows: Vec<_> = rows(&text).into_iter().filter(|r| r[0] != "feature").collect();
    assert!(rows.len() > 30, "{} rows", rows.len());
    let faults: Vec<String> = rows.iter().filter_map(|r| fault(r)).collect();
    assert!(faults.is_empty(), "docs/status.md:\n{}", faults.join("\n"));
}

#[test]
fn chapters_name_tests_that_exist() {
    let mut count = 0;
    for page in std::fs::read_dir(root().join("docs/chapters")).unwrap().map(|f| f.unwrap().path()) {
        let text = std::fs::read_to_string(&page).unwrap();
        let rows: Vec<_> = rows(&text).into_iter().filter(|r| r.len() > 3 && r[3] != "tests").collect();
        let faults: Vec<String> = rows.iter().filter_map(|r| chapter_fault(r)).collect();
        assert!(faults.is_empty(), "{}:\n{}", page.display(), faults.join("\n"));
        count += rows.len();
    }
    assert!(count > 200, "{count} rows");
}

#[test]
fn wrong_rows_of_chapters_are_found() {
    let this = "`tests/tests/status.rs`: `wrong_rows_of_chapters_are_found`";
    assert_eq!(chapter_fault(&["x", "y", "cpu, wgpu", this]), None);
    assert_eq!(chapter_fault(&["x", "", "", "planned"]), None);
    let wrong = |own, backends, tests| chapter_fault(&["x", own, backends, tests]).unwrap();
    assert!(wrong("y", "", "planned").contains("is it built"));
    assert!(wrong("y", "gpu", this).contains("no backends"));
    assert!(wrong("y", "", this).contains("no backends"));
    assert!(wrong("y", "all", "`tests/tests/status.rs`: `gone`").contains("no test gone"));
    assert!(wrong("y", "all", "").contains("wants `file`"));
    assert!(chapter_fault(&["x"]).unwrap().contains("four cells"));
}

#[test]
fn wrong_rows_are_found() {
    let this = "`tests/tests/status.rs`: `wrong_rows_are_found`";
    assert_eq!(fault(&["x", "built", this]), None);
    let wrong = |status, tests| fault(&["x", status, tests]).unwrap();
    assert!(wrong("built", "").contains("names no test"));
    assert!(wrong("planned", this).contains("is it built"));
    assert!(wrong("nearly", "").contains("built or planned"));
    assert!(
        wrong("built", "`tests/tests/status.rs`: `wrong_rows_are_found`, `gone`").contains("no test gone")
    );
    assert!(wrong("built", "`tests/tests/status.rs`: `has_test`").contains("no test has_test"));
    assert!(wrong("built", "`tests/tests/gone.rs`: `gone`").contains("no file"));
    assert!(wrong("built", "`gone`").contains("wants `file`"));
}

#[test]
fn tests_in_python_are_found_by_their_names() {
    let text = "class TestRuns:\n    def test_runs(self):\n        pass\n\ndef helper():\n    pass\n";
    assert!(has_test("a.py", text, "test_runs"));
    assert!(!has_test("a.py", text, "helper") && !has_test("a.py", text, "test_run"));
}

#[test]
fn the_glossary_defines_each_term_once_and_in_order() {
    let text = page("glossary.md");
    let terms: Vec<String> =
        rows(&text).into_iter().filter(|r| r[0] != "term").map(|r| r[0].to_lowercase()).collect();
    assert!(terms.len() >= 60, "{} terms", terms.len());
    for pair in terms.windows(2) {
        assert!(pair[0] < pair[1], "\"{}\" stands in front of \"{}\"", pair[0], pair[1]);
    }
    let long = |r: &Vec<&str>| r[1].split(' ').count() > 25;
    let too_long: Vec<_> = rows(&text).into_iter().filter(long).map(|r| r[0].to_owned()).collect();
    assert!(too_long.is_empty(), "more than 25 words: {too_long:?}");
}
