//! Times of the fast tactic for the sizes of well-known layers: `cargo run --release -p kiln-backend-cpu --example speed`.

use kiln_backend::{Backend, Tactic, TimeRequest};
use kiln_backend_cpu::Cpu;
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Fact, Graph, Op, Tensor};

fn time(op: Op, inputs: Vec<Tensor>) -> Result<f64, Box<dyn std::error::Error>> {
    let mut graph = Graph::new("speed");
    let ids: Vec<_> =
        inputs.iter().enumerate().map(|(i, t)| graph.add_input(&format!("x{i}"), Fact::of(t.ty()))).collect();
    let y = graph.add("y", op, &ids)?;
    graph.outputs = vec![y];
    let device = Cpu::new().open(&Cpu::target())?;
    let tactic = Tactic::plain("fast");
    let request = TimeRequest { graph: &graph, tactic: &tactic, blob: &[], inputs: &inputs, samples: 5 };
    let mut t = device.time(&request)?;
    t.sort_by(f64::total_cmp);
    Ok(t[t.len() / 2])
}

#[allow(clippy::print_stdout, reason = "it is what the example is for")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut rng = Rng::new(1);
    for (m, k, n) in [(512, 512, 512), (1, 2048, 1000), (128, 768, 3072)] {
        let inputs = vec![rng.tensor(DType::F32, &[m, k]), rng.tensor(DType::F32, &[k, n])];
        let ns = time(Op::new("matmul", Attrs::new())?, inputs)?;
        println!("matmul {m}×{k}×{n}: {:.3} ms, {:.1} GFLOP/s", ns / 1e6, 2.0 * (m * n * k) as f64 / ns);
    }
    for (c, size, m, kernel, stride, groups) in [
        (64, 56, 64, 3, 1, 1),
        (256, 56, 64, 1, 1, 1),
        (3, 224, 64, 7, 2, 1),
        (512, 7, 512, 3, 1, 1),
        (96, 56, 96, 3, 1, 96),
    ] {
        let attrs = Attrs::new()
            .with("strides", vec![i64::from(stride); 2])
            .with("pads", vec![(kernel as i64 - 1) / 2; 4])
            .with("groups", groups as i64);
        let x = rng.tensor(DType::F32, &[1, c, size, size]);
        let w = rng.tensor(DType::F32, &[m, c / groups, kernel, kernel]);
        let ns = time(Op::new("conv", attrs)?, vec![x, w])?;
        let out = size / stride as usize;
        let flops = 2.0 * (m * out * out * (c / groups) * kernel * kernel) as f64;
        println!("conv {c}→{m} {size}² k{kernel}: {:.3} ms, {:.1} GFLOP/s", ns / 1e6, flops / ns);
    }
    Ok(())
}
