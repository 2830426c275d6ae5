use super::*;
use kiln_backend::Tactic;
use kiln_ir::Graph;
use kiln_ir::problem::Rng;

/// A program of one step for each node, in streams as a build puts them.
fn program(text: &str, most: usize) -> Program {
    let g = Graph::from_text(text).unwrap_or_else(|e| panic!("{e}"));
    let mut program = Program::step_per_node(g, &Tactic::plain("test"));
    let nodes: Vec<_> = program.steps.iter().map(|s| s.nodes.clone()).collect();
    let nodes: Vec<&[_]> = nodes.iter().map(Vec::as_slice).collect();
    let sources = kiln_backend::order::Sources::of(&nodes);
    let mut order = Order::new(most);
    for s in 0..nodes.len() {
        let (needs, alone) = sources.needs(&program.graph, &nodes, s);
        order.push(&needs, alone, order.choose(&needs, alone));
    }
    program.streams = order.into_streams();
    program
}

/// Whether each command comes behind each other one.
fn behind(lanes: &Lanes) -> Vec<Vec<bool>> {
    let n = lanes.of.len();
    let mut all: Vec<Vec<bool>> = Vec::new();
    for c in 0..n {
        let mut row = vec![false; n];
        let before = (0..c).rev().find(|&b| lanes.of[b] == lanes.of[c]);
        for &b in lanes.waits[c].iter().chain(&before) {
            row[b] = true;
            (0..b).filter(|&a| all[b][a]).for_each(|a| row[a] = true);
        }
        all.push(row);
    }
    all
}

const BRANCHES: &str =
    "graph \"g\" { input %x: f32[4] %a = exp(%x) %b = neg(%a) %c = exp(%b) %d = neg(%a) %e = exp(%d)
    %y = add(%c, %e) output %y }";

#[test]
fn branches_are_in_streams_of_their_own_and_meet_again() {
    let p = program(BRANCHES, 4);
    let lanes = of(&p, None, &[Kind::Work; 6], &[0, 1, 2, 3, 4, 5]).unwrap_or_default();
    assert_eq!(lanes.of, [0, 0, 0, 1, 1, 0]);
    assert_eq!(lanes.waits, [vec![], vec![], vec![], vec![0], vec![], vec![4]]);
    assert!(lanes.ends.is_empty(), "the last command waits for both");
    assert_eq!(of(&program(BRANCHES, 1), None, &[Kind::Work; 6], &[0, 1, 2, 3, 4, 5]), None);
    // Steps without commands, and with several; an event behind all of them.
    let kinds = [Kind::Work, Kind::Work, Kind::Work, Kind::Mark];
    let lanes = of(&p, None, &kinds, &[2, 4, 4, 4]).unwrap_or_default();
    assert_eq!((lanes.of, lanes.waits[3].clone()), (vec![0, 1, 1, 0], vec![2]));
}

#[test]
fn streams_that_nothing_waits_for_are_joined_at_the_end() {
    let text = "graph \"g\" { input %x: f32[4] %a = exp(%x) %b = neg(%a) %c = neg(%a) output %b output %c }";
    let lanes = of(&program(text, 2), None, &[Kind::Work; 3], &[0, 1, 2]).unwrap_or_default();
    assert_eq!((lanes.of, lanes.ends), (vec![0, 0, 1], vec![2]));
}

#[test]
fn weights_are_copied_beside_the_kernels_in_front_of_their_readers() {
    let mut text = String::from("graph \"g\" { input %x: f32[256] ");
    let names = ["a", "b", "c", "d"];
    for name in names {
        text += &format!("weight %{name}: f32[256] = [{}] ", vec!["1"; 256].join(", "));
    }
    let steps = ["x", "p", "q", "r"].iter().zip(["p", "q", "r", "s"]).zip(names);
    steps.for_each(|((from, to), w)| text += &format!("%{to} = add(%{from}, %{w}) "));
    let p = program(&(text + "output %s }"), 1);
    let plan = StreamPlan::new(&p, 256, 2 << 10).ok().flatten().unwrap_or_default();
    let weight = |name: &str| Kind::Copy(p.graph.find(name).unwrap_or(ValueId(0)));
    let kinds: Vec<Kind> = names.iter().flat_map(|n| [weight(n), Kind::Work]).collect();
    let steps = [0, 0, 1, 1, 2, 2, 3, 3];
    let lanes = of(&p, Some(&plan), &kinds, &steps).unwrap_or_default();
    assert_eq!(lanes.of, [1, 0, 1, 0, 1, 0, 1, 0]);
    // The third weight takes the place of the first one, once that was read.
    assert_eq!(lanes.waits, [vec![], vec![0], vec![], vec![2], vec![1], vec![4], vec![3], vec![6]]);
}

#[test]
fn commands_come_behind_all_that_they_read() {
    let mut rng = Rng::new(11);
    for _ in 0..60 {
        let count = 14;
        let mut text = String::from("graph \"g\" { input %v0: f32[4] ");
        let mut reads = vec![Vec::new()];
        for v in 1..=count {
            let mut one = || rng.int(0, v as i64 - 1) as usize;
            let (a, b) = (one(), one());
            text += &format!("%v{v} = add(%v{a}, %v{b}) ");
            reads.push(vec![a, b]);
        }
        text += &format!("output %v{count} }}");
        let p = program(&text, 1 + rng.int(1, 4) as usize);
        // Each step has none, one or two commands.
        let steps: Vec<usize> = (0..count).flat_map(|s| vec![s; rng.int(0, 2) as usize]).collect();
        let Some(lanes) = of(&p, None, &vec![Kind::Work; steps.len()], &steps) else { continue };
        let behind = behind(&lanes);
        // All that a step reads of, through steps without commands as well.
        let mut needs: Vec<Vec<bool>> = Vec::new();
        for s in 0..count {
            let mut row = vec![false; count];
            for from in reads[s + 1].iter().filter_map(|v| v.checked_sub(1)) {
                row[from] = true;
                (0..from).filter(|&t| needs[from][t]).for_each(|t| row[t] = true);
            }
            needs.push(row);
        }
        for (c, &s) in steps.iter().enumerate() {
            let before = steps.iter().enumerate().take(c).filter(|(_, t)| needs[s][**t] || **t == s);
            before.for_each(|(b, _)| assert!(behind[c][b], "{b} before {c} of {lanes:?}"));
        }
    }
}
