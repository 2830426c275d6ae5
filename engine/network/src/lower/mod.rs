//! Lowering of a network to the structured graph: layers become their operators, loops and conditionals
//! become nodes with regions.

mod control;
mod plan;
mod uses;

use super::flow::Scopes;
use super::tensors::{TensorData, TensorSource, unique};
use super::{LayerId, Network, NetworkError, TensorId, Typing};
use kiln_ir::attr::Attrs;
use kiln_ir::format::REFORMAT;
use kiln_ir::graph::{Graph, Meta, Node, Source, ValueDef, ValueId, Weight};
use kiln_ir::op::Op;
use kiln_ir::{DType, IrError};
use plan::{Plan, Scope, Unit};
use std::collections::{HashMap, HashSet};
use uses::WeightUses;

impl Network {
    /// The structured graph that passes work on. Checks the rules of control flow; nesting follows from the
    /// flow of data. Layers that only one branch of a conditional needs are placed in it; layers that nothing
    /// needs are left out.
    pub fn lower(&self) -> Result<Graph, NetworkError> {
        if let Some(net) = self.without_two_ranks()? {
            return net.lower();
        }
        let scopes = self.check_flow()?;
        let plan = Plan::of(self, &scopes)?;
        let frames = vec![Frame::new(self, &self.name)];
        let mut l = Lowering { net: self, scopes, plan, frames, uses: WeightUses::of(self) };
        for t in (0..self.tensors.len() as u32).map(TensorId) {
            l.add_source(t)?;
        }
        l.frame()?.graph.inputs = l.input_values();
        let units = l.plan.order(self, &l.scopes, &Scope::top())?;
        l.units(&units, &Scope::top())?;
        let mut frame = l.frames.pop().ok_or_else(lost)?;
        for t in self.all_outputs() {
            let v = frame.output(self, t)?;
            frame.graph.outputs.push(v);
        }
        for &t in &self.debug {
            frame.debug(self, t)?;
        }
        frame.graph.weight_uses = l.uses.finish();
        let ranged = |t: &TensorData| Some((t.name.clone(), t.range?));
        frame.graph.ranges = self.tensors.iter().filter_map(ranged).collect();
        let border = self.inputs.iter().copied().chain(self.all_outputs());
        let set = border.map(|t| self.tensor(t)).filter_map(|d| Some((d.name.clone(), d.formats?)));
        frame.graph.allowed_formats = set.collect();
        frame.graph.verify()?;
        Ok(frame.graph)
    }
}

fn lost() -> NetworkError {
    IrError::Structure("a region was left without being entered".into()).into()
}

/// A graph being written, and the values of the network's tensors in it.
struct Frame {
    graph: Graph,
    values: HashMap<TensorId, ValueId>,
    names: HashSet<String>,
    /// Tensors read from around this region, each an input of it, in order.
    captures: Vec<TensorId>,
}

impl Frame {
    fn new(net: &Network, name: &str) -> Frame {
        let mut graph = Graph::new(name);
        graph.strong_types = net.typing == Typing::Strong;
        Frame { graph, values: HashMap::new(), names: HashSet::new(), captures: Vec::new() }
    }

    /// An input of the region that stands for a tensor.
    fn input(&mut self, net: &Network, t: TensorId) -> ValueId {
        let d = net.tensor(t);
        let name = self.name(&d.name);
        let v = self.graph.add_input(&name, d.fact.clone());
        self.values.insert(t, v);
        v
    }

    fn name(&mut self, wanted: &str) -> String {
        let name = unique(wanted, |n| self.names.contains(n));
        self.names.insert(name.clone());
        name
    }

    /// Writes the operators of a layer; `inputs` are those present, in order.
    fn splice(
        &mut self,
        net: &Network,
        l: LayerId,
        inputs: Vec<ValueId>,
        uses: &WeightUses,
    ) -> Result<(), NetworkError> {
        let d = net.layer_data(l);
        let mut map: HashMap<ValueId, ValueId> = d.body.inputs.iter().copied().zip(inputs).collect();
        let named: HashMap<ValueId, TensorId> =
            d.body.outputs.iter().copied().zip(d.outputs.iter().copied()).rev().collect();
        for v in d.body.value_ids().filter(|&v| d.body.weight(v).is_some()) {
            let mut source = d.body.value(v).source.clone();
            if let Source::Weight(Weight { name: Some(name), .. }) = &mut source {
                *name = uses.name(d, name);
            }
            let new = self.define(net, d.body.value(v), source, named.get(&v));
            map.insert(v, new);
        }
        for (_, node) in d.body.nodes() {
            let id = self.graph.next_node();
            let read = |v: &Option<ValueId>| v.map(|v| map.get(&v).copied().ok_or_else(lost)).transpose();
            let inputs = node.inputs.iter().map(read).collect::<Result<Vec<_>, _>>()?;
            let define = |(i, v): (usize, &ValueId)| {
                let new = self.define(net, d.body.value(*v), Source::Node(id, i), named.get(v));
                (*v, new)
            };
            let outputs: Vec<_> = node.outputs.iter().enumerate().map(define).collect();
            map.extend(outputs.iter().copied());
            let mut meta = Meta { output_types: Vec::new(), ..d.meta.clone() };
            if node.outputs.iter().any(|v| named.contains_key(v)) {
                let place = |v: &ValueId| d.body.outputs.iter().position(|o| o == v);
                let wanted = |v| d.meta.output_types.get(place(v)?).copied().flatten();
                meta.output_types = node.outputs.iter().map(wanted).collect();
                while meta.output_types.last() == Some(&None) {
                    meta.output_types.pop();
                }
            }
            let outputs = outputs.into_iter().map(|(_, new)| new).collect();
            self.graph.push_node(Node { inputs, outputs, meta, ..node.clone() });
        }
        for (&v, &t) in d.body.outputs.iter().zip(&d.outputs) {
            self.values.insert(t, map.get(&v).copied().ok_or_else(lost)?);
        }
        Ok(())
    }

    fn define(&mut self, net: &Network, def: &ValueDef, source: Source, named: Option<&TensorId>) -> ValueId {
        let wanted = named.map_or(def.name.as_str(), |&t| net.tensor(t).name.as_str());
        // Values without a tensor of their own keep off the names of tensors.
        let taken = |n: &str| self.names.contains(n) || (named.is_none() && net.by_name.contains_key(n));
        let name = unique(wanted, taken);
        self.names.insert(name.clone());
        self.graph.add_value(&name, def.fact.clone(), source)
    }

    /// The value of an output of the network: with its own name and the type at the boundary.
    fn output(&mut self, net: &Network, t: TensorId) -> Result<ValueId, NetworkError> {
        let d = net.tensor(t);
        let v = self.values.get(&t).copied().ok_or_else(|| IrError::UnknownTensor(d.name.clone()))?;
        let cast = d.boundary_type.filter(|&to| to != self.graph.ty(v).dtype);
        self.named(&d.name, v, cast)
    }

    /// Makes a tensor one for debugging, under its own name.
    fn debug(&mut self, net: &Network, t: TensorId) -> Result<(), NetworkError> {
        let name = &net.tensor(t).name;
        if self.graph.outputs.iter().all(|&v| self.graph.value(v).name != *name) {
            let v = self.values.get(&t).copied().ok_or_else(|| IrError::UnknownTensor(name.clone()))?;
            self.named(name, v, None)?;
        }
        self.graph.debug.insert(name.clone());
        Ok(())
    }

    /// A value with this name, of this type if one is given.
    fn named(&mut self, name: &str, mut v: ValueId, cast: Option<DType>) -> Result<ValueId, NetworkError> {
        let own = self.graph.value(v).name == name;
        let (op, attrs) = match cast {
            Some(to) => ("cast", Attrs::new().with("to", to)),
            None if own => return Ok(v),
            None => ("identity", Attrs::new()),
        };
        if own {
            let inner = self.name(&format!("{name}.inner"));
            self.graph.value_mut(v).name = inner;
        }
        v = self.graph.add(name, Op::new(op, attrs)?, &[v])?;
        // The layer works for the border alone.
        let id = self.graph.producer(v).map(|(id, _)| id).filter(|_| cast.is_some());
        if let Some(node) = id.and_then(|id| self.graph.get_mut(id)) {
            node.name = format!("{REFORMAT}{name}");
        }
        Ok(v)
    }
}

struct Lowering<'a> {
    net: &'a Network,
    scopes: Scopes,
    plan: Plan,
    /// The graph of the network, then the regions that are being written.
    frames: Vec<Frame>,
    uses: WeightUses,
}

impl Lowering<'_> {
    fn frame(&mut self) -> Result<&mut Frame, NetworkError> {
        self.frames.last_mut().ok_or_else(lost)
    }

    fn add_source(&mut self, t: TensorId) -> Result<(), NetworkError> {
        let net = self.net;
        let d = net.tensor(t);
        let frame = self.frame()?;
        match &d.source {
            TensorSource::Input => {
                frame.input(net, t);
            }
            TensorSource::Weight(w) => {
                let name = frame.name(&d.name);
                let v = frame.graph.add_weight(&name, w.clone());
                frame.values.insert(t, v);
            }
            TensorSource::Layer(_) | TensorSource::Removed => (),
        }
        Ok(())
    }

    fn input_values(&self) -> Vec<ValueId> {
        let values = self.frames.first().map(|f| &f.values);
        self.net.inputs.iter().filter_map(|t| values?.get(t).copied()).collect()
    }

    fn units(&mut self, units: &[Unit], scope: &Scope) -> Result<(), NetworkError> {
        for u in units {
            match u {
                Unit::Layer(l) => self.layer(*l)?,
                Unit::Construct(c) => self.construct(*c, scope)?,
            }
        }
        Ok(())
    }

    fn layer(&mut self, l: LayerId) -> Result<(), NetworkError> {
        let net = self.net;
        let inputs = net.layer_data(l).inputs.iter().flatten();
        let inputs = inputs.map(|&t| self.value(t)).collect::<Result<Vec<_>, _>>()?;
        self.uses.add(net, l);
        let frame = self.frames.last_mut().ok_or_else(lost)?;
        frame.splice(net, l, inputs, &self.uses)
    }

    /// The value of a tensor in the innermost region, captured from around it if it is not defined inside.
    fn value(&mut self, t: TensorId) -> Result<ValueId, NetworkError> {
        let net = self.net;
        let t = self.plan.behind(net, t);
        let outermost = self.frames.len() == 1;
        let frame = self.frame()?;
        if let Some(&v) = frame.values.get(&t) {
            return Ok(v);
        }
        if outermost {
            return Err(IrError::UnknownTensor(net.tensor_name(t).to_owned()).into());
        }
        frame.captures.push(t);
        Ok(frame.input(net, t))
    }
}

impl From<plan::CycleAt> for NetworkError {
    fn from(c: plan::CycleAt) -> NetworkError {
        match c {
            plan::CycleAt::Construct(label) => NetworkError::SelfDependent(label),
            plan::CycleAt::Layer(name) => {
                IrError::Structure(format!("layer \"{name}\" is on a cycle, or reads one")).into()
            }
        }
    }
}
