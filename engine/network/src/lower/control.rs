//! Writing loops and conditionals as nodes with regions.

use super::plan::{Scope, closure, effects, is_in};
use super::{Frame, Lowering, lost};
use crate::NetworkError;
use crate::flow::{Boundary, TripLimitKind};
use crate::ids::ConstructId;
use crate::{LayerId, TensorId};
use kiln_ir::attr::{Attr, Attrs};
use kiln_ir::graph::{Graph, LoopOutputKind, ValueId};
use kiln_ir::op::Op;
use kiln_ops::control::{IF, LOOP};

/// The boundary layers of a loop that are needed.
#[derive(Default)]
struct Parts {
    count: Option<TensorId>,
    condition: Option<(LayerId, TensorId)>,
    /// Output, initial and next value of each recurrence.
    carried: Vec<[TensorId; 3]>,
    /// Output and tensor of each iterator, its axis, and whether it is reversed.
    iterated: Vec<([TensorId; 2], usize, bool)>,
    outputs: Vec<Output>,
}

struct Output {
    layer: LayerId,
    kind: LoopOutputKind,
    axis: usize,
    value: TensorId,
    length: Option<TensorId>,
}

/// A region and the tensors that it captures.
type Region = (Graph, Vec<TensorId>);

impl Lowering<'_> {
    /// Writes a loop or conditional of a region.
    pub(super) fn construct(&mut self, c: ConstructId, scope: &Scope) -> Result<(), NetworkError> {
        if self.net.constructs[c as usize].conditional {
            return self.conditional(c, scope);
        }
        self.looping(c, scope)
    }

    fn input(&self, l: LayerId, i: usize) -> Result<TensorId, NetworkError> {
        self.net.layer_data(l).inputs.get(i).copied().flatten().ok_or_else(lost)
    }

    fn output_of(&self, l: LayerId) -> Result<TensorId, NetworkError> {
        self.net.layer_data(l).outputs.first().copied().ok_or_else(lost)
    }

    fn parts(&self, c: ConstructId) -> Result<Parts, NetworkError> {
        let mut p = Parts::default();
        for &l in &self.net.constructs[c as usize].layers {
            if !self.plan.is_live(l) {
                continue;
            }
            let d = self.net.layer_data(l);
            match d.def.boundary() {
                Some(Boundary::TripLimit(t)) if t.kind == TripLimitKind::Count => {
                    p.count = Some(self.input(l, 0)?);
                }
                Some(Boundary::TripLimit(_)) => p.condition = Some((l, self.input(l, 0)?)),
                Some(Boundary::Recurrence(_)) => {
                    p.carried.push([self.output_of(l)?, self.input(l, 0)?, self.input(l, 1)?]);
                }
                Some(Boundary::Iterator(i)) => {
                    p.iterated.push(([self.output_of(l)?, self.input(l, 0)?], i.axis, i.reverse));
                }
                Some(Boundary::LoopOutput(o)) => p.outputs.push(Output {
                    layer: l,
                    kind: o.kind_given(d.inputs.len()),
                    axis: o.axis,
                    value: self.input(l, 0)?,
                    length: d.inputs.get(1).copied().flatten(),
                }),
                _ => (),
            }
        }
        Ok(p)
    }

    fn looping(&mut self, c: ConstructId, scope: &Scope) -> Result<(), NetworkError> {
        let parts = self.parts(c)?;
        let scope = scope.enter(c, None);
        let mut regions = vec![self.body(c, &scope, &parts)?];
        if let Some((limit, asked)) = parts.condition {
            regions.push(self.asking(c, &scope, &parts, limit, asked)?);
        }
        let mut ins: Vec<TensorId> = parts.count.into_iter().collect();
        ins.extend(parts.carried.iter().map(|&[_, initial, _]| initial));
        ins.extend(parts.iterated.iter().map(|([_, from], ..)| *from));
        ins.extend(parts.outputs.iter().filter_map(|o| o.length));
        let attrs = attrs(&parts, regions[0].1.len())?;
        let outputs: Vec<LayerId> = parts.outputs.iter().map(|o| o.layer).collect();
        self.node(c, Op::new(LOOP, attrs)?, ins, regions, &outputs)
    }

    fn body(&mut self, c: ConstructId, scope: &Scope, parts: &Parts) -> Result<Region, NetworkError> {
        let net = self.net;
        let mut frame = Frame::new(net, &format!("{} body", net.constructs[c as usize].name));
        for &[value, ..] in &parts.carried {
            frame.input(net, value);
        }
        for ([value, _], ..) in &parts.iterated {
            frame.input(net, *value);
        }
        self.frames.push(frame);
        let mut outs: Vec<TensorId> = parts.carried.iter().map(|&[_, _, next]| next).collect();
        let scans = parts.outputs.iter().filter(|o| o.kind != LoopOutputKind::LastValue);
        outs.extend(scans.map(|o| o.value));
        let inside = |l: LayerId| self.scopes.layer(net, l).contains(&c);
        let mut roots = effects(net, &self.scopes, |l| is_in(net, &self.scopes, l, c));
        roots.extend(outs.iter().filter_map(|&t| net.producer(t)).filter(|&l| inside(l)));
        let needed = closure(net, roots, inside);
        let units = self.plan.order_of(net, &self.scopes, scope, |l| needed.contains(&l))?;
        self.units(&units, scope)?;
        self.close(&outs)
    }

    /// The region of the condition: only what the condition needs.
    fn asking(
        &mut self,
        c: ConstructId,
        scope: &Scope,
        parts: &Parts,
        limit: LayerId,
        asked: TensorId,
    ) -> Result<Region, NetworkError> {
        let net = self.net;
        let mut frame = Frame::new(net, &format!("{} condition", net.constructs[c as usize].name));
        for &[value, ..] in &parts.carried {
            frame.input(net, value);
        }
        self.frames.push(frame);
        let plain = |l: LayerId| net.layer_data(l).def.boundary().is_none();
        let roots = net.producer(asked).into_iter().filter(|&l| plain(l) && l != limit);
        let inside = |l: LayerId| self.scopes.layer(net, l).contains(&c);
        let through = |l: LayerId| {
            inside(l) && !matches!(net.layer_data(l).def.boundary(), Some(Boundary::Recurrence(_)))
        };
        let needed = closure(net, roots.filter(|&l| inside(l)).collect(), through);
        let units = self.plan.order_of(net, &self.scopes, scope, |l| needed.contains(&l))?;
        self.units(&units, scope)?;
        self.close(&[asked])
    }

    fn conditional(&mut self, c: ConstructId, scope: &Scope) -> Result<(), NetworkError> {
        let net = self.net;
        let outputs: Vec<LayerId> = net.constructs[c as usize]
            .layers
            .iter()
            .copied()
            .filter(|&l| self.plan.is_live(l))
            .filter(|&l| matches!(net.layer_data(l).def.boundary(), Some(Boundary::IfOutput(_))))
            .collect();
        let condition = net.condition(c).ok_or_else(lost)?;
        let mut regions = Vec::new();
        for (branch, word) in ["true", "false"].into_iter().enumerate() {
            let scope = scope.enter(c, Some(branch));
            self.frames.push(Frame::new(net, &format!("{} {word}", net.constructs[c as usize].name)));
            let units = self.plan.order(net, &self.scopes, &scope)?;
            self.units(&units, &scope)?;
            let outs = outputs.iter().map(|&l| self.input(l, branch)).collect::<Result<Vec<_>, _>>()?;
            regions.push(self.close(&outs)?);
        }
        let attrs = Attrs::new().with("then_captures", regions[0].1.len() as i64);
        let ins = vec![self.input(condition, 0)?];
        self.node(c, Op::new(IF, attrs)?, ins, regions, &outputs)
    }

    /// Ends a region: its outputs are these tensors.
    fn close(&mut self, outs: &[TensorId]) -> Result<Region, NetworkError> {
        let outs = outs.iter().map(|&t| self.value(t)).collect::<Result<Vec<_>, _>>()?;
        let mut frame = self.frames.pop().ok_or_else(lost)?;
        frame.graph.outputs = outs;
        Ok((frame.graph, frame.captures))
    }

    fn node(
        &mut self,
        c: ConstructId,
        op: Op,
        mut ins: Vec<TensorId>,
        regions: Vec<Region>,
        outputs: &[LayerId],
    ) -> Result<(), NetworkError> {
        let net = self.net;
        ins.extend(regions.iter().flat_map(|(_, captures)| captures.iter().copied()));
        let ins = ins.into_iter().map(|t| self.value(t)).collect::<Result<Vec<ValueId>, _>>()?;
        let tensors = outputs.iter().map(|&l| self.output_of(l)).collect::<Result<Vec<_>, _>>()?;
        let frame = self.frame()?;
        let names: Vec<String> = tensors.iter().map(|&t| frame.name(&net.tensor(t).name)).collect();
        let regions = regions.into_iter().map(|(g, _)| g).collect();
        let name = &net.constructs[c as usize].name;
        let values = frame.graph.add_control(name, op, &ins, regions, &names)?;
        frame.values.extend(tensors.into_iter().zip(values));
        Ok(())
    }
}

fn attrs(p: &Parts, body_captures: usize) -> Result<Attrs, NetworkError> {
    let ints = |v: Vec<usize>| Attr::Ints(v.into_iter().map(|n| n as i64).collect());
    let mut index = Vec::new();
    let mut scans = 0;
    for o in &p.outputs {
        index.push(match o.kind {
            LoopOutputKind::LastValue => {
                p.carried.iter().position(|&[value, ..]| value == o.value).ok_or_else(lost)?
            }
            _ => {
                scans += 1;
                scans - 1
            }
        });
    }
    Ok(Attrs::new()
        .with("count", p.count.is_some())
        .with("while", p.condition.is_some())
        .with("carried", p.carried.len() as i64)
        .with("iter_axes", ints(p.iterated.iter().map(|i| i.1).collect()))
        .with("iter_reverse", ints(p.iterated.iter().map(|i| usize::from(i.2)).collect()))
        .with("body_captures", body_captures as i64)
        .with("out_kinds", p.outputs.iter().map(|o| o.kind.name().to_owned()).collect::<Vec<_>>())
        .with("out_index", ints(index))
        .with("out_axes", ints(p.outputs.iter().map(|o| o.axis).collect()))
        .with("out_length", ints(p.outputs.iter().map(|o| usize::from(o.length.is_some())).collect())))
}
