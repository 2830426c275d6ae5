//! Shapes of one run: facts of all values, sharpened as data-dependent sizes become known.

use crate::BackendError;
use crate::assisted::{self, Reason};
use crate::program::{Program, Step};
use kiln_ir::dim::DimKind;
use kiln_ir::{Dim, Fact, Graph, Node, Tensor, ValueId};
use kiln_ops::generate::ASSERTION;
use kiln_ops::plugin::PLUGIN;

/// Facts of all values of a program for one run.
#[derive(Clone, Debug)]
pub struct Shapes {
    facts: Vec<Fact>,
    changed: Vec<bool>,
    case: u32,
}

impl Program {
    /// Facts of all values for inputs of these shapes and, where they are shape inputs, these contents.
    pub fn shapes(&self, inputs: &[Tensor]) -> Result<Shapes, BackendError> {
        let host = self.shape_inputs();
        let facts: Vec<Fact> = inputs
            .iter()
            .enumerate()
            .map(|(i, t)| if host.contains(&i) { Fact::constant(t.clone()) } else { Fact::of(t.ty()) })
            .collect();
        Ok(Shapes::new(self.graph.infer_from(&facts)?))
    }
}

impl Shapes {
    /// Facts by [`ValueId`].
    pub fn new(facts: Vec<Fact>) -> Shapes {
        let changed = vec![false; facts.len()];
        Shapes { facts, changed, case: 0 }
    }

    /// The shapes for a case of the program: a position in [`Program::cases`].
    pub fn in_case(self, case: u32) -> Shapes {
        Shapes { case, ..self }
    }

    /// The case of the program.
    pub fn case(&self) -> u32 {
        self.case
    }

    /// Facts of a value at this point of the run.
    pub fn fact(&self, v: ValueId) -> &Fact {
        &self.facts[v.0 as usize]
    }

    /// The shape of a value, if all its dimensions are known now.
    pub fn shape(&self, v: ValueId) -> Option<Vec<usize>> {
        self.fact(v).ty.static_dims()
    }

    /// The elements of a value of `graph`, if they are known now: those of a weight, or what the host has computed.
    pub fn content(&self, graph: &Graph, v: ValueId) -> Option<Tensor> {
        graph.weight(v).map(|w| &w.tensor).or(self.fact(v).as_const()).cloned()
    }

    /// Refuses inputs of a run that are not as many, or not of the types, that these shapes were made for.
    pub fn check_inputs(&self, graph: &Graph, inputs: &[Tensor]) -> Result<(), BackendError> {
        if inputs.len() != graph.inputs.len() {
            return Err(BackendError::InvalidArgument(format!(
                "the program has {} inputs, {} were given",
                graph.inputs.len(),
                inputs.len()
            )));
        }
        for (&v, t) in graph.inputs.iter().zip(inputs) {
            let wanted = &self.fact(v).ty;
            if t.dtype() != wanted.dtype || wanted.static_dims().as_deref() != Some(t.shape()) {
                return Err(BackendError::InvalidArgument(format!(
                    "input \"{}\" is {}, the shapes were made for {wanted}",
                    graph.value(v).name,
                    t.ty()
                )));
            }
        }
        Ok(())
    }

    /// Whether all shapes of a step are known, and the contents of its host ports.
    pub fn ready(&self, program: &Program, step: &Step) -> bool {
        self.unknown_host_ports(program, step).is_empty()
            && step.nodes.iter().filter_map(|&n| program.graph.get(n)).all(|n| {
                let ins = n.inputs.iter().flatten();
                ins.chain(&n.outputs).all(|&v| self.shape(v).is_some())
            })
    }

    /// Values that feed host ports of a step and whose contents are not known: they must be read back and given to
    /// [`Shapes::set_content`] before the step can be launched.
    pub fn unknown_host_ports(&self, program: &Program, step: &Step) -> Vec<ValueId> {
        let mut out = Vec::new();
        for node in step.nodes.iter().filter_map(|&n| program.graph.get(n)) {
            for (i, v) in node.inputs.iter().enumerate() {
                let host = node.op.port(i).is_some_and(|p| p.host);
                if let Some(v) = v.filter(|&v| host && self.fact(v).as_const().is_none()) {
                    out.push(v);
                }
            }
        }
        out
    }

    /// Bytes of a value of `program` in this run; an internal error where its size is not known yet.
    pub fn bytes(&self, program: &Program, v: ValueId) -> Result<u64, BackendError> {
        let ty = &self.fact(v).ty;
        let n = ty.static_volume().and_then(|n| ty.dtype.bytes_for(n as u64));
        n.ok_or_else(|| {
            let name = &program.graph.value(v).name;
            match ty.dims.iter().all(|d| d.as_const().is_some()) {
                true => BackendError::Unsupported(format!("\"{name}\" is {ty}, which no memory can hold")),
                false => BackendError::Internal(format!("the size of \"{name}\" ({ty}) is not known")),
            }
        })
    }

    /// Records the words that a step with results of unknown size left in memory: sizes, as
    /// [`Shapes::set_sizes`] takes them, or, of an assertion with its message, 0 where it holds.
    pub fn set_counted(
        &mut self,
        layer: &str,
        assertion: Option<&str>,
        results: &[ValueId],
        words: &[u8],
    ) -> Result<(), BackendError> {
        let mut sizes = words.as_chunks::<4>().0.iter().map(|c| u32::from_le_bytes(*c) as usize);
        match assertion {
            None => self.set_sizes(results, sizes),
            Some(message) => assertion_outcome(sizes.next() == Some(0), layer, message),
        }
    }

    /// Whether an assertion holds, if the host knows the elements that it checks, so that no device has to be asked.
    fn asserted(&self, program: &Program, step: &Step) -> Option<bool> {
        let mut nodes = step.nodes.iter().filter_map(|&n| program.graph.get(n));
        let checked = nodes.find(|n| n.op.is(ASSERTION))?.inputs.first().copied().flatten()?;
        let elements = self.content(&program.graph, checked)?;
        Some(elements.to_f64().iter().all(|&x| x != 0.0))
    }

    /// Reason why the host has to read the words that a step counts on the device: the size of its results,
    /// or whether an assertion holds. None for steps that count nothing, and for assertions about elements
    /// that the host knows.
    pub fn counted(&self, program: &Program, step: &Step) -> Option<Reason> {
        let has = |p: fn(&Node) -> bool| step.nodes.iter().filter_map(|&n| program.graph.get(n)).any(p);
        let finds = |n: &Node| {
            let found = |&v: &ValueId| self.fact(v).ty.dims.iter().any(|d| d.kind() == DimKind::Device);
            n.op.is(PLUGIN) && n.outputs.iter().any(found)
        };
        if has(|n| n.op.def().traits.data_dependent)
            || step.nodes.iter().filter_map(|&n| program.graph.get(n)).any(finds)
        {
            return Some(assisted::SIZES);
        }
        let asks = has(|n| n.op.is(ASSERTION)) && self.asserted(program, step).is_none();
        asks.then_some(assisted::CHECKS)
    }

    /// Checks an assertion with this message on the host, where it knows the elements.
    pub fn check_assertion(&self, program: &Program, step: &Step, message: &str) -> Result<(), BackendError> {
        assertion_outcome(self.asserted(program, step).unwrap_or(true), &step.name, message)
    }

    /// Records the real shape of a data-dependent value.
    pub fn set_shape(&mut self, v: ValueId, shape: &[usize]) {
        let fact = &mut self.facts[v.0 as usize];
        fact.ty.dims = shape.iter().map(|&d| (d as i64).into()).collect();
        self.changed[v.0 as usize] = true;
    }

    /// Refuses a shape in which a value of `graph` came out, if it is another one than that of the run.
    pub fn check_shape(&self, graph: &Graph, v: ValueId, shape: &[usize]) -> Result<(), BackendError> {
        match self.shape(v) {
            Some(wanted) if wanted != shape => Err(BackendError::InvalidArgument(format!(
                "\"{}\" came out as {shape:?}; the shapes of the run say {wanted:?}",
                graph.value(v).name
            ))),
            _ => Ok(()),
        }
    }

    /// Records the shape in which a value of `graph` came out; refuses one that is not that of the run.
    pub fn came_out(&mut self, graph: &Graph, v: ValueId, shape: &[usize]) -> Result<(), BackendError> {
        self.check_shape(graph, v, shape)?;
        if self.shape(v).is_none() {
            self.set_shape(v, shape);
        }
        Ok(())
    }

    /// Records the real shapes of data-dependent values from the sizes that a device reported. There is one
    /// for each dimension that is not a number, in the order of values and dimensions; equal dimensions are
    /// reported once.
    pub fn set_sizes(
        &mut self,
        values: &[ValueId],
        sizes: impl IntoIterator<Item = usize>,
    ) -> Result<(), BackendError> {
        let mut sizes = sizes.into_iter();
        let mut known: Vec<(Dim, usize)> = Vec::new();
        for &v in values {
            let mut shape = Vec::new();
            for d in self.fact(v).ty.dims.clone() {
                let n = match (d.as_const(), known.iter().find(|(k, _)| *k == d)) {
                    (Some(n), _) => n as usize,
                    (_, Some((_, n))) => *n,
                    _ => {
                        let n = sizes.next().ok_or_else(|| BackendError::Internal("too few sizes".into()))?;
                        if let Some(most) =
                            d.upper_bound().and_then(|b| b.as_const()).filter(|&b| n as i64 > b)
                        {
                            return Err(BackendError::InvalidArgument(format!(
                                "a kernel found the size {n}, and the layer says at most {most}; report it to the kernel's author"
                            )));
                        }
                        known.push((d, n));
                        n
                    }
                };
                shape.push(n);
            }
            self.set_shape(v, &shape);
        }
        Ok(())
    }

    /// Records contents that were read back.
    pub fn set_content(&mut self, v: ValueId, t: Tensor) {
        self.facts[v.0 as usize] = Fact::constant(t);
        self.changed[v.0 as usize] = true;
    }

    /// Records the elements of those inputs of `graph` whose positions are wanted.
    pub fn set_inputs(&mut self, graph: &Graph, inputs: &[Tensor], wanted: impl Fn(usize) -> bool) {
        for (i, (&v, t)) in graph.inputs.iter().zip(inputs).enumerate() {
            if wanted(i) && self.fact(v).as_const().is_none() {
                self.set_content(v, t.clone());
            }
        }
    }

    /// Infers the nodes of a step again if anything that they read has become better known. Call before launching
    /// each step.
    pub fn update(&mut self, program: &Program, step: &Step) -> Result<(), BackendError> {
        for node in step.nodes.iter().filter_map(|&n| program.graph.get(n)) {
            if !node.inputs.iter().flatten().any(|v| self.changed[v.0 as usize]) {
                continue;
            }
            let ins: Vec<_> = node.inputs.iter().map(|v| v.map(|v| self.fact(v).clone())).collect();
            for (v, f) in node.outputs.iter().zip(node.infer(&ins)?) {
                self.facts[v.0 as usize] = f;
                self.changed[v.0 as usize] = true;
            }
        }
        Ok(())
    }
}

fn assertion_outcome(holds: bool, layer: &str, message: &str) -> Result<(), BackendError> {
    let message = || format!("assertion failed: {message}");
    if holds { Ok(()) } else { Err(BackendError::Execution { layer: layer.to_owned(), message: message() }) }
}
