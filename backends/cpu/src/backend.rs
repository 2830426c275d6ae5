//! The backend object: its target and tactics.

use crate::buffer::Options;
use crate::device::Processor;
use crate::fast;
use crate::host;
use crate::tactics::{self, FAST, check_tactic};
use kiln_backend::assisted::{HOST_IS_DEVICE, ORACLE, ORACLE_IS_FALLBACK};
use kiln_backend::{Backend, BackendError, Device, MemoryRules, Region, Tactic, Target, flow};
use kiln_ir::{Graph, Node, OpName};
use kiln_ops::conv::CONV;
use kiln_ops::matmul::MATMUL;
use std::sync::Arc;

/// Operators that the fast tactic makes matrix products of, and the depths of blocks to choose from.
const PRODUCTS: &[OpName] = &[CONV, MATMUL];
const DEPTHS: [i64; 2] = [256, 512];

/// The CPU backend.
#[derive(Clone, Debug, Default)]
pub struct Cpu {
    options: Options,
}

impl Cpu {
    /// The backend with the options of the environment: `KILN_THREADS=2` says how many threads a device has, `KILN_POISON=1` poisons
    /// reused memory. `KILN_CPU_LEVEL=avx2` limits the instruction sets of the whole process.
    pub fn new() -> Cpu {
        let poison = std::env::var_os("KILN_POISON").is_some_and(|v| v == "1");
        let threads = std::env::var("KILN_THREADS").ok().and_then(|v| v.parse().ok()).unwrap_or(0);
        Cpu { options: Options { poison, threads } }
    }

    /// The backend with these options.
    pub fn with_options(options: Options) -> Cpu {
        Cpu { options }
    }

    /// The only target: this machine's processor, with the threads of the environment.
    pub fn target() -> Target {
        Cpu::new().own_target()
    }

    /// The processor and the number of threads. Features of instruction sets are numbers, as kernels of all of them are in every build
    /// and plans run on any processor of the architecture; cached times are those of one kind of processor.
    fn own_target(&self) -> Target {
        let mut numbers = host::numbers();
        numbers.insert("threads".to_owned(), self.options.thread_count() as u64);
        Target {
            backend: "cpu".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            arch: std::env::consts::ARCH.into(),
            device: host::name(),
            driver: String::new(),
            features: vec![HOST_IS_DEVICE.into(), ORACLE_IS_FALLBACK.into()],
            numbers,
            memory: MemoryRules { alignment: 64, max_binding: u64::MAX, in_place: true, total: 0 },
            uuid: String::new(),
            traits: std::collections::BTreeMap::new(),
        }
    }
}

impl Backend for Cpu {
    fn name(&self) -> &str {
        "cpu"
    }

    fn targets(&self) -> Result<Vec<Target>, BackendError> {
        fast::simd::asked()?;
        Ok(vec![self.own_target()])
    }

    /// Accepts single layers, by a kernel or else the oracle, and larger regions of layers that all have kernels.
    fn supports(&self, region: &Region, _: &Target) -> Result<(), BackendError> {
        let mut nodes = region.graph.nodes();
        if region.single().is_some() || nodes.all(|(_, n)| fast::covers(&region.graph, n)) {
            return Ok(());
        }
        Err(BackendError::Unsupported(format!("a layer of {} has no kernel", region.label())))
    }

    fn tactics(&self, region: &Region, target: &Target) -> Result<Vec<Tactic>, BackendError> {
        if let Some(walked) = flow::tactic(region) {
            return Ok(vec![walked]);
        }
        self.supports(region, target)?;
        let g = &region.graph;
        if !g.nodes().all(|(_, n)| fast::covers(g, n)) {
            return Ok(vec![tactics::tactic(ORACLE, g)]);
        }
        let mut products = g.nodes().filter(|(_, n)| product(g, n)).peekable();
        if products.peek().is_none() {
            return Ok(vec![tactics::tactic(FAST, g)]);
        }
        // Sums that fit the least depth are the same with all.
        let one = products.all(|(_, n)| terms(g, n).is_some_and(|k| k <= DEPTHS[0]));
        let depths = DEPTHS.into_iter().take(if one { 1 } else { DEPTHS.len() });
        Ok(depths.map(|depth| tactics::tactic(FAST, g).with("depth", depth)).collect())
    }

    fn compile(&self, _: &Region, tactic: &Tactic, _: &Target) -> Result<Vec<u8>, BackendError> {
        check_tactic(&tactic.name)?;
        Ok(Vec::new())
    }

    fn open(&self, target: &Target) -> Result<Arc<dyn Device>, BackendError> {
        fast::simd::asked()?;
        let own = self.own_target();
        if target.backend != own.backend || target.arch != own.arch {
            return Err(BackendError::Incompatible(format!(
                "this is {} on {}, the target is {} on {}",
                own.backend, own.arch, target.backend, target.arch
            )));
        }
        Ok(Arc::new(Processor::new(self.options)))
    }
}

/// Whether the fast tactic makes matrix products of it.
fn product(g: &Graph, n: &Node) -> bool {
    PRODUCTS.contains(&n.op.id()) && n.outputs.iter().all(|&y| g.ty(y).dtype.is_float())
}

/// Number of products in a sum of a convolution or a product, if that is known.
fn terms(g: &Graph, n: &Node) -> Option<i64> {
    let dims = |i: usize| Some(&g.ty((*n.inputs.get(i)?)?).dims);
    if n.op.is(CONV) {
        return dims(1)?.iter().skip(1).try_fold(1_i64, |k, d| k.checked_mul(d.as_const()?));
    }
    let across = usize::from(n.op.attrs().bool("trans_a").ok()?);
    dims(0)?.iter().rev().nth(across)?.as_const()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_backend::Program;

    /// Depths of the blocks of all candidates of a graph's first node.
    fn depths(text: &str) -> Vec<Option<i64>> {
        let graph = Graph::from_text(text).unwrap();
        let program = Program::step_per_node(graph, &Tactic::plain(""));
        let region = program.region(&program.steps[0]).unwrap();
        let all = Cpu::new().tactics(&region, &Cpu::target()).unwrap();
        all.iter().map(|t| t.params.get("depth").copied()).collect()
    }

    #[test]
    fn depths_that_make_no_difference_are_offered_once() {
        let product = |k: usize| {
            format!(
                "graph \"g\" {{ input %x: f32[5,{k}] input %w: f32[{k},7] %y = matmul(%x, %w) output %y }}"
            )
        };
        assert_eq!(depths(&product(256)), [Some(256)]);
        assert_eq!(depths(&product(257)), [Some(256), Some(512)]);
        let conv = |c: usize| {
            format!(
                "graph \"g\" {{ input %x: f32[1,{c},9,9] input %w: f32[4,{c},3,3] %y = conv(%x, %w) output %y }}"
            )
        };
        assert_eq!(depths(&conv(28)), [Some(256)]);
        assert_eq!(depths(&conv(29)), [Some(256), Some(512)]);
        // The first operand lies across: of four rows, 300 terms.
        let across = "graph \"g\" { input %x: f32[300,4] input %w: f32[300,7] %y = matmul(%x, %w) {trans_a=true} output %y }";
        assert_eq!(depths(across), [Some(256), Some(512)]);
    }
}
