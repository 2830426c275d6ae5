//! Times of a network of the shape of ResNet-50, batch 1: `cargo run --release -p kiln-backend-cpu --example resnet`.

use kiln_backend::{Backend, Program, Tactic};
use kiln_backend_cpu::Cpu;
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, TensorType};
use kiln_network::{Network, NetworkError, TensorId};
use std::sync::Arc;
use std::time::Instant;

struct Resnet {
    net: Network,
    rng: Rng,
}

impl Resnet {
    fn layer(&mut self, op: &str, attrs: Attrs, ins: &[TensorId]) -> Result<TensorId, NetworkError> {
        let ins: Vec<_> = ins.iter().copied().map(Some).collect();
        Ok(self.net.add_layer("", op, attrs, &ins)?[0])
    }

    fn conv(
        &mut self,
        x: TensorId,
        from: usize,
        to: usize,
        k: usize,
        s: i64,
    ) -> Result<TensorId, NetworkError> {
        let w = self.rng.tensor_in(DType::F32, &[to, from, k, k], -0.05, 0.05, 0);
        let w = self.net.add_weights(None, w)?;
        let b = self.rng.tensor_in(DType::F32, &[to], -0.1, 0.1, 0);
        let b = self.net.add_weights(None, b)?;
        let attrs = Attrs::new().with("strides", vec![s; 2]).with("pads", vec![k as i64 / 2; 4]);
        self.layer("conv", attrs, &[x, w, b])
    }

    fn block(&mut self, x: TensorId, from: usize, mid: usize, s: i64) -> Result<TensorId, NetworkError> {
        let mut y = self.conv(x, from, mid, 1, 1)?;
        y = self.layer("relu", Attrs::new(), &[y])?;
        y = self.conv(y, mid, mid, 3, s)?;
        y = self.layer("relu", Attrs::new(), &[y])?;
        y = self.conv(y, mid, 4 * mid, 1, 1)?;
        let x = if from == 4 * mid { x } else { self.conv(x, from, 4 * mid, 1, s)? };
        y = self.layer("add", Attrs::new(), &[x, y])?;
        self.layer("relu", Attrs::new(), &[y])
    }

    fn build(mut self) -> Result<Network, NetworkError> {
        let mut x = self.net.add_input("x", TensorType::new(DType::F32, [1, 3, 224, 224]))?;
        x = self.conv(x, 3, 64, 7, 2)?;
        x = self.layer("relu", Attrs::new(), &[x])?;
        let pool = Attrs::new().with("kernel", vec![3i64; 2]).with("strides", vec![2i64; 2]);
        x = self.layer("pool", pool.with("pads", vec![1i64; 4]), &[x])?;
        let mut channels = 64;
        for (stage, (mid, count)) in [(64, 3), (128, 4), (256, 6), (512, 3)].into_iter().enumerate() {
            for i in 0..count {
                x = self.block(x, channels, mid, if stage > 0 && i == 0 { 2 } else { 1 })?;
                channels = 4 * mid;
            }
        }
        let last = Attrs::new().with("op", "average").with("kernel", vec![7i64; 2]);
        x = self.layer("pool", last, &[x])?;
        self.net.mark_output(x, "y")?;
        Ok(self.net)
    }
}

#[allow(clippy::print_stdout, reason = "it is what the example is for")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let net = Resnet { net: Network::new("resnet50"), rng: Rng::new(1) }.build()?;
    let program = Arc::new(Program::step_per_node(net.lower()?, &Tactic::plain("fast")));
    let mut cx = Cpu::new().open(&Cpu::target())?.load(program.clone())?.context()?;
    let x = Rng::new(2).tensor(DType::F32, &[1, 3, 224, 224]);
    let shapes = Arc::new(program.shapes(std::slice::from_ref(&x))?);
    for i in 0..6 {
        let start = Instant::now();
        cx.enqueue(std::slice::from_ref(&x), &shapes)?;
        cx.outputs()?;
        println!("run {i}: {:.1} ms, {:?}", start.elapsed().as_secs_f64() * 1e3, cx.counters());
    }
    let mut times = cx.step_times()?;
    times.sort_by(|a, b| b.ns.total_cmp(&a.ns));
    for t in times.iter().take(8) {
        let node = program.graph.get(program.steps[t.step].nodes[0]).map(|n| n.op.name());
        println!("{:8.2} ms {} {}", t.ns / 1e6, node.unwrap_or_default(), program.steps[t.step].name);
    }
    Ok(())
}
