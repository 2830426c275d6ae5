//! Control flow that the host walks: it decides, values stay on the device between the bodies.
//!
//! A body reads its inputs where they are and writes its outputs into memory of a pool. Equal requests get
//! equal memory. So the carried values of a loop alternate between two buffers each, and a body's launches
//! are prepared once for each of these.

use crate::device::Queue;
use crate::launches::Key;
use crate::run::{Bodies, Body, Executor, Records};
use crate::slots::{Elements, Stack};
use crate::value::{Pool, Value, tensor};
use kiln_backend::flow::{Machine, walk};
use kiln_backend::{BackendError, Place, Shapes, StepTime};
use kiln_ir::{Fact, LoopOutputKind, Node, Tensor, TensorType, ValueId};
use std::sync::Arc;

impl<D: Executor> Bodies<D> {
    /// Runs the node of the step.
    pub fn walk(
        &mut self,
        queue: &mut D::Queue,
        node: &Node,
        inputs: &[Value<D>],
        outputs: &[Fact],
    ) -> Result<Vec<Value<D>>, BackendError> {
        let records = self.records();
        let Bodies { list, pool, host_syncs, .. } = self;
        walk(node, inputs, outputs, &mut Walk { list, pool, host_syncs, records, queue })
    }
}

/// One walk.
struct Walk<'a, D: Executor> {
    list: &'a mut Vec<Body<D>>,
    pool: &'a Pool<D>,
    host_syncs: &'a mut u64,
    records: Records<D>,
    queue: &'a mut D::Queue,
}

impl<D: Executor> Walk<'_, D> {
    /// The elements of a value. What steps recorded so far comes first.
    fn fetch(&mut self, v: &Value<D>) -> Result<Tensor, BackendError> {
        if let Some(t) = v.known.get() {
            return Ok(t.clone());
        }
        *self.host_syncs += 1;
        let mut from = vec![(v.at.clone(), v.bytes()? as usize)];
        from.extend(self.records.iter().map(|(_, at)| at.clone()));
        let mut bytes = self.queue.read(&from)?.into_iter();
        let found = tensor(&v.ty, bytes.next().unwrap_or_default())?;
        self.records.iter().zip(bytes).try_for_each(|((p, _), records)| p.check_records(&records))?;
        Ok(v.known.get_or_init(|| found).clone())
    }
}

impl<D: Executor> Machine for Walk<'_, D> {
    type Value = Value<D>;
    type Elements = Elements<D>;
    type Stack = Stack<D>;

    fn run(&mut self, body: usize, inputs: Vec<Value<D>>) -> Result<Vec<Value<D>>, BackendError> {
        let lost = || BackendError::InvalidArgument(format!("an interpreted step has no body {body}"));
        let shape_inputs = &self.list.get(body).ok_or_else(lost)?.run.loaded.clone().shape_inputs;
        for v in shape_inputs.iter().filter_map(|&i| inputs.get(i)) {
            self.fetch(v)?;
        }
        let body = self.list.get_mut(body).ok_or_else(lost)?;
        let outputs = body.run(self.queue, self.pool, &inputs);
        let outputs = outputs.inspect_err(|e| body.run.forget(e))?;
        self.queue.relieve()?;
        Ok(outputs)
    }

    fn number(&mut self, v: &Value<D>) -> Result<i64, BackendError> {
        let one = v.ty.static_volume() == Some(1);
        let t = one.then(|| self.fetch(v)).transpose()?;
        t.and_then(|t| t.scalar_i64()).ok_or_else(|| {
            BackendError::InvalidArgument(format!("{} decides on control flow, wants one element", v.ty))
        })
    }

    fn bytes(&self, v: &Value<D>) -> u64 {
        v.bytes().unwrap_or(u64::MAX)
    }

    fn fact(&mut self, v: &Value<D>) -> Result<Option<Fact>, BackendError> {
        let small = v.ty.static_volume().is_some_and(|n| n <= kiln_ir::infer::MAX_CONTENT);
        Ok(Some(if small { Fact::constant(self.fetch(v)?) } else { Fact::of(v.ty.clone()) }))
    }

    fn elements(&mut self, v: &Value<D>, axis: usize) -> Result<Elements<D>, BackendError> {
        Elements::new(self.queue, self.pool, v, axis)
    }

    fn element(&mut self, all: &mut Elements<D>, at: i64) -> Result<Value<D>, BackendError> {
        all.element(self.queue, at)
    }

    fn stack(&mut self, count: Option<i64>) -> Stack<D> {
        Stack::new(count)
    }

    fn push(&mut self, all: &mut Stack<D>, v: Value<D>) -> Result<(), BackendError> {
        all.push(self.queue, self.pool, &v)
    }

    fn stacked(
        &mut self,
        all: &Stack<D>,
        kind: LoopOutputKind,
        axis: usize,
        length: Option<usize>,
        empty: &TensorType,
    ) -> Result<Value<D>, BackendError> {
        all.stacked(self.queue, self.pool, (kind, axis), length, empty)
    }
}

impl<D: Executor> Body<D> {
    /// Runs the body; the contents of shape inputs are known.
    fn run(
        &mut self,
        queue: &mut D::Queue,
        pool: &Pool<D>,
        inputs: &[Value<D>],
    ) -> Result<Vec<Value<D>>, BackendError> {
        let shapes = self.inferred(inputs)?;
        self.run.begin();
        self.run.may_leave_open = false;
        let made = self.run.memory.input_buffers;
        self.bind_inputs(queue, inputs)?;
        if self.run.memory.input_buffers != made {
            self.run.launches.clear();
        }
        let outputs = self.bind_outputs(queue, pool, &shapes)?;
        self.run.poison(queue)?;
        let bound = &self.run.memory.bound;
        let contents = self.shapes.iter().flat_map(|(key, _)| key).map(|(_, t)| t.clone());
        let of_inputs = inputs.iter().zip(contents).enumerate();
        let of_inputs = of_inputs.map(|(i, (v, t))| Key(v.shape(), t, bound.inputs.get(&i).cloned()));
        let of_outputs = outputs.iter().map(|v| Key(Vec::new(), None, v.as_ref().map(|v| v.at.clone())));
        let case =
            (!self.run.loaded.program.cases.is_empty()).then(|| Key(vec![self.case as usize], None, None));
        let key = of_inputs.chain(of_outputs).chain(case).collect();
        let known = self.run.launch(queue, key, &shapes)?;
        let results = self.results(queue, pool, inputs, outputs, &known)?;
        if self.run.times.on {
            let times = self.run.own_times(queue)?;
            StepTime::add(&mut self.times, times);
        }
        Ok(results)
    }

    /// The shapes of a run with these inputs.
    fn inferred(&mut self, inputs: &[Value<D>]) -> Result<Arc<Shapes>, BackendError> {
        let loaded = &self.run.loaded;
        let content = |(i, v): (usize, &Value<D>)| {
            (v.ty.clone(), v.known.get().filter(|_| loaded.plans_by(i)).cloned())
        };
        let key: Vec<_> = inputs.iter().enumerate().map(content).collect();
        if let Some((_, shapes)) = self.shapes.as_ref().filter(|(made_for, _)| *made_for == key) {
            return Ok(shapes.clone());
        }
        let fact = |(ty, content): &(TensorType, Option<Tensor>)| match content {
            Some(t) => Fact::constant(t.clone()),
            None => Fact::of(ty.clone()),
        };
        let facts: Vec<Fact> = key.iter().map(fact).collect();
        let shapes =
            Arc::new(Shapes::new(self.run.loaded.program.graph.infer_from(&facts)?).in_case(self.case));
        self.shapes = Some((key, shapes.clone()));
        Ok(shapes)
    }

    /// Lets inputs be read where they are. What the body writes over is a copy.
    fn bind_inputs(&mut self, queue: &mut D::Queue, inputs: &[Value<D>]) -> Result<(), BackendError> {
        self.run.memory.bound.inputs.clear();
        for (i, v) in inputs.iter().enumerate() {
            if self.overwrites(i) {
                let bytes = v.bytes()?;
                let own = self.run.memory.input(queue, i, bytes)?;
                queue.copy(&v.at, &own, bytes)?;
            } else {
                self.run.memory.bound.inputs.insert(i, v.at.clone());
            }
        }
        Ok(())
    }

    /// Memory for the outputs that a step can write there: those whose size is known, each value once.
    fn bind_outputs(
        &mut self,
        queue: &mut D::Queue,
        pool: &Pool<D>,
        shapes: &Shapes,
    ) -> Result<Vec<Option<Value<D>>>, BackendError> {
        let loaded = self.run.loaded.clone();
        self.run.memory.bound.outputs.clear();
        let mut all = Vec::new();
        for &v in &loaded.program.graph.outputs {
            let ty = &shapes.fact(v).ty;
            let bound = &self.run.memory.bound.outputs;
            if ty.static_dims().is_none() || bound.contains_key(&v) || !self.writes(v) {
                all.push(None);
                continue;
            }
            let value = pool.tensor(queue, ty.clone())?;
            self.run.memory.bound.outputs.insert(v, value.at.clone());
            all.push(Some(value));
        }
        Ok(all)
    }

    /// The outputs of a run, none of them in memory that the next run overwrites.
    fn results(
        &mut self,
        queue: &mut D::Queue,
        pool: &Pool<D>,
        inputs: &[Value<D>],
        written: Vec<Option<Value<D>>>,
        shapes: &Shapes,
    ) -> Result<Vec<Value<D>>, BackendError> {
        let loaded = self.run.loaded.clone();
        let graph = &loaded.program.graph;
        let mut all = Vec::with_capacity(graph.outputs.len());
        for (&v, written) in graph.outputs.iter().zip(written) {
            let given = graph.inputs.iter().position(|&i| i == v).and_then(|i| Some((i, inputs.get(i)?)));
            if let Some((_, input)) = given.filter(|(i, input)| !input.volatile && !self.overwrites(*i)) {
                all.push(input.clone());
                continue;
            }
            let value = match written {
                Some(value) => value,
                None => {
                    let (from, n) = self.run.place(queue, shapes, v)?;
                    let copy = pool.tensor(queue, shapes.fact(v).ty.clone())?;
                    queue.copy(&from, &copy.at, n as u64)?;
                    copy
                }
            };
            shapes.fact(v).as_const().cloned().into_iter().for_each(|t| drop(value.known.set(t)));
            all.push(value);
        }
        Ok(all)
    }

    /// Whether a step writes a value anew, wherever it is stored.
    pub fn writes(&self, v: ValueId) -> bool {
        let program = &self.run.loaded.program;
        let Some((_, node)) = program.graph.producer(v) else { return false };
        let at = node.outputs.iter().position(|&o| o == v);
        let aliased = node.op.def().traits.must_alias.iter().any(|&(_, o)| Some(o) == at);
        !aliased && !matches!(program.memory.places.get(v.0 as usize), Some(Place::Input(_)))
    }

    /// Whether it writes into the memory of an input.
    pub fn overwrites(&self, input: usize) -> bool {
        let program = &self.run.loaded.program;
        let here = |v: &ValueId| {
            let place = program.memory.places.get(v.0 as usize);
            matches!(place, Some(&Place::Input(i)) if i as usize == input)
                && !program.graph.inputs.contains(v)
                && !program.graph.producer(*v).is_some_and(|(_, n)| kiln_backend::is_view_op(&n.op))
        };
        program.graph.value_ids().any(|v| here(&v))
    }
}
