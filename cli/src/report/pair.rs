//! The page of two engines: their layers side by side, by the layers of the network that they run.

use super::data::{Report, Row};
use super::html::{Cell, facts, page, time_cell};
use crate::print::time;
use std::collections::{HashMap, HashSet};

/// Layers of both engines that run the same layers of the network, whatever each of them fuses.
#[derive(Debug, Default)]
pub struct Group {
    /// Positions of layers in each engine.
    pub layers: [Vec<usize>; 2],
}

/// Groups in the order of the first engine's layers, those of the second alone behind them.
pub fn groups(sides: [&[Row]; 2]) -> Vec<Group> {
    let counts = sides.map(<[Row]>::len);
    let mut parent: Vec<usize> = (0..counts[0] + counts[1]).collect();
    let mut first: HashMap<(&str, &str), usize> = HashMap::new();
    let known = sides.map(|rows| rows.iter().flat_map(|r| r.origins.iter().map(String::as_str)).collect());
    let [of_first, of_second]: [HashSet<&str>; 2] = known;
    let others = [&of_second, &of_first];
    for (side, rows) in sides.iter().enumerate() {
        for (i, r) in rows.iter().enumerate() {
            let own = i + side * counts[0];
            let scope = r.name.rsplit_once(super::data::BODY).map_or("", |(s, _)| s);
            for origin in &r.origins {
                let origin = shared(origin, others[side]);
                let other = *first.entry((scope, origin)).or_insert(own);
                let (a, b) = (root(&mut parent, other), root(&mut parent, own));
                parent[a.max(b)] = a.min(b);
            }
        }
    }
    let mut place: HashMap<usize, usize> = HashMap::new();
    let mut all: Vec<Group> = Vec::new();
    for i in 0..parent.len() {
        let root = root(&mut parent, i);
        let at = *place.entry(root).or_insert_with(|| {
            all.push(Group::default());
            all.len() - 1
        });
        let side = usize::from(i >= counts[0]);
        all[at].layers[side].push(i - side * counts[0]);
    }
    all
}

/// The name under which the other engine has a layer. A pattern names its layers by the one that it replaces, with endings
/// such as `.matmul2`: they are left out where the other engine has the layer itself.
fn shared<'a>(origin: &'a str, other: &HashSet<&str>) -> &'a str {
    let mut name = origin;
    while !other.contains(name) {
        let ending = |end: &str| {
            let letters = end.trim_end_matches(|c: char| c.is_ascii_digit());
            !letters.is_empty() && letters.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        };
        match name.rsplit_once('.') {
            Some((front, end)) if ending(end) => name = front,
            _ => return origin,
        }
    }
    name
}

fn root(parent: &mut [usize], mut i: usize) -> usize {
    while parent[i] != i {
        parent[i] = parent[parent[i]];
        i = parent[i];
    }
    i
}

/// The page.
pub fn report(a: &Report, b: &Report) -> String {
    let sides = [a, b];
    let groups = groups([&a.rows, &b.rows]);
    let row = |g: &Group| {
        let of = |side: usize| g.layers[side].iter().filter_map(move |&i| sides[side].rows.get(i));
        let names = |side: usize| {
            let one = |r: &Row| format!("{} ({}) by {}", r.name, r.ops, r.tactic);
            Cell::Text(of(side).map(one).collect::<Vec<_>>().join("; "))
        };
        let ns = |side: usize| {
            let known: Vec<f64> = of(side).filter_map(|r| r.ns).collect();
            (!known.is_empty()).then(|| known.iter().sum::<f64>())
        };
        let ratio = match (ns(0), ns(1)) {
            (Some(x), Some(y)) if y > 0.0 => Cell::Number(x / y, format!("{:.2}×", x / y)),
            _ => Cell::None,
        };
        let gain = match (ns(0), ns(1)) {
            (Some(x), Some(y)) => {
                Cell::Number(x - y, format!("{}{}", if x < y { "−" } else { "" }, time((x - y).abs())))
            }
            _ => Cell::None,
        };
        let origins = match of(0).next().or_else(|| of(1).next()) {
            Some(r) => r.origins.join(" + "),
            None => String::new(),
        };
        (None, vec![Cell::Text(origins), names(0), time_cell(ns(0)), names(1), time_cell(ns(1)), ratio, gain])
    };
    let head = ["layers of the network", "first", "time", "second", "time", "speed-up", "gain"];
    let rows = groups.iter().map(row).collect();
    let total = [a.total(), b.total()];
    let mut summary = String::new();
    for (r, name) in sides.iter().zip(["First", "Second"]) {
        summary.push_str(&format!("<h3>{name}</h3>{}", facts(&r.facts)));
    }
    if total.iter().all(|t| *t > 0.0) {
        let line =
            format!("Layers take {} and {}: {:.2}×.", time(total[0]), time(total[1]), total[0] / total[1]);
        summary.push_str(&format!("<p>{line}</p>"));
    }
    let sections = [("Summary", summary), ("Layers side by side", super::html::table("layers", &head, rows))];
    let data = serde_json::json!({
        "engines": [a.json(), b.json()],
        "groups": groups.iter().map(|g| &g.layers).collect::<Vec<_>>(),
    });
    page(&format!("Engines {} and {}", a.name, b.name), &sections, &data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_grouped_by_what_they_share() {
        let row = |origins: &[&str]| Row {
            origins: origins.iter().map(|o| (*o).to_owned()).collect(),
            ..Row::default()
        };
        // A pattern's layers stand for the one they replace, if the other engine has it.
        let fused = [row(&["a.transpose5.matmul1"]), row(&["z.add2"])];
        let all = groups([&fused, &[row(&["a"]), row(&["z.mul"])]]);
        assert_eq!(all.len(), 3);
        assert_eq!(
            (all[0].layers[0].as_slice(), all[0].layers[1].as_slice()),
            ([0].as_slice(), [0].as_slice())
        );
        let a = [row(&["a", "b"]), row(&["c"]), row(&["d"]), row(&["x"])];
        let b = [row(&["a"]), row(&["b", "c"]), row(&["d"]), row(&["y"])];
        let all = groups([&a, &b]);
        let found: Vec<_> = all.iter().map(|g| (g.layers[0].clone(), g.layers[1].clone())).collect();
        let wanted = [(vec![0, 1], vec![0, 1]), (vec![2], vec![2]), (vec![3], vec![]), (vec![], vec![3])];
        assert_eq!(found, wanted);
    }
}
