//! The page of one engine: one file, without anything to load.

use super::data::{Report, Row, Tensor};
use super::escape::{escape, json};
use super::svg;
use crate::print::{bytes, time};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A page with these sections, each with its head, and data for programs.
pub fn page(title: &str, sections: &[(&str, String)], data: &serde_json::Value) -> String {
    let title = escape(title);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n<style>\n{}</style>\n</head>\n\
         <body>\n<h1>{title}</h1>\n<nav>",
        include_str!("page.css")
    );
    let id = |head: &str| head.to_lowercase().replace(' ', "-");
    for (head, _) in sections {
        let _ = write!(out, "<a href=\"#{}\">{head}</a>", id(head));
    }
    out.push_str("</nav>\n");
    for (head, text) in sections {
        let _ = write!(out, "<section id=\"{}\">\n<h2>{head}</h2>\n{text}\n</section>\n", id(head));
    }
    let _ = write!(
        out,
        "<script type=\"application/json\" id=\"data\">{}</script>\n<script>\n{}</script>\n</body>\n</html>\n",
        json(data),
        include_str!("page.js")
    );
    out
}

/// A cell of a table.
pub enum Cell {
    /// Text.
    Text(String),
    /// A number with its text, by which the table is sorted.
    Number(f64, String),
    /// A number that is not known.
    None,
    /// Marks of the page's language, made safe already.
    Marks(String),
}

/// A table; the row's number is that of a layer.
pub fn table(id: &str, head: &[&str], rows: Vec<(Option<usize>, Vec<Cell>)>) -> String {
    if rows.is_empty() {
        return "<p class=\"quiet\">None.</p>".into();
    }
    let numbers: Vec<bool> = (0..head.len())
        .map(|i| rows.iter().any(|(_, r)| matches!(r.get(i), Some(Cell::Number(..)))))
        .collect();
    let mut out = format!("<div class=\"scroll\"><table class=\"sortable\" id=\"{id}\"><thead><tr>");
    for (h, number) in head.iter().zip(&numbers) {
        let _ = write!(out, "<th{}>{h}</th>", if *number { " class=\"n\"" } else { "" });
    }
    out.push_str("</tr></thead><tbody>\n");
    for (layer, cells) in rows {
        let of = layer.map_or_else(String::new, |i| format!(" data-layer=\"{i}\""));
        let _ = write!(out, "<tr{of}>");
        for c in cells {
            let _ = match c {
                Cell::Text(t) => write!(out, "<td>{}</td>", escape(&t)),
                Cell::Number(v, t) => write!(out, "<td class=\"n\" data-v=\"{v}\">{}</td>", escape(&t)),
                Cell::None => write!(out, "<td class=\"n\"></td>"),
                Cell::Marks(m) => write!(out, "<td>{m}</td>"),
            };
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></div>");
    out
}

/// A time as a cell.
pub fn time_cell(ns: Option<f64>) -> Cell {
    ns.map_or(Cell::None, |ns| Cell::Number(ns, time(ns)))
}

fn text(s: impl Into<String>) -> Cell {
    Cell::Text(s.into())
}

/// Names and values.
pub fn facts(all: &[(String, String)]) -> String {
    let row = |(k, v): &(String, String)| format!("<tr><td>{}</td><td>{}</td></tr>", escape(k), escape(v));
    format!("<table class=\"facts\"><tbody>{}</tbody></table>", all.iter().map(row).collect::<String>())
}

/// The page of one engine.
pub fn report(r: &Report) -> String {
    let memory = svg::memory(r).map_or_else(
        || "<p class=\"quiet\">The plan holds no memory: the backend allocates during runs.</p>".to_owned(),
        |svg| {
            let all = format!("<p>{} for {} values over {} steps; each rectangle is a value from the step that writes it to \
                 the last that reads it.</p>", bytes(r.arena), r.lifetimes.len(), r.steps);
            all + &svg
        },
    );
    let sections = [
        ("Summary", facts(&r.facts) + &profiles(r)),
        ("Layers", layers(r)),
        ("Graph", graphs(r)),
        ("Times by kind", kinds(r)),
        ("Memory over time", memory),
        ("Reformats", reformats(r)),
        ("Host", host(r)),
        ("Rewrites", rewrites(r)),
    ];
    page(&format!("Engine {}", r.name), &sections, &r.json())
}

fn profiles(r: &Report) -> String {
    let mut rows = Vec::new();
    for (i, p) in r.profiles.iter().enumerate() {
        for (kind, all) in [("shape", &p.shapes), ("values", &p.values)] {
            rows.extend(all.iter().map(|(name, range)| {
                let list = |v: &[i64]| text(crate::print::dims(v));
                let cells = vec![
                    Cell::Number(i as f64, i.to_string()),
                    text(name),
                    text(kind),
                    list(&range.min),
                    list(&range.opt),
                    list(&range.max),
                ];
                (None, cells)
            }));
        }
    }
    match rows.is_empty() {
        true => "<p class=\"quiet\">Shapes of inputs are fixed.</p>".into(),
        false => table("profiles", &["profile", "input", "of", "min", "opt", "max"], rows),
    }
}

fn tensors(all: &[Tensor]) -> String {
    all.iter()
        .map(|t| format!("{} {} {} [{}]", t.name, t.dtype, t.format, t.shape))
        .collect::<Vec<_>>()
        .join("; ")
}

/// The timed tactics of a layer, behind a word that opens them.
fn alternatives(r: &Row) -> Cell {
    if r.alternatives.is_empty() {
        return text("");
    }
    let best = r.alternatives.first().map_or(1.0, |a| a.ns.max(f64::MIN_POSITIVE));
    let one = |a: &super::data::Alternative| {
        format!("<div>{} {} ({:.2}×)</div>", escape(&a.tactic), time(a.ns), a.ns / best)
    };
    let list: String = r.alternatives.iter().map(one).collect();
    Cell::Marks(format!("<details><summary>{} timed</summary>{list}</details>", r.alternatives.len()))
}

fn layers(r: &Report) -> String {
    let total = r.total().max(f64::MIN_POSITIVE);
    let row = |l: &Row| {
        let share = l.ns.map(|ns| 100.0 * ns / total);
        let bar = share.map_or_else(String::new, |s| {
            format!("<span class=\"bar\" style=\"width:{:.1}px\"></span>", s.min(100.0))
        });
        let mut cells = vec![
            Cell::Number(l.index as f64, l.index.to_string()),
            text(&l.name),
            text(&l.ops),
            text(&l.tactic),
            time_cell(l.ns),
            share.map_or(Cell::None, |s| Cell::Number(s, format!("{s:.1} %"))),
            Cell::Marks(bar),
            text(tensors(&l.inputs)),
            text(tensors(&l.outputs)),
            if l.weights > 0 { Cell::Number(l.weights as f64, l.weights.to_string()) } else { Cell::None },
            alternatives(l),
            text(&l.note),
        ];
        if r.measured {
            let rate = |n: Option<u64>, digits: usize| match n.zip(l.ns.filter(|ns| *ns > 0.0)) {
                Some((n, ns)) => Cell::Number(n as f64 / ns, format!("{:.digits$}", n as f64 / ns)),
                None => Cell::None,
            };
            cells.extend([rate(l.bytes, 2), rate(l.operations, 2)]);
        }
        if r.roofline.is_some() {
            cells.push(r.share_of_roofline(l).map_or(Cell::None, |s| Cell::Number(s, format!("{s:.0} %"))));
        }
        (Some(l.index), cells)
    };
    let mut head = vec![
        "#",
        "layer",
        "operators",
        "tactic",
        "time",
        "share",
        "",
        "inputs",
        "outputs",
        "weights",
        "alternatives",
        "note",
    ];
    if r.measured {
        head.extend(["GB/s", "GFLOP/s"]);
    }
    if r.roofline.is_some() {
        head.push("of roofline");
    }
    let said = match (r.measured, r.rows.iter().any(|r| r.ns.is_some())) {
        (true, _) => {
            "Times are medians of runs. Layers in bodies of control flow are part of the step around them."
        }
        (false, true) => "Times are those of the build, each layer on its own.",
        (false, false) => {
            "Times are not known: --measure takes them, or --build-report reads those of the build."
        }
    };
    let filter = "<p><input id=\"filter\" type=\"search\" placeholder=\"filter layers\" hidden></p>";
    format!(
        "<p class=\"quiet\">{said}</p>{filter}{}",
        table("layers", &head, r.rows.iter().map(row).collect())
    )
}

fn graphs(r: &Report) -> String {
    if r.rows.iter().all(|l| l.ops.is_empty()) {
        return "<p class=\"quiet\">Not known: engines that are built with --verbosity detailed hold it.</p>"
            .into();
    }
    let mut out = String::new();
    for p in svg::graphs(r) {
        let grouped = if p.grouped {
            "; a box stands for layers that follow each other and share their name's beginning"
        } else {
            ""
        };
        let _ = match p.scope.as_str() {
            "" => write!(
                out,
                "<p class=\"quiet\">{} layers{grouped}.</p><div class=\"scroll\">{}</div>",
                p.layers, p.svg
            ),
            scope => write!(
                out,
                "<details><summary>body of {} ({} layers{grouped})</summary><div class=\"scroll\">{}</div></details>",
                escape(scope),
                p.layers,
                p.svg
            ),
        };
    }
    out
}

fn kinds(r: &Report) -> String {
    let total = r.total().max(f64::MIN_POSITIVE);
    let group = |of: &dyn Fn(&Row) -> String, id: &str, head: &str| {
        let mut all: BTreeMap<String, (usize, f64)> = BTreeMap::new();
        for l in r.rows.iter().filter(|l| !l.inside()) {
            let g = all.entry(of(l)).or_default();
            g.0 += 1;
            g.1 += l.ns.unwrap_or(0.0);
        }
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_by(|a, b| b.1.1.total_cmp(&a.1.1).then(a.0.cmp(&b.0)));
        let row = |(name, (n, ns)): (String, (usize, f64))| {
            let share = 100.0 * ns / total;
            let bar = format!("<span class=\"bar\" style=\"width:{:.1}px\"></span>", 3.0 * share.min(100.0));
            let cells = vec![
                Cell::Text(name),
                Cell::Number(n as f64, n.to_string()),
                time_cell((ns > 0.0).then_some(ns)),
                Cell::Number(share, format!("{share:.1} %")),
                Cell::Marks(bar),
            ];
            (None, cells)
        };
        table(id, &[head, "layers", "time", "share", ""], all.into_iter().map(row).collect())
    };
    let by_ops = group(&|l| l.ops.clone(), "by-operators", "operators");
    let by_type = group(&|l| l.dtype().to_owned(), "by-type", "type of results");
    let by_tactic =
        group(&|l| l.tactic.split('(').next().unwrap_or_default().to_owned(), "by-tactic", "tactic");
    format!("{by_ops}<p></p>{by_type}<p></p>{by_tactic}")
}

fn reformats(r: &Report) -> String {
    let row = |f: super::data::Reformat| {
        (None, vec![text(f.layer), text(f.from), text(f.to), text(f.cause), time_cell(f.ns)])
    };
    let rows = r.reformats().into_iter().map(row).collect();
    table("reformats", &["layer", "from", "to", "cause", "time"], rows)
}

fn host(r: &Report) -> String {
    match &r.host {
        None => "<p class=\"quiet\">Not known: --measure, or a build of the model here, shows it.</p>".into(),
        Some(all) => {
            let row = |h: &kiln::HostLayer| (None, vec![text(&h.name), text(&h.why), text(&h.advice)]);
            table(
                "host-layers",
                &["waits for the host at", "because", "what to do"],
                all.iter().map(row).collect(),
            )
        }
    }
}

fn rewrites(r: &Report) -> String {
    let row = |c: &super::data::Considered| {
        let taken = if c.taken { "taken" } else { "left" };
        let cells = vec![
            text(&c.rewrite),
            text(&c.layer),
            text(taken),
            time_cell(c.without_ns),
            time_cell(c.with_ns),
            text(&c.why),
        ];
        (None, cells)
    };
    let notes: String = r.build.notes.iter().map(|n| format!("<li>{}</li>", escape(n))).collect();
    let rows: Vec<_> = r.build.considered.iter().map(row).collect();
    let known = if rows.is_empty() && notes.is_empty() {
        "<p class=\"quiet\">Not known: --build-report reads what `kiln build --json` printed, or give the model.</p>"
    } else {
        ""
    };
    let head = ["rewrite", "layer", "", "without", "with", "why"];
    format!(
        "{known}{}<ul>{notes}</ul>",
        if known.is_empty() { table("rewrites", &head, rows) } else { String::new() }
    )
}
