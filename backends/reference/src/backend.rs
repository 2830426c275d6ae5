//! The backend object: its target and tactics.

use crate::buffer::Options;
use crate::device::Cpu;
use crate::fast;
use crate::tactics::{self, FAST, ORACLE, check_tactic};
use kiln_backend::assisted::HOST_IS_DEVICE;
use kiln_backend::{Backend, BackendError, Device, MemoryRules, Region, Tactic, Target, flow};
use kiln_ir::{Graph, Node, OpName};
use kiln_ops::conv::CONV;
use kiln_ops::matmul::MATMUL;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Operators that the fast tactic makes matrix products of, and the depths of blocks to choose from.
const PRODUCTS: &[OpName] = &[CONV, MATMUL];
const DEPTHS: [i64; 2] = [256, 512];

/// The CPU reference backend.
#[derive(Clone, Debug, Default)]
pub struct Reference {
    options: Options,
}

impl Reference {
    /// The backend with the options of the environment: `KILN_POISON=1` poisons reused memory.
    pub fn new() -> Reference {
        let poison = std::env::var_os("KILN_POISON").is_some_and(|v| v == "1");
        Reference { options: Options { poison } }
    }

    /// The backend with these options.
    pub fn with_options(options: Options) -> Reference {
        Reference { options }
    }

    /// The only target: this machine's processor.
    pub fn target() -> Target {
        Target {
            backend: "reference".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            arch: std::env::consts::ARCH.into(),
            device: "cpu".into(),
            driver: String::new(),
            features: vec![HOST_IS_DEVICE.into()],
            // Times of one processor say little of another; plans run on both.
            numbers: BTreeMap::from([("vector_bits".to_owned(), fast::vector_bits())]),
            memory: MemoryRules { alignment: 64, max_binding: u64::MAX, in_place: true, total: 0 },
        }
    }
}

impl Backend for Reference {
    fn name(&self) -> &str {
        "reference"
    }

    fn targets(&self) -> Result<Vec<Target>, BackendError> {
        Ok(vec![Reference::target()])
    }

    /// The oracle runs whatever the verifier accepts.
    fn supports(&self, _: &Region, _: &Target) -> Result<(), BackendError> {
        Ok(())
    }

    fn tactics(&self, region: &Region, _target: &Target) -> Result<Vec<Tactic>, BackendError> {
        if let Some(walked) = flow::tactic(region) {
            return Ok(vec![walked]);
        }
        let mut tactics = Vec::new();
        let mut products = region.graph.nodes().filter(|(_, n)| product(&region.graph, n)).peekable();
        if products.peek().is_some() {
            // Sums that fit the least depth are the same with all.
            let one = products.all(|(_, n)| terms(&region.graph, n).is_some_and(|k| k <= DEPTHS[0]));
            for depth in DEPTHS.into_iter().take(if one { 1 } else { DEPTHS.len() }) {
                let mut t = tactics::tactic(FAST, &region.graph);
                t.params.insert("depth".into(), depth);
                tactics.push(t);
            }
        } else if region.graph.nodes().any(|(_, n)| fast::covers(n)) {
            tactics.push(tactics::tactic(FAST, &region.graph));
        }
        tactics.push(tactics::tactic(ORACLE, &region.graph));
        Ok(tactics)
    }

    fn compile(&self, _: &Region, tactic: &Tactic, _: &Target) -> Result<Vec<u8>, BackendError> {
        check_tactic(&tactic.name)?;
        Ok(Vec::new())
    }

    fn open(&self, target: &Target) -> Result<Arc<dyn Device>, BackendError> {
        let own = Reference::target();
        if target.backend != own.backend || target.arch != own.arch {
            return Err(BackendError::Incompatible(format!(
                "this is {} on {}, the target is {} on {}",
                own.backend, own.arch, target.backend, target.arch
            )));
        }
        kiln_backend::threads::prepare();
        Ok(Arc::new(Cpu::new(self.options)))
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

    /// Depths of the blocks of all candidates of a graph's first node; none of the oracle.
    fn depths(text: &str) -> Vec<Option<i64>> {
        let graph = Graph::from_text(text).unwrap();
        let program = Program::step_per_node(graph, &Tactic::plain(""));
        let region = program.region(&program.steps[0]).unwrap();
        let all = Reference::new().tactics(&region, &Reference::target()).unwrap();
        all.iter().map(|t| t.params.get("depth").copied()).collect()
    }

    #[test]
    fn depths_that_make_no_difference_are_offered_once() {
        let product = |k: usize| {
            format!(
                "graph \"g\" {{ input %x: f32[5,{k}] input %w: f32[{k},7] %y = matmul(%x, %w) output %y }}"
            )
        };
        assert_eq!(depths(&product(256)), [Some(256), None]);
        assert_eq!(depths(&product(257)), [Some(256), Some(512), None]);
        let conv = |c: usize| {
            format!(
                "graph \"g\" {{ input %x: f32[1,{c},9,9] input %w: f32[4,{c},3,3] %y = conv(%x, %w) output %y }}"
            )
        };
        assert_eq!(depths(&conv(28)), [Some(256), None]);
        assert_eq!(depths(&conv(29)), [Some(256), Some(512), None]);
        // The first operand lies across: of four rows, 300 terms.
        let across = "graph \"g\" { input %x: f32[300,4] input %w: f32[300,7] %y = matmul(%x, %w) {trans_a=true} output %y }";
        assert_eq!(depths(across), [Some(256), Some(512), None]);
    }
}
