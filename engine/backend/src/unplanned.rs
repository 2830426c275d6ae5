//! Programs without a builder: one step, every value in memory of its own. For timing, tests and tools.

use crate::program::{MemoryPlan, Place, Program, Step};
use crate::{Backend, BackendError, Region, Tactic, Target, flow};
use kiln_ir::{Bytes, Graph, Node, Op, Source, Tensor, ValueId};

/// Alignment of values where no target says another.
const ALIGNMENT: u64 = 256;

impl Program {
    /// A program that runs `graph` as a single step.
    pub fn single_step(graph: Graph, tactic: Tactic, blob: Vec<u8>) -> Program {
        let nodes = graph.order().to_vec();
        let name = graph.nodes().map(|(_, n)| n.name.as_str()).collect::<Vec<_>>().join(" + ");
        let memory = spread(&graph);
        Program::new(graph, vec![Step::new(name, nodes, tactic, Bytes::from(blob))], memory)
    }

    /// A program of one operator, with the tensors to run it with: contents of host ports are constants of the
    /// program, all else is an input. The step has no tactic yet: see [`Program::choose`].
    pub fn single(op: &Op, inputs: &[Option<Tensor>]) -> Result<(Program, Vec<Tensor>), BackendError> {
        let mut graph = Graph::new(op.name());
        let mut given = Vec::new();
        let mut values = Vec::new();
        for (i, t) in inputs.iter().enumerate() {
            let Some(t) = t else {
                values.push(None);
                continue;
            };
            let name = format!("x{i}");
            values.push(Some(if op.port(i).is_some_and(|p| p.host) {
                graph.add_constant(&name, t.clone())
            } else {
                given.push(t.clone());
                graph.add_input(&name, kiln_ir::Fact::of(t.ty()))
            }));
        }
        graph.outputs = graph.add_node(op.name(), op.clone(), &values)?;
        Ok((Program::single_step(graph, Tactic::plain(""), Vec::new()), given))
    }

    /// Sets every step to the backend's first tactic, compiled.
    pub fn choose(&mut self, backend: &dyn Backend, target: &Target) -> Result<(), BackendError> {
        self.choose_for(&[], backend, target)
    }

    /// Chooses for the body of a loop, where these values are at another place in every iteration.
    fn choose_for(
        &mut self,
        slices: &[ValueId],
        backend: &dyn Backend,
        target: &Target,
    ) -> Result<(), BackendError> {
        for i in 0..self.steps.len() {
            let region = self.region(&self.steps[i])?;
            let tactic = backend.tactics(&region, target)?.into_iter().next().ok_or_else(|| {
                BackendError::Unsupported(format!("{}: the backend names no tactic", region.label()))
            })?;
            if tactic.name == flow::INTERPRETED {
                self.steps[i].bodies = bodies(&region, backend, target)?;
            }
            let tactic = flow::sliced(tactic, &region, slices);
            self.steps[i].blob = Bytes::from(backend.compile(&region, &tactic, target)?);
            self.steps[i].tactic = tactic;
        }
        Ok(())
    }
}

/// The bodies of a region of control flow, a step for each node.
fn bodies(region: &Region, backend: &dyn Backend, target: &Target) -> Result<Vec<Program>, BackendError> {
    let regions = region.graph.nodes().flat_map(|(_, n)| n.regions.iter().enumerate().map(move |r| (n, r)));
    let body = |(node, (i, g)): (&Node, (usize, &Graph))| {
        let mut p = Program::step_per_node(g.clone(), &Tactic::plain(""));
        p.memory = spread(&p.graph);
        p.choose_for(&flow::slices(node, i, g, target), backend, target)?;
        Ok(p)
    };
    regions.map(body).collect()
}

/// A place of its own for every value.
fn spread(graph: &Graph) -> MemoryPlan {
    let mut arena = 0u64;
    let mut place = |v| match &graph.value(v).source {
        Source::Input => {
            graph.inputs.iter().position(|&i| i == v).map_or(Place::None, |i| Place::Input(i as u32))
        }
        Source::Weight(_) => Place::Weight,
        Source::Dead => Place::None,
        Source::Node(..) => {
            let ty = graph.ty(v);
            let Some(size) = ty.static_volume().and_then(|n| ty.dtype.bytes_for(n as u64)) else {
                return Place::Dynamic;
            };
            let offset = arena;
            arena += size.div_ceil(ALIGNMENT) * ALIGNMENT;
            Place::Arena { offset, size }
        }
    };
    let places = graph.value_ids().map(&mut place).collect();
    MemoryPlan { places, arena, scratch: arena }
}
