//! The memory plan of random networks, executed literally: values live in the bytes of one poisoned arena, exactly where
//! the plan puts them, and the results are still the oracle's.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::{Backend, MemoryRules, Place, Program};
use kiln_backend_cpu::{Cpu, Options};
use kiln_builder::{BuildConfig, Builder};
use kiln_ir::{Tensor, ValueId};
use kiln_tests::random::{Sample, network};
use std::collections::HashMap;
use std::sync::Arc;

fn build(sample: &Sample, rules: MemoryRules, fuse: bool) -> Program {
    let mut target = Cpu::target();
    target.memory = rules;
    let mut b = Builder::new(Arc::new(Cpu::new()), target);
    b.config = BuildConfig { fuse, samples: 1, max_tactics: 1, ..BuildConfig::default() };
    b.build(&sample.network).unwrap().program
}

/// An arena, filled with NaN, with sentinels behind it.
struct Arena {
    bytes: Vec<u8>,
}

const SENTINELS: usize = 64;

impl Arena {
    fn new(size: u64) -> Arena {
        Arena { bytes: vec![0xff; size as usize + SENTINELS] }
    }

    fn window(&mut self, offset: u64, len: usize) -> &mut [u8] {
        let end = self.bytes.len() - SENTINELS;
        &mut self.bytes[..end][offset as usize..offset as usize + len]
    }
}

/// Runs the steps one after the other; what crosses the border of steps goes through the arena.
fn execute(p: &Program, inputs: &[Tensor]) -> Vec<Tensor> {
    let mut arena = Arena::new(p.memory.arena);
    let ty: HashMap<ValueId, _> = p.graph.value_ids().map(|v| (v, p.graph.ty(v).clone())).collect();
    let outside = |arena: &mut Arena, v: ValueId| match p.memory.places[v.0 as usize] {
        Place::Input(i) => inputs[i as usize].clone().reshaped(&ty[&v].static_dims().unwrap()).unwrap(),
        Place::Weight => p.graph.weight(v).unwrap().tensor.clone(),
        Place::Arena { offset, size } => {
            let shape = ty[&v].static_dims().unwrap();
            let len = ty[&v].dtype.bytes_for(shape.iter().product::<usize>() as u64).unwrap();
            assert!(len <= size, "{len} bytes in a place of {size}");
            let bytes = arena.window(offset, len as usize).to_vec();
            Tensor::from_bytes(ty[&v].dtype, &shape, bytes).unwrap()
        }
        other => panic!("\"{}\" is read and lies at {other:?}", p.graph.value(v).name),
    };
    for step in &p.steps {
        let mut own: HashMap<ValueId, Tensor> = HashMap::new();
        for &n in &step.nodes {
            let node = p.graph.get(n).unwrap();
            let mut read = |v: &ValueId| own.get(v).cloned().unwrap_or_else(|| outside(&mut arena, *v));
            let args: Vec<_> = node.inputs.iter().map(|v| v.as_ref().map(&mut read)).collect();
            own.extend(node.outputs.iter().copied().zip(node.eval(&args).unwrap()));
        }
        for (v, t) in own {
            if let Place::Arena { offset, .. } = p.memory.places[v.0 as usize] {
                arena.window(offset, t.bytes().len()).copy_from_slice(t.bytes());
            }
        }
        // A step may use all of its workspace.
        let workspace = step.tactic.workspace as usize;
        arena.window(p.memory.scratch, workspace).fill(0xff);
    }
    assert!(arena.bytes.iter().rev().take(SENTINELS).all(|&b| b == 0xff));
    p.graph.outputs.iter().map(|&v| outside(&mut arena, v)).collect()
}

fn aligned_and_inside(p: &Program, rules: &MemoryRules) {
    for place in &p.memory.places {
        if let Place::Arena { offset, size } = place {
            assert_eq!(offset % rules.alignment, 0);
            assert!(offset + size <= p.memory.arena);
        }
    }
    kiln_plan::verify(p, rules).unwrap();
}

fn size(p: &Place) -> u64 {
    if let Place::Arena { size, .. } = p { *size } else { 0 }
}

/// Outputs that must alias an input lie in its memory where the input dies there; how many do.
fn aliases(p: &Program) -> usize {
    let place = |v: ValueId| p.memory.places[v.0 as usize];
    let mut honoured = 0;
    for (id, node) in p.graph.nodes() {
        for &(i, o) in node.op.def().traits.must_alias {
            let (input, output) = (node.inputs[i].unwrap(), node.outputs[o]);
            let readers = p.graph.uses().of_value(input).len();
            let dies = readers == 1 && !p.graph.outputs.contains(&input);
            if dies && matches!(place(input), Place::Arena { .. }) {
                assert_eq!(place(input), place(output), "{id:?} does not write in place");
                honoured += 1;
            }
        }
    }
    honoured
}

#[test]
fn plans_of_random_networks_hold_when_executed_literally() {
    let mut honoured = 0;
    let (mut planned, mut separate) = (0, 0);
    for seed in 0..150 {
        let sample = network(seed, 20).unwrap();
        let wanted = sample.network.lower().unwrap().eval(&sample.inputs).unwrap();
        for (alignment, in_place, fuse) in [(64, true, true), (256, false, true), (4, true, false)] {
            let rules = MemoryRules { alignment, max_binding: u64::MAX, in_place, total: 0 };
            let p = build(&sample, rules, fuse);
            aligned_and_inside(&p, &rules);
            honoured += aliases(&p);
            assert_eq!(execute(&p, &sample.inputs), wanted, "seed {seed}, alignment {alignment}");
            if alignment == 4 {
                planned += p.memory.scratch;
                separate += p.memory.places.iter().map(size).sum::<u64>();
            }
        }
    }
    assert!(honoured > 20, "{honoured} aliases: the networks have too few");
    assert!(3 * planned < 2 * separate, "memory is never used again: {planned} of {separate} bytes");
}

#[test]
fn poison_changes_no_result() {
    let run = |poison: bool, sample: &Sample| {
        let backend = Cpu::with_options(Options { poison, ..Options::default() });
        let device = backend.open(&Cpu::target()).unwrap();
        let p = Arc::new(build(sample, Cpu::target().memory, true));
        let shapes = Arc::new(p.shapes(&sample.inputs).unwrap());
        let mut context = device.load(p).unwrap().context().unwrap();
        let mut last = Vec::new();
        for _ in 0..2 {
            context.enqueue(&sample.inputs, &shapes).unwrap();
            last = context.outputs().unwrap();
        }
        last
    };
    for seed in 0..60 {
        let sample = network(seed, 20).unwrap();
        assert_eq!(run(true, &sample), run(false, &sample), "seed {seed}");
    }
}
