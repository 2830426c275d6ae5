//! Tiles on tensor cores: every one compiles (needs NVRTC), agrees with the oracle (needs a device), and how fast it is.
//!
//! Speeds: `KILN_REQUIRE_CUDA=1 tensor_cores --ignored --nocapture speed`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

mod common;

use common::device::device;
use common::nvrtc::nvrtc;
use common::{Case, cases, report};
use kiln_backend::{Backend, Device, Program, Tactic, Target, TimeRequest};
use kiln_backend_cuda::compile::Resources;
use kiln_backend_cuda::{Cuda, target};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Op, Tensor};
use kiln_ops::matmul::sparse::pack::packed;
use kiln_ops::matmul::sparse::random_sparse;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Tactics of a case that use tensor cores, by `wgmma`, too.
fn tactics(case: &Case, target: &Target) -> Vec<Tactic> {
    case.tactics(target, of_tensor_cores)
}

fn of_tensor_cores(t: &Tactic) -> bool {
    let named = |part: &str| t.name.contains(part);
    let starts = |with: &[&str]| with.iter().any(|w| t.name.starts_with(w));
    named("mma") || starts(&["matmul_codes.floats_", "matmul_codes.rows_", "conv.lines", "matmul.rows"])
}

/// Sources of all cases, each once, with what they are for.
fn sources(target: &Target) -> report::Sources {
    let all = cases().into_iter();
    report::written_for(target, all.map(|c| (c.label.clone(), c.region(), tactics(&c, target))))
}

/// Whether `KILN_KERNELS` picks this case by this tactic: "all", or a text that its name has.
fn picked(what: &str) -> bool {
    std::env::var("KILN_KERNELS").map_or(true, |p| p == "all" || what.contains(&p))
}

/// Bytes that a thread may keep outside of registers: some numbers that the loop over K does not use.
const MAX_SPILL: u32 = 160;

/// By default a source of each tactic and of each type of operands, half of them for sm_80; `KILN_KERNELS=all` takes all,
/// another text those whose case or tactic has it. What they take is listed in target/kernels.
#[test]
fn tiles_compile_and_do_not_spill() {
    if !nvrtc() {
        return;
    }
    let all = std::env::var_os("KILN_KERNELS").is_some();
    for (name, share) in [("h200", 1), ("a100", 2)] {
        let target = target::known(name).unwrap();
        let mut some: Vec<(String, String)> = sources(&target).into_iter().filter(|s| picked(&s.1)).collect();
        if !all {
            some.sort_by(|a, b| a.1.cmp(&b.1));
            let mut seen = BTreeSet::new();
            // "conv few channels f16 0 by conv.mma_64x64": once each tactic, and each type of each operator.
            let of = |what: &str| {
                let t = what.split(' ').find(|w| ["f16", "bf16", "f32", "f8e4m3", "i8", "u8"].contains(w));
                [what.rsplit(' ').next(), t, what.split(' ').next()]
                    .map(Option::unwrap_or_default)
                    .map(str::to_owned)
            };
            some.retain(|(_, what)| {
                let [tactic, t, op] = of(what);
                let new = [seen.insert(tactic), seen.insert(format!("{op} of {t}"))];
                new.contains(&true)
            });
            some = some.into_iter().step_by(share).collect();
        }
        let slow = |r: &Resources| match r.serialized {
            true => Some("products wait for each other".to_owned()),
            false => (r.spilled > MAX_SPILL).then(|| format!("{} bytes are spilled", r.spilled)),
        };
        let failed = report::compile(&some, &target.arch, "tiles", slow);
        assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), some.len(), failed.join("\n"));
    }
}

/// Blocks that share a tile's depth through shared memory must run in one cluster.
#[test]
fn blocks_that_share_are_in_clusters() {
    let mut shared = 0;
    for (text, what) in sources(&target::known("h200").unwrap()) {
        let Some((_, tile)) = what.rsplit_once("wgmma_few_") else { continue };
        let split = tile.rsplit('x').next().unwrap();
        shared += usize::from(split != "1");
        let cluster = text.contains(&format!("__cluster_dims__({split}, 1, 1)"));
        assert_eq!(cluster, split != "1", "{what}");
    }
    assert!(shared > 10, "{shared} sources");
}

#[test]
fn tiles_agree_with_the_oracle() {
    let Some((device, target)) = device() else { return };
    let of = |case: &Case| {
        let mut all = tactics(case, &target);
        all.retain(|t| picked(&format!("{} by {}", case.label, t.id())));
        all
    };
    let taken = report::sampled(cases(), &target, Case::region, of);
    let wanted = report::parallel(&taken, |(case, _)| case.graph.eval(&case.inputs).unwrap().remove(0));
    let mut failed = Vec::new();
    let mut runs = 0;
    for ((case, tactics), wanted) in taken.into_iter().zip(&wanted) {
        for t in tactics {
            let blob = Cuda.compile(&case.region(), &t, &target).unwrap();
            let program = Arc::new(Program::single_step(case.graph.clone(), t.clone(), blob));
            let mut cx = device.load(program.clone()).unwrap().context().unwrap();
            let shapes = Arc::new(program.shapes(&case.inputs).unwrap());
            let mut first: Option<Tensor> = None;
            for _ in 0..2 {
                cx.enqueue(&case.inputs, &shapes)
                    .unwrap_or_else(|e| panic!("{} by {}: {e}", case.label, t.id()));
                let found =
                    cx.outputs().unwrap_or_else(|e| panic!("{} by {}: {e}", case.label, t.id())).remove(0);
                if let Some(e) = case.differs(&found, wanted) {
                    failed.push(format!("{} by {}: {e}", case.label, t.id()));
                    break;
                }
                if first.as_ref().is_some_and(|f| f.bytes() != found.bytes()) {
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

fn speed_of(
    device: &Arc<dyn Device>,
    target: &Target,
    label: &str,
    op: &Op,
    inputs: &[Option<Tensor>],
    ops: f64,
) {
    let (program, given) = Program::single(op, inputs).unwrap();
    let region = program.region(&program.steps[0]).unwrap();
    let mut found = Cuda.tactics(&region, target).unwrap();
    found.retain(|t| of_tensor_cores(t) || t.name == "matmul_codes.few");
    found.sort_by(|a, b| a.estimate_ns.unwrap_or(0.0).total_cmp(&b.estimate_ns.unwrap_or(0.0)));
    found.truncate(10);
    let blobs = report::parallel(&found, |t| Cuda.compile(&region, t, target).unwrap());
    println!("{label}");
    for (t, blob) in found.iter().zip(&blobs) {
        let request = TimeRequest { graph: &region.graph, tactic: t, blob, inputs: &given, samples: 15 };
        let mut times = device.time(&request).unwrap();
        times.sort_by(f64::total_cmp);
        let ns = times[times.len() / 2];
        let expected = t.estimate_ns.unwrap_or(0.0) / 1e3;
        println!(
            "  {:<40} {:>9.1} us {:>7.1} T/s  (expected {expected:.1} us)",
            t.id(),
            ns / 1e3,
            ops / ns / 1e3
        );
    }
}

fn matmul_speed(device: &Arc<dyn Device>, target: &Target, t: DType, [m, n, k]: [usize; 3], trans_b: bool) {
    let mut rng = Rng::new(1);
    let b = if trans_b { [n, k] } else { [k, n] };
    let op = Op::new("matmul", Attrs::new().with("trans_b", trans_b)).unwrap();
    let inputs = [Some(rng.tensor(t, &[m, k])), Some(rng.tensor(t, &b))];
    let label = format!("matmul {t} {m}x{n}x{k}{}", if trans_b { " B transposed" } else { "" });
    speed_of(device, target, &label, &op, &inputs, 2.0 * (m * n * k) as f64);
}

/// A product by 2:4 sparse weights; operations are those of the dense product.
fn sparse_speed(device: &Arc<dyn Device>, target: &Target, t: DType, [m, n, k]: [usize; 3]) {
    let mut rng = Rng::new(1);
    let (values, places) = packed(&random_sparse(&mut rng, t, n, k)).unwrap();
    let op = Op::new("matmul_sparse", Attrs::new()).unwrap();
    let inputs = [Some(rng.tensor(t, &[m, k])), Some(values), Some(places)];
    let label = format!("matmul_sparse {t} {m}x{n}x{k}");
    speed_of(device, target, &label, &op, &inputs, 2.0 * (m * n * k) as f64);
}

/// A product of rows of f16 by weights that stay codes, in blocks of 128, with zero points.
fn codes_speed(device: &Arc<dyn Device>, target: &Target, codes: DType, [m, n, k]: [usize; 3]) {
    let mut rng = Rng::new(1);
    let op = Op::new("matmul_codes", Attrs::new().with("along", 128i64)).unwrap();
    let inputs = [
        Some(rng.tensor(DType::F16, &[m, k])),
        Some(rng.tensor_in(codes, &[n, k], 0.0, 0.0, 127)),
        Some(rng.tensor_in(DType::F16, &[n, k / 128], 0.001, 0.002, 0)),
        Some(rng.tensor_in(codes, &[n, k / 128], 0.0, 0.0, 100)),
    ];
    let label = format!("matmul_codes f16 by {codes} {m}x{n}x{k}");
    speed_of(device, target, &label, &op, &inputs, 2.0 * (m * n * k) as f64);
}

/// Decode and prefill by weights of 4 and 8 bits beside those of f16, for the numbers of rows of `KILN_ROWS`.
#[test]
#[ignore = "a measurement"]
fn speed_of_codes() {
    let Some((device, target)) = device() else { return };
    let rows = std::env::var("KILN_ROWS").unwrap_or_else(|_| "1,4,16,64,256,512,2048,4096".into());
    for rows in rows.split(',').map(|n| n.parse().unwrap()) {
        matmul_speed(&device, &target, DType::F16, [rows, 4096, 4096], true);
        codes_speed(&device, &target, DType::I4, [rows, 4096, 4096]);
        codes_speed(&device, &target, DType::I8, [rows, 4096, 4096]);
    }
}

/// Batch, side, channels, output channels, kernel, stride.
const CONVS: &[[usize; 6]] = &[
    [32, 56, 64, 64, 3, 1],
    [32, 56, 64, 256, 1, 1],
    [32, 56, 256, 64, 1, 1],
    [32, 28, 128, 128, 3, 1],
    [32, 14, 256, 256, 3, 1],
    [32, 14, 1024, 256, 1, 1],
    [32, 7, 512, 512, 3, 1],
    [32, 14, 1024, 2048, 1, 2],
    [32, 224, 3, 64, 7, 2],
    [1, 56, 64, 64, 3, 1],
    [1, 14, 256, 256, 3, 1],
];

#[test]
#[ignore = "a measurement"]
fn speed() {
    let Some((device, target)) = device() else { return };
    use DType::{BF16, F8E4M3, F16, F32, I8};
    for (t, size, trans_b) in [
        (F16, [8192, 8192, 8192], false),
        (F16, [4096, 4096, 4096], true),
        (BF16, [4096, 4096, 4096], false),
        (F16, [128, 768, 3072], false),
        (F16, [197, 3072, 768], false),
        (F16, [1, 4096, 4096], true),
        (F32, [4096, 4096, 4096], false),
        (I8, [4096, 4096, 4096], true),
        (I8, [4096, 4096, 4096], false),
        (F8E4M3, [4096, 4096, 4096], true),
        (F8E4M3, [8192, 8192, 8192], true),
    ] {
        matmul_speed(&device, &target, t, size, trans_b);
    }
    for (t, size) in [(F16, [8192, 8192, 8192]), (F16, [197, 3072, 768]), (I8, [4096, 4096, 4096])] {
        sparse_speed(&device, &target, t, size);
    }
    for &[batch, side, c, m, kernel, stride] in CONVS {
        let mut rng = Rng::new(1);
        let attrs = Attrs::new()
            .with("layout", "channels_last")
            .with("strides", vec![stride as i64; 2])
            .with("pads", vec![kernel as i64 / 2; 4]);
        let x = rng.tensor(F16, &[batch, side, side, c]);
        let inputs = [Some(x), Some(rng.tensor(F16, &[m, kernel, kernel, c])), Some(rng.tensor(F16, &[m]))];
        let out = (side / stride) * (side / stride);
        let label = format!("conv f16 {batch}x{side}x{side}x{c} to {m}, {kernel}x{kernel}, stride {stride}");
        let ops = 2.0 * (batch * out * m * kernel * kernel * c) as f64;
        speed_of(&device, &target, &label, &Op::new("conv", attrs).unwrap(), &inputs, ops);
    }
}
