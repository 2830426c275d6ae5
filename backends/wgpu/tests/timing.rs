//! Times of the tactics of products on the first adapter, compilation and runs apart: `cargo nextest run -p
//! kiln-backend-wgpu --test timing --run-ignored only --no-capture`.
#![allow(clippy::print_stdout, reason = "it prints a table")]

use kiln_backend::{Backend, Program, TimeRequest};
use kiln_backend_wgpu::Wgpu;
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Op, Tensor};
use std::time::Instant;

fn measure(label: &str, op: &Op, inputs: &[Option<Tensor>]) {
    let Ok(targets) = Wgpu.targets() else { return };
    let device = Wgpu.open(&targets[0]).expect("the first target opens");
    let (program, given) = Program::single(op, inputs).expect("a program");
    let region = program.region(&program.steps[0]).expect("a region");
    for tactic in Wgpu.tactics(&region, &targets[0]).expect("tactics") {
        let blob = Wgpu.compile(&region, &tactic, &targets[0]).expect("a text");
        let start = Instant::now();
        let request =
            TimeRequest { graph: &region.graph, tactic: &tactic, blob: &blob, inputs: &given, samples: 3 };
        let mut times = device.time(&request).expect("times");
        let whole = start.elapsed().as_secs_f64() * 1e3;
        times.sort_by(f64::total_cmp);
        let rest = whole - times.iter().sum::<f64>() / 1e6;
        println!("{label}: {} {:.2} ms a run, {rest:.0} ms before", tactic.id(), times[1] / 1e6);
    }
}

#[test]
#[ignore = "a measurement"]
fn products() {
    let mut rng = Rng::new(1);
    let mut t = |t: DType, shape: &[usize]| Some(rng.tensor(t, shape));
    let op = |name: &str, attrs: Attrs| Op::new(name, attrs).expect("an operator");
    let matmul = op("matmul", Attrs::new());
    measure("256x256x256", &matmul, &[t(DType::F32, &[256, 256]), t(DType::F32, &[256, 256])]);
    measure("1x1024x1024", &matmul, &[t(DType::F32, &[1, 1024]), t(DType::F32, &[1024, 1024])]);
    measure("i8 256x256x256", &matmul, &[t(DType::I8, &[256, 256]), t(DType::I8, &[256, 256])]);
    let same = || Attrs::new().with("pads", vec![1i64, 1, 1, 1]);
    let conv = op("conv", same());
    measure(
        "conv 56x56x64 3x3",
        &conv,
        &[t(DType::F32, &[1, 64, 56, 56]), t(DType::F32, &[64, 64, 3, 3]), None],
    );
    measure(
        "i8 conv 28x28x32",
        &conv,
        &[t(DType::I8, &[1, 32, 28, 28]), t(DType::I8, &[32, 32, 3, 3]), None],
    );
    let lenet = op("conv", Attrs::new());
    measure(
        "conv 5x5 of lenet",
        &lenet,
        &[t(DType::F32, &[1, 6, 14, 14]), t(DType::F32, &[16, 6, 5, 5]), None],
    );
}
