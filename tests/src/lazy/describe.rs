//! Description of a network, read through its public interface.

use kiln_ir::Op;
use kiln_network::{
    Condition, IfId, IfInput, IfOutput, LayerDef, LayerId, LoopId, LoopIterator, LoopOutput, LoopOutputKind,
    Network, Operator, Recurrence, TensorId, TripLimit, TripLimitKind,
};
use std::collections::HashMap;

/// Kind of a layer.
#[derive(Clone, Debug)]
pub(super) enum What {
    Op(Op),
    Limit,
    Iterator { of: LoopId, axis: usize, reverse: bool },
    Recurrence { of: LoopId },
    Output { of: LoopId, kind: LoopOutputKind, axis: usize },
    Condition,
    IfInput,
    IfOutput { of: IfId },
}

/// A layer.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) name: String,
    pub(super) what: What,
    pub(super) inputs: Vec<Option<TensorId>>,
}

/// A loop: its name, count and condition.
#[derive(Clone, Debug, Default)]
pub(super) struct Limits {
    pub(super) name: String,
    pub(super) count: Option<TensorId>,
    pub(super) condition: Option<TensorId>,
}

/// All layers, with what ends loops and decides conditionals.
#[derive(Clone, Debug, Default)]
pub(super) struct Description {
    pub(super) layers: Vec<Said>,
    /// The layer that makes a tensor, and as which of its outputs.
    pub(super) makers: HashMap<TensorId, (usize, usize)>,
    pub(super) loops: HashMap<LoopId, Limits>,
    pub(super) conditions: HashMap<IfId, TensorId>,
}

fn params<P: LayerDef + Clone>(net: &mut Network, id: LayerId) -> Option<P> {
    net.layer_of::<P>(id).ok()?.params().ok().cloned()
}

impl Description {
    pub(super) fn of(net: &Network) -> Result<Description, String> {
        let mut net = net.clone();
        let mut d = Description::default();
        for id in net.layer_ids() {
            let layer = net.layer(id).map_err(|e| e.to_string())?;
            let (name, kind) = (layer.name().to_owned(), layer.kind());
            let (inputs, outputs) = (layer.inputs().to_vec(), layer.outputs().to_vec());
            let what = d.read(&mut net, id, &inputs)?;
            let what =
                what.ok_or_else(|| format!("layer \"{name}\" is a {kind}, of which no meaning is given"))?;
            d.makers.extend(outputs.iter().enumerate().map(|(i, &t)| (t, (d.layers.len(), i))));
            d.layers.push(Said { name, what, inputs });
        }
        Ok(d)
    }

    fn limits(&mut self, net: &Network, of: LoopId) -> Result<&mut Limits, String> {
        let name = net.loop_name(of).map_err(|e| e.to_string())?;
        Ok(self.loops.entry(of).or_insert_with(|| Limits { name: name.to_owned(), ..Limits::default() }))
    }

    fn read(
        &mut self,
        net: &mut Network,
        id: LayerId,
        inputs: &[Option<TensorId>],
    ) -> Result<Option<What>, String> {
        let first = inputs.first().copied().flatten();
        if let Some(p) = params::<Operator>(net, id) {
            return Ok(Some(What::Op(p.op().clone())));
        }
        if let Some(p) = params::<TripLimit>(net, id) {
            let limits = self.limits(net, p.of())?;
            match p.kind() {
                TripLimitKind::Count => limits.count = first,
                TripLimitKind::While => limits.condition = first,
            }
            return Ok(Some(What::Limit));
        }
        if let Some(p) = params::<LoopIterator>(net, id) {
            return Ok(Some(What::Iterator { of: p.of(), axis: p.axis(), reverse: p.reverse() }));
        }
        if let Some(p) = params::<Recurrence>(net, id) {
            return Ok(Some(What::Recurrence { of: p.of() }));
        }
        if let Some(p) = params::<LoopOutput>(net, id) {
            let kind = match p.kind() {
                LoopOutputKind::LastValue if inputs.len() > 1 => LoopOutputKind::Concatenate,
                kind => kind,
            };
            return Ok(Some(What::Output { of: p.of(), kind, axis: p.axis() }));
        }
        if let Some(p) = params::<Condition>(net, id) {
            self.conditions.extend(first.map(|t| (p.of(), t)));
            return Ok(Some(What::Condition));
        }
        if params::<IfInput>(net, id).is_some() {
            return Ok(Some(What::IfInput));
        }
        Ok(params::<IfOutput>(net, id).map(|p| What::IfOutput { of: p.of() }))
    }
}

/// A network as text, one layer a line, for messages.
pub fn text(net: &Network) -> String {
    let Ok(d) = Description::of(net) else { return "a network with layers of other kinds".into() };
    let name = |t: &TensorId| format!("{} {}", net.tensor_name(*t), net.ty(*t));
    let mut lines: Vec<String> = net.inputs().iter().map(|t| format!("input {}", name(t))).collect();
    for (l, layer) in d.layers.iter().enumerate() {
        let inputs: Vec<String> = layer.inputs.iter().map(|t| t.as_ref().map_or("-".into(), name)).collect();
        let of = d.makers.iter().filter(|(_, m)| m.0 == l).map(|(t, _)| net.ty(*t).to_string());
        let of: Vec<String> = of.collect();
        let what = format!("{:?}", layer.what);
        lines.push(format!("{}: {} = {what} ({})", layer.name, of.join(", "), inputs.join(", ")));
    }
    lines.join("\n")
}
