//! Places of the boxes of a graph whose edges all point forward: in rows, by the longest way to each.

use std::collections::BTreeSet;

/// Rounds in which boxes move to their neighbours.
const ROUNDS: usize = 12;

/// Helping points of long edges at most; further long edges are drawn straight.
const MAX_POINTS: usize = 20_000;

/// Space between boxes of a row.
const GAP: f64 = 18.0;

/// Distance between rows.
pub const ROW: f64 = 64.0;

/// A box or a point that a long edge passes through.
#[derive(Clone, Debug)]
struct Item {
    rank: usize,
    width: f64,
    x: f64,
    neighbours: Vec<usize>,
}

/// Places of boxes, and ways of edges.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// Middle of each box: how far right and down.
    pub boxes: Vec<(f64, f64)>,
    /// Points of each edge, from its beginning to its end.
    pub ways: Vec<Vec<(f64, f64)>>,
    pub width: f64,
    pub height: f64,
}

/// Lays out boxes of these widths. Edges go from a box to one with a higher number; others are left out.
pub fn layout(widths: &[f64], edges: &[(usize, usize)]) -> Layout {
    let edges: BTreeSet<(usize, usize)> =
        edges.iter().copied().filter(|&(a, b)| a < b && b < widths.len()).collect();
    let mut ranks = vec![0; widths.len()];
    // Edges are in the order of their beginnings, whose ranks are final then.
    for &(a, b) in &edges {
        ranks[b] = ranks[b].max(ranks[a] + 1);
    }
    let item =
        |(rank, width): (&usize, &f64)| Item { rank: *rank, width: *width, x: 0.0, neighbours: Vec::new() };
    let mut items: Vec<Item> = ranks.iter().zip(widths).map(item).collect();
    let chains: Vec<Vec<usize>> = edges.iter().map(|&edge| chain(&mut items, edge, widths.len())).collect();
    let rows = rows(&mut items);
    place(&mut items, &rows);
    let left = items.iter().map(|i| i.x - i.width / 2.0).fold(f64::INFINITY, f64::min);
    let left = if left.is_finite() { left } else { 0.0 };
    items.iter_mut().for_each(|i| i.x -= left - GAP);
    let at = |i: &usize| (items[*i].x, (items[*i].rank as f64 + 0.5) * ROW);
    Layout {
        boxes: (0..widths.len()).map(|i| at(&i)).collect(),
        ways: chains.iter().map(|c| c.iter().map(at).collect()).collect(),
        width: items.iter().map(|i| i.x + i.width / 2.0).fold(0.0, f64::max) + GAP,
        height: rows.len() as f64 * ROW,
    }
}

/// The items that an edge passes through, with a new one in each row between its ends.
fn chain(items: &mut Vec<Item>, (a, b): (usize, usize), boxes: usize) -> Vec<usize> {
    let between = items[a].rank + 1..items[b].rank;
    let mut chain = vec![a];
    if items.len() - boxes + between.len() <= MAX_POINTS {
        for rank in between {
            chain.push(items.len());
            items.push(Item { rank, width: 4.0, x: 0.0, neighbours: Vec::new() });
        }
        chain.push(b);
        for pair in chain.windows(2) {
            items[pair[0]].neighbours.push(pair[1]);
            items[pair[1]].neighbours.push(pair[0]);
        }
        chain
    } else {
        vec![a, b]
    }
}

/// The items of each row from left to right, ordered by their neighbours above, then by those below.
fn rows(items: &mut [Item]) -> Vec<Vec<usize>> {
    let count = items.iter().map(|i| i.rank + 1).max().unwrap_or(0);
    let mut rows = vec![Vec::new(); count];
    for (i, item) in items.iter().enumerate() {
        rows[item.rank].push(i);
    }
    for round in 0..4 {
        let down = round % 2 == 0;
        let order: Vec<usize> = if down { (0..count).collect() } else { (0..count).rev().collect() };
        for r in order {
            let key = |&i: &usize| {
                let of = items[i]
                    .neighbours
                    .iter()
                    .filter(|&&n| (items[n].rank < r) == down && items[n].rank != r);
                let (sum, n) = of.fold((0.0, 0), |(s, n), &o| (s + items[o].x, n + 1));
                if n > 0 { sum / f64::from(n) } else { items[i].x }
            };
            let mut keyed: Vec<(f64, usize)> = rows[r].iter().map(|i| (key(i), *i)).collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
            rows[r] = keyed.into_iter().map(|k| k.1).collect();
            let mut x = 0.0;
            let width: f64 = rows[r].iter().map(|&i| items[i].width + GAP).sum();
            for &i in &rows[r] {
                items[i].x = x + (items[i].width - width) / 2.0;
                x += items[i].width + GAP;
            }
        }
    }
    rows
}

/// Moves items to the mean of their neighbours, as far as their row leaves room.
fn place(items: &mut [Item], rows: &[Vec<usize>]) {
    for round in 0..ROUNDS {
        let order: Vec<&Vec<usize>> =
            if round % 2 == 0 { rows.iter().collect() } else { rows.iter().rev().collect() };
        for row in order {
            let wish = |&i: &usize| {
                let n = &items[i].neighbours;
                if n.is_empty() {
                    items[i].x
                } else {
                    n.iter().map(|&o| items[o].x).sum::<f64>() / n.len() as f64
                }
            };
            let wishes: Vec<f64> = row.iter().map(wish).collect();
            let mut at: Vec<f64> = wishes.clone();
            for k in 1..row.len() {
                let least = at[k - 1] + (items[row[k - 1]].width + items[row[k]].width) / 2.0 + GAP;
                at[k] = at[k].max(least);
            }
            let shift = wishes.iter().zip(&at).map(|(w, a)| w - a).sum::<f64>() / row.len().max(1) as f64;
            for (&i, x) in row.iter().zip(at) {
                items[i].x = x + shift;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_of_a_row_do_not_overlap_and_edges_go_down() {
        let widths = [80.0, 60.0, 100.0, 40.0, 90.0, 70.0];
        let edges = [(0, 1), (0, 2), (0, 3), (1, 4), (2, 4), (3, 5), (4, 5), (0, 5), (5, 2), (1, 99)];
        let l = layout(&widths, &edges);
        for (i, a) in l.boxes.iter().enumerate() {
            for (j, b) in l.boxes.iter().enumerate().skip(i + 1) {
                let apart = (a.0 - b.0).abs() >= (widths[i] + widths[j]) / 2.0 + GAP - 1e-9;
                assert!(a.1 != b.1 || apart, "{i} and {j}: {a:?} {b:?}");
            }
            assert!(a.0 - widths[i] / 2.0 >= 0.0 && a.0 + widths[i] / 2.0 <= l.width && a.1 < l.height);
        }
        assert_eq!(l.ways.len(), 8);
        assert!(l.ways.iter().all(|w| w.windows(2).all(|p| p[0].1 < p[1].1)));
        let long = l.ways.iter().map(Vec::len).max();
        assert_eq!(long, Some(4));
        assert!(layout(&[], &[]).boxes.is_empty());
    }
}
