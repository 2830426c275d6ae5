//! Times of convolutions and pooling in both layouts: `cargo run --release -p kiln-backend-cpu --example layouts`.

use kiln_backend::{Backend, Program, Region, Tactic, TimeRequest};
use kiln_backend_cpu::Cpu;
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Op};
use kiln_ops::layout::Layout;

/// Operator, image [C, H, W], kernel, stride, output channels and groups.
type Case = (&'static str, [usize; 3], usize, i64, usize, usize);

const CASES: &[Case] = &[
    ("conv", [3, 224, 224], 7, 2, 64, 1),
    ("conv", [64, 56, 56], 1, 1, 64, 1),
    ("conv", [64, 56, 56], 3, 1, 64, 1),
    ("conv", [256, 56, 56], 1, 1, 64, 1),
    ("conv", [128, 28, 28], 3, 1, 128, 1),
    ("conv", [256, 14, 14], 3, 1, 256, 1),
    ("conv", [512, 7, 7], 3, 1, 512, 1),
    ("conv", [256, 28, 28], 1, 2, 512, 1),
    ("conv", [32, 56, 56], 3, 1, 64, 4),
    ("conv", [96, 56, 56], 3, 1, 96, 96),
    ("pool", [64, 112, 112], 3, 2, 0, 1),
];

#[allow(clippy::print_stdout, reason = "it is what the example is for")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let backend = Cpu::new();
    let target = Cpu::target();
    let device = backend.open(&target)?;
    let mut rng = Rng::new(1);
    for &(op, image, k, stride, m, groups) in CASES {
        let mut line = format!("{op} {image:?} {k}×{k} stride {stride}, {m} outputs, {groups} groups:");
        for layout in [Layout::Linear, Layout::ChannelsLast] {
            let pads = vec![k as i64 / 2; 4];
            let mut attrs = Attrs::new().with("strides", vec![stride; 2]).with("pads", pads);
            attrs = attrs.with("layout", layout.name());
            let x = rng.tensor(DType::F32, &layout.from_linear(&[1, image[0], image[1], image[2]]));
            let mut inputs = vec![Some(x)];
            if op == "conv" {
                attrs = attrs.with("groups", groups as i64);
                let w = layout.from_linear(&[m, image[0] / groups, k, k]);
                inputs.push(Some(rng.tensor(DType::F32, &w)));
                inputs.push(Some(rng.tensor(DType::F32, &[m])));
            } else {
                attrs = attrs.with("kernel", vec![k as i64; 2]);
            }
            let (program, inputs) = Program::single(&Op::new(op, attrs)?, &inputs)?;
            let region = Region::extract(&program.graph, program.graph.order())?;
            let tactic = Tactic::plain("fast");
            let blob = backend.compile(&region, &tactic, &target)?;
            let request = TimeRequest {
                graph: &program.graph,
                tactic: &tactic,
                blob: &blob,
                inputs: &inputs,
                samples: 15,
            };
            let mut times = device.time(&request)?;
            times.sort_by(f64::total_cmp);
            line += &format!("  {} {:.3} ms", layout.name(), times.first().copied().unwrap_or(0.0) / 1e6);
        }
        println!("{line}");
    }
    Ok(())
}
