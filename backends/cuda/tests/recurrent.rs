//! Recurrences with weights on the chip: every layout compiles (needs NVRTC), agrees with the oracle (needs a device), and
//! how fast it is.
//!
//! Speeds: `KILN_REQUIRE_CUDA=1 recurrent --ignored --nocapture speed`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

mod common;

use common::device::device;
use common::nvrtc::nvrtc;
use common::{parallel, report};
use kiln_backend::{Backend, Program, Region, Tactic, Target, TimeRequest};
use kiln_backend_cuda::compile::cubin;
use kiln_backend_cuda::target::known;
use kiln_backend_cuda::{Cuda, written};
use kiln_ir::attr::Attr;
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Op, Tensor};
use std::sync::Arc;

struct Case {
    label: String,
    program: Program,
    inputs: Vec<Tensor>,
    dtype: DType,
}

/// Steps, batch, input size, hidden size.
type Sizes = [usize; 4];

/// A layer with biases; `all` adds lengths, initial states and peepholes.
fn case(name: &str, t: DType, sizes: Sizes, direction: &str, all: bool) -> Case {
    case_of(name, t, sizes, direction, all, Attrs::new())
}

/// A layer with further attributes.
fn case_of(name: &str, t: DType, sizes: Sizes, direction: &str, all: bool, attrs: Attrs) -> Case {
    let [steps, batch, size, hidden] = sizes;
    let mut rng = Rng::new((steps * 31 + batch * 7 + hidden) as u64);
    let dirs = if direction == "bidirectional" { 2 } else { 1 };
    let gates = match name {
        "lstm" => 4,
        "rnn" => 1,
        _ => 3,
    };
    let scale = 1.7 / (hidden as f64).sqrt();
    let mut draw = |shape: &[usize], a: f64| Some(rng.tensor_in(t, shape, -a, a, 0));
    let mut inputs = vec![
        draw(&[steps, batch, size], 1.0),
        draw(&[dirs, gates * hidden, size], scale),
        draw(&[dirs, gates * hidden, hidden], scale),
        draw(&[dirs, 2 * gates * hidden], 0.3),
    ];
    if all {
        let (h0, c0, p) = (
            draw(&[dirs, batch, hidden], 0.8),
            draw(&[dirs, batch, hidden], 0.8),
            draw(&[dirs, 3 * hidden], 0.3),
        );
        let lens: Vec<i64> = (0..batch as i64).map(|b| (b * 5 + 1) % (steps as i64 + 1)).collect();
        inputs.extend([Some(rng.i64s(&[batch], &lens)), h0]);
        if name == "lstm" {
            inputs.extend([c0, p]);
        }
    }
    let attrs = attrs.with("direction", direction);
    let (operator, attrs) = match name {
        "gru reset first" => ("gru", attrs),
        "gru" => (name, attrs.with("linear_before_reset", true)),
        _ => (name, attrs),
    };
    let op = Op::new(operator, attrs).unwrap();
    let (program, inputs) = Program::single(&op, &inputs).unwrap();
    let label =
        format!("{name} {t} {steps}x{batch}x{size}, {hidden} {direction}{}", if all { " all" } else { "" });
    Case { label, program, inputs, dtype: t }
}

impl Case {
    fn region(&self) -> Region {
        self.program.region(&self.program.steps[0]).unwrap()
    }

    fn tactics(&self, target: &Target) -> Vec<Tactic> {
        let all = Cuda.tactics(&self.region(), target).unwrap_or_else(|e| panic!("{}: {e}", self.label));
        let all: Vec<_> = all.into_iter().filter(|t| t.name.starts_with("recurrent.")).collect();
        assert!(!all.is_empty() || !target.arch.starts_with("sm_90"), "{}: nothing on the chip", self.label);
        all
    }

    fn differs(&self, wanted: &[Tensor], found: &[Tensor]) -> Option<String> {
        // For numbers up to 1: the type's rounding, and what it grows to in the course of the steps.
        let noise = match self.dtype {
            DType::F16 => 4e-3,
            DType::BF16 => 3e-2,
            _ => 2e-5,
        };
        wanted.iter().zip(found).enumerate().find_map(|(i, (w, f))| {
            let (x, y) = (f.to_f64(), w.to_f64());
            // A NaN is not near anything.
            let near = |x: f64, y: f64| (x - y).abs() <= noise * (1.0 + y.abs());
            let pairs = x.iter().zip(&y).enumerate();
            let bad: Vec<_> = pairs.filter(|(_, (x, y))| !near(**x, **y)).collect();
            let &(at, (x, y)) = bad.first()?;
            Some(format!("output {i}: {} of {} wrong; {x} for {y} at {at}", bad.len(), w.len()))
        })
    }
}

/// The only tactic for weights that can't stay on the chip has a note; others have none.
#[test]
fn weights_that_do_not_stay_on_the_chip_are_noted() {
    let ways = |t, hidden, gpu| {
        let case = case("lstm", t, [3, 2, 5, hidden], "forward", false);
        Cuda.tactics(&case.region(), &known(gpu).unwrap()).unwrap()
    };
    let large = ways(DType::F16, 512, "a100");
    assert_eq!(large.len(), 1, "{large:?}");
    assert!(large[0].note.contains("too many for registers"), "{large:?}");
    let kept = ways(DType::F16, 512, "h200");
    assert!(kept.len() > 1 && kept.iter().all(|t| t.note.is_empty()), "{kept:?}");
}

const HIDDEN: [usize; 8] = [64, 96, 200, 333, 512, 640, 1024, 1536];

fn cases() -> Vec<Case> {
    use DType::{BF16, F16, F32};
    let mut all = Vec::new();
    for t in [F16, F32, BF16] {
        for (k, hidden) in HIDDEN.into_iter().enumerate() {
            let batch = [3, 32, 1, 64, 8, 17, 1, 3][k];
            let batch = if hidden > 512 { batch.min(9) } else { batch };
            all.push(case("lstm", t, [6, batch, 24, hidden], "forward", k % 2 == 1));
            if t == BF16 {
                continue;
            }
            all.push(case("gru", t, [5, batch, 17, hidden], ["reverse", "bidirectional"][k % 2], k % 2 == 0));
            all.push(case("rnn", t, [4, batch, 33, hidden], ["bidirectional", "forward"][k % 2], k % 3 == 0));
        }
        for (k, hidden) in [64, 200, 512, 1024].into_iter().enumerate() {
            let direction = ["forward", "bidirectional"][k % 2];
            all.push(case("gru reset first", t, [5, [3, 32, 1, 9][k], 17, hidden], direction, k % 2 == 1));
        }
        all.extend(few_units(t));
        all.push(case("lstm", t, [7, 11, 5, 40], "bidirectional", true));
        all.push(case("lstm", t, [1, 5, 8, 130], "reverse", true));
    }
    all
}

/// Layers whose weights one block keeps.
fn few_units(t: DType) -> Vec<Case> {
    let mut all = Vec::new();
    for (k, hidden) in [1, 3, 16, 31, 100, 128, 256].into_iter().enumerate() {
        for (n, name) in ["lstm", "gru", "gru reset first", "rnn"].into_iter().enumerate() {
            let direction = ["forward", "reverse", "bidirectional"][(k + n) % 3];
            let sizes = [[9, 6, 7][k % 3], [2, 5, 1, 4][(k + n) % 4], [10, 70, 3][n % 3], hidden];
            all.push(case(name, t, sizes, direction, (k + n) % 2 == 0));
        }
    }
    // Bounds on the usual activations, and others in each direction.
    let clipped = || Attrs::new().with("clip", 0.7);
    all.push(case_of("lstm", t, [5, 3, 12, 24], "bidirectional", true, clipped()));
    all.push(case_of("gru", t, [5, 3, 12, 24], "forward", true, clipped()));
    let names = |all: &[&str]| Attr::Strs(all.iter().map(|s| s.to_string()).collect());
    let two = names(&["hard_sigmoid", "softsign", "elu", "sigmoid", "tanh", "relu"]);
    let attrs = Attrs::new().with("activations", two).with("input_forget", true);
    all.push(case_of("lstm", t, [6, 2, 9, 20], "bidirectional", false, attrs));
    let two = names(&["sigmoid", "softsign", "hard_sigmoid", "tanh"]);
    all.push(case_of("gru", t, [6, 2, 9, 20], "bidirectional", true, Attrs::new().with("activations", two)));
    all
}

/// Sources of all cases, each once, with what they are for.
fn sources(target: &Target) -> report::Sources {
    let all = cases().into_iter();
    report::written_for(target, all.map(|c| (c.label.clone(), c.region(), c.tactics(target))))
}

/// Bytes that a thread may keep outside of registers: some numbers that the products of a step do not use.
/// With up to three pairs of a unit and a sequence, 333 units and 64 sequences keep 288 bytes. An LSTM of
/// 1,536 units in clusters of 8 blocks, which read weights again, keeps 356 (f16) and 368 (bf16).
const MAX_SPILL: u32 = 368;

/// By default one of 23 sources; `KILN_KERNELS=all` takes all, another text those whose name has it.
#[test]
fn layouts_compile_and_do_not_spill() {
    if !nvrtc() {
        return;
    }
    report::compile_without_spills("recurrent", 23, MAX_SPILL, sources);
}

/// `KILN_KERNELS=block` takes the tactics whose name has it.
#[test]
fn layouts_agree_with_the_oracle() {
    let Some((device, target)) = device() else { return };
    let pick = std::env::var("KILN_KERNELS").unwrap_or_default();
    let picked = |case: &Case| -> Vec<Tactic> {
        case.tactics(&target).into_iter().filter(|t| t.name.contains(&pick)).collect()
    };
    let taken = report::sampled(cases(), &target, Case::region, picked);
    let wanted = report::parallel(&taken, |(case, _)| case.program.graph.eval(&case.inputs).unwrap());
    let (mut failed, mut runs) = (Vec::new(), 0);
    for ((case, tactics), wanted) in taken.iter().zip(&wanted) {
        for t in tactics {
            let blob = Cuda.compile(&case.region(), t, &target).unwrap();
            let program = Arc::new(Program::single_step(case.region().graph.clone(), t.clone(), blob));
            let mut cx = device.load(program.clone()).unwrap().context().unwrap();
            let shapes = Arc::new(program.shapes(&case.inputs).unwrap());
            let mut first: Option<Vec<Tensor>> = None;
            for _ in 0..3 {
                let ran = cx.enqueue(&case.inputs, &shapes).and_then(|()| cx.outputs());
                let found = ran.unwrap_or_else(|e| panic!("{} by {}: {e}", case.label, t.id()));
                if let Some(e) = case.differs(wanted, &found) {
                    failed.push(format!("{} by {}: {e}", case.label, t.id()));
                    break;
                }
                if first.as_ref().is_some_and(|f| f.iter().zip(&found).any(|(f, g)| f.bytes() != g.bytes())) {
                    failed.push(format!("{} by {}: two runs differ", case.label, t.id()));
                }
                first = Some(found);
            }
            runs += 1;
        }
    }
    println!("{runs} runs, {} failed", failed.len());
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
#[ignore = "a measurement"]
fn speed() {
    let Some((device, target)) = device() else { return };
    use DType::{BF16, F16, F32};
    let cases = [
        ("lstm", F16, [128, 1, 64, 512]),
        ("lstm", F16, [128, 1, 512, 512]),
        ("lstm", F16, [128, 32, 512, 512]),
        ("lstm", F16, [128, 64, 512, 512]),
        ("lstm", F16, [128, 1, 128, 128]),
        ("lstm", F32, [128, 1, 512, 512]),
        ("lstm", F32, [128, 32, 512, 512]),
        ("lstm", F32, [128, 1, 128, 128]),
        ("gru", BF16, [128, 3, 200, 200]),
        ("lstm", F16, [128, 1, 1024, 1024]),
        ("lstm", F16, [128, 32, 1024, 1024]),
        ("lstm", F16, [128, 1, 1536, 1536]),
        ("lstm", F32, [128, 1, 16, 16]),
        ("lstm", F16, [128, 1, 64, 64]),
        ("lstm", F32, [128, 32, 64, 64]),
        ("gru", F32, [1024, 1, 16, 16]),
        ("gru", F32, [128, 1, 128, 128]),
        ("gru reset first", F32, [128, 1, 64, 64]),
        ("rnn", F32, [128, 1, 128, 128]),
    ];
    let cases = cases.map(|(name, t, sizes)| case(name, t, sizes, "forward", false));
    let both = |c: &Case| {
        c.tactics(&target)
            .into_iter()
            .map(|t| written(&c.region(), &t, &target).unwrap().0)
            .collect::<Vec<_>>()
    };
    let sources: Vec<String> = cases.iter().flat_map(both).collect();
    // Compiled at once, for the cache.
    parallel(&sources, |text| cubin(text, &target.arch).err().map(|e| println!("{e}")));
    for case in cases {
        println!("{}", case.label);
        let region = case.region();
        for t in case.tactics(&target) {
            let blob = Cuda.compile(&region, &t, &target).unwrap();
            let request = TimeRequest {
                graph: &region.graph,
                tactic: &t,
                blob: &blob,
                inputs: &case.inputs,
                samples: 9,
            };
            match device.time(&request) {
                Ok(mut times) => {
                    times.sort_by(f64::total_cmp);
                    let us = times[times.len() / 2] / 1e3;
                    println!(
                        "  {:<30} {us:>9.1} us (expected {:.1})",
                        t.name,
                        t.estimate_ns.unwrap_or(0.0) / 1e3
                    );
                }
                Err(e) => println!("  {:<30} {e}", t.name),
            }
        }
    }
}
