//! Pictures of a report: the graph of its layers, and its memory over time.

use super::data::{BODY, JOINT, Report, Row};
use super::escape::escape;
use super::layout::{Layout, layout};
use crate::print::{bytes, time};
use std::collections::HashMap;
use std::fmt::Write;

/// Boxes of one picture at most: more layers are shown by groups.
const MAX_BOXES: usize = 300;

/// Letters of a box at most.
const LETTERS: usize = 34;

/// Width of a letter, and height of a box.
const LETTER: f64 = 6.7;
const BOX: f64 = 40.0;

/// Rectangles of the memory's picture at most: the largest ones.
const MAX_RECTANGLES: usize = 4000;

/// A box: layers that it stands for.
struct Node<'a> {
    rows: Vec<&'a Row>,
    title: String,
}

/// The picture of the layers of one scope: the engine itself, or one body of control flow.
pub struct Picture {
    /// Name of the step of control flow; empty of the engine itself.
    pub scope: String,
    pub layers: usize,
    pub svg: String,
    /// Whether boxes stand for several layers.
    pub grouped: bool,
}

/// The scope that a layer is in.
fn scope(name: &str) -> &str {
    name.rsplit_once(BODY).map_or("", |(scope, _)| scope)
}

/// A picture of each scope, in the order of its first layer.
pub fn graphs(report: &Report) -> Vec<Picture> {
    let mut scopes: Vec<(&str, Vec<&Row>)> = Vec::new();
    for r in &report.rows {
        let of = scope(&r.name);
        match scopes.iter_mut().find(|(s, _)| *s == of) {
            Some((_, rows)) => rows.push(r),
            None => scopes.push((of, vec![r])),
        }
    }
    let total = report.total();
    scopes.into_iter().map(|(scope, rows)| picture(scope, rows, total)).collect()
}

fn picture(scope: &str, rows: Vec<&Row>, total: f64) -> Picture {
    let layers = rows.len();
    let nodes = nodes(rows);
    let edges = edges(&nodes);
    let width = |n: &Node<'_>| n.title.chars().count().clamp(8, LETTERS) as f64 * LETTER + 16.0;
    let widths: Vec<f64> = nodes.iter().map(width).collect();
    let place = layout(&widths, &edges);
    let grouped = nodes.iter().any(|n| n.rows.len() > 1);
    Picture { scope: scope.to_owned(), layers, svg: draw(&nodes, &widths, &place, total), grouped }
}

/// A box for each layer, or for neighbours in execution order that share the beginning of their names.
fn nodes(rows: Vec<&Row>) -> Vec<Node<'_>> {
    if rows.len() <= MAX_BOXES {
        return rows.into_iter().map(|r| Node { title: tail(&short(r)), rows: vec![r] }).collect();
    }
    let by = |depth: usize| {
        let mut all: Vec<Node<'_>> = Vec::new();
        for &r in &rows {
            let title = prefix(r, depth);
            match all.last_mut().filter(|n| n.title == title) {
                Some(n) => n.rows.push(r),
                None => all.push(Node { title, rows: vec![r] }),
            }
        }
        all
    };
    let fits = (1..=6).rev().map(by).find(|all| all.len() <= MAX_BOXES);
    let fits = fits.filter(|all| all.len() > 1);
    fits.unwrap_or_else(|| {
        let size = rows.len().div_ceil(MAX_BOXES);
        let node = |c: &[&'_ Row]| c.first().map(|r| short(r)).unwrap_or_default();
        rows.chunks(size).map(|c| Node { title: format!("{} …", node(c)), rows: c.to_vec() }).collect()
    })
}

/// The end of a long name, with the first of several layers: scopes at the beginning are what names share.
fn tail(name: &str) -> String {
    let (first, more) = name.split_once(JOINT).map_or((name, ""), |(first, _)| (first, JOINT.trim_end()));
    let (count, room) = (first.chars().count(), LETTERS - 1 - more.len());
    if count <= room {
        return clip(name);
    }
    let kept: String = first.chars().skip(count - room).collect();
    format!("…{kept}{more}")
}

/// The name without the scope.
fn short(r: &Row) -> String {
    r.name.rsplit_once(BODY).map_or(r.name.clone(), |(_, own)| own.to_owned())
}

/// The first parts of a layer's name.
fn prefix(r: &Row, depth: usize) -> String {
    let name = r.origins.first().map_or(r.name.as_str(), String::as_str);
    let parts: Vec<&str> = name.split(['/', '.']).filter(|p| !p.is_empty()).take(depth).collect();
    parts.join("/")
}

/// Edges between boxes, by the tensors that layers make and read.
fn edges(nodes: &[Node<'_>]) -> Vec<(usize, usize)> {
    let mut makes: HashMap<&str, usize> = HashMap::new();
    let mut all = Vec::new();
    for (i, n) in nodes.iter().enumerate() {
        for r in &n.rows {
            let from = r.inputs.iter().filter_map(|t| makes.get(t.name.as_str()));
            all.extend(from.filter(|f| **f != i).map(|f| (*f, i)));
            makes.extend(r.outputs.iter().map(|t| (t.name.as_str(), i)));
        }
    }
    all
}

fn clip(text: &str) -> String {
    match text.chars().count() > LETTERS {
        true => text.chars().take(LETTERS - 1).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// Kind of a layer, for its colour.
fn kind(n: &Node<'_>) -> &'static str {
    match n.rows.as_slice() {
        [r] if r.tactic == "view" => "view",
        [r] if r.moves() => "move",
        [r] if ["loop", "if", "scan", "while"].iter().any(|op| r.ops.contains(op)) => "flow",
        [r] if ["conv", "matmul", "attention", "gemm"].iter().any(|op| r.ops.contains(op)) => "product",
        [_] => "other",
        _ => "group",
    }
}

fn draw(nodes: &[Node<'_>], widths: &[f64], at: &Layout, total: f64) -> String {
    let mut svg = format!(
        "<svg class=\"graph\" width=\"{:.0}\" height=\"{:.0}\" viewBox=\"0 0 {:.0} {:.0}\" role=\"img\">",
        at.width, at.height, at.width, at.height
    );
    for way in &at.ways {
        let mut d = String::new();
        for (i, p) in way.windows(2).enumerate() {
            let [(x0, y0), (x1, y1)] = [p[0], p[1]];
            let y0 = if i == 0 { y0 + BOX / 2.0 } else { y0 };
            let y1 = if i + 2 == way.len() { y1 - BOX / 2.0 } else { y1 };
            let mid = (y0 + y1) / 2.0;
            let start = if i == 0 { format!("M{x0:.1} {y0:.1}") } else { format!("L{x0:.1} {y0:.1}") };
            // Writing to a string does not fail.
            let _ = write!(d, "{start}C{x0:.1} {mid:.1} {x1:.1} {mid:.1} {x1:.1} {y1:.1}");
        }
        let _ = write!(svg, "<path d=\"{d}\"/>");
    }
    for ((n, &width), &(x, y)) in nodes.iter().zip(widths).zip(&at.boxes) {
        let ns: f64 = n.rows.iter().filter_map(|r| r.ns).sum();
        let share = if total > 0.0 { 100.0 * ns / total } else { 0.0 };
        let known = n.rows.iter().any(|r| r.ns.is_some());
        let detail = match n.rows.as_slice() {
            [r] if known => format!("{} · {}", time(ns), r.ops),
            [r] => r.ops.clone(),
            rows => format!(
                "{} layers{}",
                rows.len(),
                if known { format!(" · {}", time(ns)) } else { String::new() }
            ),
        };
        let hover: Vec<String> =
            n.rows.iter().take(20).map(|r| format!("{}: {} by {}", r.name, r.ops, r.tactic)).collect();
        let index = n.rows.first().map_or(0, |r| r.index);
        let (left, top) = (x - width / 2.0, y - BOX / 2.0);
        let _ = write!(
            svg,
            "<g class=\"box {}\" data-layer=\"{index}\"><title>{}</title><rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" \
             height=\"{BOX}\" rx=\"4\"/><rect class=\"heat\" x=\"{left:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"3\"/><text \
             x=\"{x:.1}\" y=\"{:.1}\">{}</text><text class=\"small\" x=\"{x:.1}\" y=\"{:.1}\">{}</text></g>",
            kind(n),
            escape(&hover.join("\n")),
            top + BOX - 3.0,
            width * share / 100.0,
            y - 4.0,
            escape(&clip(&n.title)),
            y + 11.0,
            escape(&clip(&detail)),
        );
    }
    svg.push_str("</svg>");
    svg
}

/// Memory of a context: steps from left to right, addresses from bottom to top, a rectangle for each value.
pub fn memory(report: &Report) -> Option<String> {
    if report.lifetimes.is_empty() || report.arena == 0 {
        return None;
    }
    let (width, height, left, bottom) = (1000.0, 320.0, 70.0, 24.0);
    let steps = report.steps.max(1) as f64;
    let x = |step: usize| left + (width - left) * step as f64 / steps;
    let y = |offset: u64| height - height * offset as f64 / report.arena as f64;
    let mut svg = format!(
        "<svg class=\"memory\" viewBox=\"0 0 {width} {}\" role=\"img\"><rect class=\"ground\" x=\"{left}\" y=\"0\" width=\"{}\" \
         height=\"{height}\"/>",
        height + bottom,
        width - left
    );
    let mut shown: Vec<_> = report.lifetimes.iter().collect();
    shown.sort_by_key(|l| std::cmp::Reverse(l.size));
    shown.truncate(MAX_RECTANGLES);
    shown.sort_by_key(|l| (l.first, l.offset));
    for (i, l) in shown.iter().enumerate() {
        let (x0, x1) = (x(l.first), x(l.last + 1));
        let (y0, y1) = (y(l.offset + l.size), y(l.offset));
        let _ = write!(
            svg,
            "<rect class=\"life c{}\" x=\"{x0:.2}\" y=\"{y0:.2}\" width=\"{:.2}\" height=\"{:.2}\"><title>{}: {} at {}, steps {} to \
             {}</title></rect>",
            i % 8,
            (x1 - x0).max(0.5),
            (y1 - y0).max(0.5),
            escape(&l.name),
            bytes(l.size),
            l.offset,
            l.first,
            l.last,
        );
        if x1 - x0 > 60.0 && y1 - y0 > 11.0 {
            let room = ((x1 - x0) / LETTER) as usize;
            let (count, room) = (l.name.chars().count(), room.saturating_sub(2));
            let kept: String = l.name.chars().skip(count.saturating_sub(room)).collect();
            let text = if count > room { format!("…{kept}") } else { kept };
            let _ = write!(
                svg,
                "<text class=\"small\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                (x0 + x1) / 2.0,
                (y0 + y1) / 2.0 + 3.0,
                escape(&text)
            );
        }
    }
    for part in 0..=4 {
        let at = report.arena / 4 * part;
        let _ = write!(
            svg,
            "<text class=\"axis\" x=\"{}\" y=\"{:.1}\">{}</text>",
            left - 6.0,
            y(at).max(10.0),
            bytes(at)
        );
    }
    let _ = write!(
        svg,
        "<text class=\"small\" x=\"{:.0}\" y=\"{:.0}\">steps 0 to {}</text></svg>",
        (width + left) / 2.0,
        height + 18.0,
        report.steps.saturating_sub(1)
    );
    Some(svg)
}
