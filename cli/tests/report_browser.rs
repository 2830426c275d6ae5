//! Pages of `kiln report` in a browser: what a reader sees, sorts and filters. `KILN_REPORT_MODEL=FILE` takes another model, and
//! measures it; `KILN_REPORT_SHOTS=FOLDER` keeps pictures of the pages.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use common::{Folder, data, ok};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A browser that runs without a screen; none where it is not there.
fn browser() -> Option<&'static str> {
    let works = |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    let found = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|n| works(n));
    if found.is_none() {
        assert!(
            std::env::var_os("KILN_REQUIRE_CHROMIUM").is_none(),
            "Chromium is missing: run scripts/setup.sh"
        );
        eprintln!("skipped: Chromium is not installed");
    }
    found
}

fn run(browser: &str, profile: &Path, page: &Path, more: &[String]) -> String {
    let done = Command::new(browser)
        // Nothing but the page itself can be loaded.
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--window-size=1400,2600",
        ])
        .args([
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--virtual-time-budget=10000",
            "--disable-dev-shm-usage",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(more)
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// Opens the page of a model, and returns what the probe found.
fn opened(browser: &str, model: &Path, args: &[&str]) -> Value {
    let f = Folder::new();
    let path = f.name("report.html");
    ok(&[&["report", &model.display().to_string(), "--backend", "cpu", "--no-timing"], args, &["-o", &path]]
        .concat());
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.len() < 4 << 20, "the page has {} bytes", text.len());
    if let Some(folder) = std::env::var_os("KILN_REPORT_SHOTS") {
        let name = format!("{}.png", model.file_stem().unwrap().to_string_lossy());
        let shot = format!("--screenshot={}", PathBuf::from(folder).join(name).display());
        run(browser, &f.path("profile"), Path::new(&path), &[shot]);
    }
    // Errors are noted from the start, and the probe comes behind the page's own script.
    let watch = "<head><script>window.probeErrors = []; window.onerror = function (m) { window.probeErrors.push(String(m)); };</script>";
    let probe = format!("<script>{}</script></body>", include_str!("report_probe.js"));
    let probed = text.replacen("<head>", watch, 1).replacen("</body>", &probe, 1);
    assert!(probed.len() > text.len() + probe.len());
    std::fs::write(&path, probed).unwrap();
    let dom = run(browser, &f.path("profile"), Path::new(&path), &["--dump-dom".into()]);
    let start = dom.find("<pre id=\"probe\">").unwrap_or_else(|| panic!("no probe in {dom}")) + 16;
    let json =
        dom[start..start + dom[start..].find("</pre>").unwrap()].replace("&amp;", "&").replace("&gt;", ">");
    serde_json::from_str(&json.replace("&lt;", "<")).unwrap()
}

/// Checks that every page with so many layers passes.
fn check(found: &Value, layers: std::ops::Range<u64>) {
    assert_eq!(found["errors"], serde_json::json!([]), "{found}");
    assert_eq!(found["resources"], serde_json::json!([]), "the page loads something: {found}");
    for (name, table) in found["tables"].as_object().unwrap() {
        assert_eq!(table["wrong"], 0, "rows of table {name} have other cells than heads: {found}");
    }
    let rows = found["tables"]["layers"]["rows"].as_u64().unwrap();
    assert!(layers.contains(&rows), "{rows} layers: {found}");
    let graphs = found["graphs"].as_array().unwrap();
    assert!(graphs.iter().any(|g| g["boxes"].as_u64() == Some(rows)), "a box for each layer: {found}");
    for g in graphs {
        for wrong in ["outside", "covered", "flat"] {
            assert_eq!(g[wrong], 0, "boxes that are {wrong}: {found}");
        }
        assert!(g["width"].as_f64() > Some(100.0), "{found}");
    }
    assert!(graphs.iter().any(|g| g["lives"].as_u64() > Some(3)), "memory over time: {found}");
    assert_eq!(found["sorted"], true, "{found}");
    let filtered = found["filtered"].as_u64().unwrap();
    assert!(filtered >= 1 && filtered < rows, "{found}");
    assert_eq!((found["shown"].as_u64(), found["marked"].as_u64()), (Some(rows), Some(1)), "{found}");
    assert_eq!(found["width"], found["window"], "the page is wider than the window: {found}");
}

#[test]
fn the_page_of_resnet_50_is_whole_in_a_browser() {
    let Some(browser) = browser() else { return };
    let model = data("../../.cache/topologies/resnet50.onnx");
    if !model.is_file() {
        return eprintln!("skipped: {} is missing, scripts/setup.sh makes it", model.display());
    }
    let found = opened(browser, &model, &[]);
    check(&found, 50..80);
}

#[test]
fn the_page_of_bert_has_times_and_is_whole_in_a_browser() {
    let Some(browser) = browser() else { return };
    let found = opened(browser, &data("exports/bert.onnx"), &["--measure", "--ceilings", "10,100"]);
    check(&found, 12..40);
    assert!(found["tables"]["by-operators"]["rows"].as_u64() > Some(3), "{found}");
    if let Some(model) = std::env::var_os("KILN_REPORT_MODEL") {
        check(&opened(browser, Path::new(&model), &["--measure"]), 2..5000);
    }
}
