//! Topological order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::Node;

/// The most nodes of a cycle that a message lists.
const MAX_LISTED: usize = 32;

/// The order in which nodes come after what they read, as indices; nothing if they are in such an order already. Ready
/// nodes keep the order of the file. For a cycle the error lists the nodes around it.
pub(super) fn order(
    nodes: &[Node],
    producer: impl Fn(&str) -> Option<usize>,
) -> Result<Option<Vec<usize>>, Vec<String>> {
    let needs = |index: usize| nodes[index].reads().filter_map(&producer);
    if (0..nodes.len()).all(|index| needs(index).all(|needed| needed < index)) {
        return Ok(None);
    }
    let mut users = vec![Vec::new(); nodes.len()];
    let mut missing = vec![0usize; nodes.len()];
    for (index, missing) in missing.iter_mut().enumerate() {
        for needed in needs(index) {
            users[needed].push(index);
            *missing += 1;
        }
    }
    let mut ready: BinaryHeap<_> =
        (0..nodes.len()).filter(|index| missing[*index] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(Reverse(index)) = ready.pop() {
        order.push(index);
        for user in &users[index] {
            missing[*user] -= 1;
            if missing[*user] == 0 {
                ready.push(Reverse(*user));
            }
        }
    }
    if order.len() == nodes.len() {
        return Ok(Some(order));
    }
    Err(cycle(&missing, needs)
        .into_iter()
        .map(|index| index.map_or("…".into(), |i| nodes[i].label()))
        .collect())
}

/// One cycle among the nodes that still miss something: following what they need must come back. In the order of data
/// flow, the first node repeated at the end, the middle of a long cycle left out.
fn cycle<I: Iterator<Item = usize>>(missing: &[usize], needs: impl Fn(usize) -> I) -> Vec<Option<usize>> {
    let mut seen = vec![None; missing.len()];
    let mut path = Vec::new();
    let mut at = missing.iter().position(|count| *count > 0);
    while let Some(index) = at {
        if let Some(start) = seen[index] {
            path.drain(..start);
            break;
        }
        seen[index] = Some(path.len());
        path.push(index);
        at = needs(index).find(|needed| missing[*needed] > 0);
    }
    path.reverse();
    path.extend(path.first().copied());
    let mut listed: Vec<Option<usize>> = path.iter().copied().map(Some).collect();
    if listed.len() > MAX_LISTED {
        listed.splice(MAX_LISTED / 2..listed.len() - MAX_LISTED / 2, [None]);
    }
    listed
}

/// Puts nodes in the given order, each index once.
pub(super) fn permute(nodes: &mut Vec<Node>, order: &[usize]) {
    let mut slots: Vec<Option<Node>> = std::mem::take(nodes).into_iter().map(Some).collect();
    nodes.extend(order.iter().filter_map(|index| slots[*index].take()));
}
