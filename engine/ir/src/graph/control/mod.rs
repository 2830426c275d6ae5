//! Nodes with regions: how the inputs and outputs of `loop` and `if` are laid out.

mod eval;
pub(crate) mod infer;
mod pieces;
mod refresh;

pub use pieces::{element, stack};

use super::{Graph, Meta, Node, NodeId, Source, ValueId};
use crate::attr::Attrs;
use crate::error::{IrError, OpError};
use crate::eval::check_sizes;
use crate::infer::Fact;
use crate::op::{IF, Op};
use std::ops::Range;

/// Form of a loop's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoopOutputKind {
    /// The value of a recurrence after the last iteration.
    LastValue,
    /// The values of all iterations along a new axis, first iteration first.
    Concatenate,
    /// The values of all iterations along a new axis, last iteration first.
    Reverse,
}

impl LoopOutputKind {
    /// The name in the attribute `out_kinds`.
    pub fn name(self) -> &'static str {
        match self {
            LoopOutputKind::LastValue => "last",
            LoopOutputKind::Concatenate => "concat",
            LoopOutputKind::Reverse => "reverse",
        }
    }
}

/// One output of a loop.
#[derive(Clone, Debug)]
pub struct LoopOut {
    /// Form of the output.
    pub kind: LoopOutputKind,
    /// Index of a carried value, or of a body output after the carried ones.
    pub index: usize,
    /// Position of the new axis of a stacked output.
    pub axis: usize,
    /// Whether it has a length input.
    pub length: bool,
}

/// The layout of a `loop`, read from its attributes. Its inputs are, in order: the iteration count, if it has
/// one; initial values; iterated tensors; lengths; captures of the body; captures of the condition. Region 0,
/// the body, takes carried values, elements and captures. It yields the next carried values and the values to
/// stack. Region 1, if there is a condition, takes carried values and its captures.
#[derive(Clone, Debug)]
pub struct LoopShape {
    /// Whether there is an iteration count.
    pub count: bool,
    /// Whether a condition is asked before every iteration.
    pub condition: bool,
    /// Number of values that each iteration hands to the next.
    pub carried: usize,
    /// Axis, and whether the order is reversed, of each iterated tensor.
    pub iterated: Vec<(usize, bool)>,
    /// Number of values that the body captures.
    pub body_captures: usize,
    /// The outputs.
    pub outs: Vec<LoopOut>,
}

fn bad(name: &str, found: impl ToString, wanted: &str) -> OpError {
    OpError::Attr { name: name.into(), found: found.to_string(), wanted: wanted.into() }
}

fn natural(attrs: &Attrs, name: &str) -> Result<usize, OpError> {
    let n = attrs.int(name)?;
    usize::try_from(n).map_err(|_| bad(name, n, "0 or more"))
}

fn naturals(attrs: &Attrs, name: &str, len: usize) -> Result<Vec<usize>, OpError> {
    let v = attrs.ints(name)?;
    if v.len() != len {
        return Err(bad(name, format!("{} numbers", v.len()), &format!("{len}")));
    }
    v.iter().map(|&n| usize::try_from(n).map_err(|_| bad(name, n, "0 or more"))).collect()
}

impl LoopShape {
    pub(crate) fn of(attrs: &Attrs) -> Result<LoopShape, OpError> {
        let iters = attrs.ints("iter_axes")?.len();
        let axes = naturals(attrs, "iter_axes", iters)?;
        let reverse = naturals(attrs, "iter_reverse", iters)?;
        let kinds = match attrs.get("out_kinds") {
            Some(crate::attr::Attr::Strs(v)) => v.as_slice(),
            _ => &[],
        };
        let index = naturals(attrs, "out_index", kinds.len())?;
        let out_axes = naturals(attrs, "out_axes", kinds.len())?;
        let length = naturals(attrs, "out_length", kinds.len())?;
        let outs = kinds.iter().enumerate().map(|(i, k)| {
            let kind = match k.as_str() {
                "last" => LoopOutputKind::LastValue,
                "concat" => LoopOutputKind::Concatenate,
                "reverse" => LoopOutputKind::Reverse,
                other => return Err(bad("out_kinds", format!("\"{other}\""), "last, concat or reverse")),
            };
            Ok(LoopOut { kind, index: index[i], axis: out_axes[i], length: length[i] != 0 })
        });
        let outs = outs.collect::<Result<Vec<_>, OpError>>()?;
        if let Some(o) = outs.iter().find(|o| o.kind == LoopOutputKind::LastValue && o.length) {
            return Err(bad("out_length", format!("1 for output {}", o.index), "0 where the kind is last"));
        }
        Ok(LoopShape {
            count: attrs.bool("count")?,
            condition: attrs.bool("while")?,
            carried: natural(attrs, "carried")?,
            iterated: axes.into_iter().zip(reverse.into_iter().map(|r| r != 0)).collect(),
            body_captures: natural(attrs, "body_captures")?,
            outs,
        })
    }

    /// Positions of the initial values among the node's inputs.
    pub fn initials(&self) -> Range<usize> {
        let start = usize::from(self.count);
        start..start + self.carried
    }

    /// Positions of the iterated tensors.
    pub fn iterables(&self) -> Range<usize> {
        let start = self.initials().end;
        start..start + self.iterated.len()
    }

    /// Positions of the lengths, in the order of the outputs that have one.
    pub fn lengths(&self) -> Range<usize> {
        let start = self.iterables().end;
        start..start + self.outs.iter().filter(|o| o.length).count()
    }

    /// Positions of the values that the body captures.
    pub fn captures(&self) -> Range<usize> {
        let start = self.lengths().end;
        start..start.saturating_add(self.body_captures)
    }

    /// Whether there are elements that iterations take, or values that they stack.
    pub fn has_slices(&self) -> bool {
        !self.iterated.is_empty() || self.scans() > 0
    }

    /// Number of values that the body yields after the carried ones.
    pub fn scans(&self) -> usize {
        let scans = self.outs.iter().filter(|o| o.kind != LoopOutputKind::LastValue);
        scans.map(|o| o.index.saturating_add(1)).max().unwrap_or(0)
    }
}

/// Positions of what the two regions of an `if` with `inputs` inputs capture.
pub(crate) fn branch_captures(attrs: &Attrs, inputs: usize) -> Result<[Range<usize>; 2], OpError> {
    let split = natural(attrs, "then_captures")?.saturating_add(1);
    if split > inputs {
        return Err(bad("then_captures", split - 1, &format!("at most {}", inputs.saturating_sub(1))));
    }
    Ok([1..split, split..inputs])
}

impl Node {
    /// The layout of a `loop` of so many inputs; an error where they are too few, or regions or outputs do not fit.
    pub fn loop_shape(&self, inputs: usize) -> Result<LoopShape, IrError> {
        let wrap = |e| IrError::layer(&self.name, self.op.name(), e);
        let s = LoopShape::of(self.op.attrs()).map_err(wrap)?;
        let least = s.captures().end;
        if inputs < least {
            return Err(wrap(OpError::Arity { found: inputs, wanted: format!("at least {least}") }));
        }
        let regions = 1 + usize::from(s.condition);
        let lost = |o: &LoopOut| o.kind == LoopOutputKind::LastValue && o.index >= s.carried;
        if self.regions.len() != regions || s.outs.iter().any(lost) {
            let found = format!("{} regions and {} carried values", self.regions.len(), s.carried);
            return Err(wrap(OpError::Value(format!("has {found}, which its attributes do not fit"))));
        }
        Ok(s)
    }

    /// Positions of what the two branches of an `if` of so many inputs capture; `None` for other nodes.
    pub fn branches(&self, inputs: usize) -> Result<Option<[Range<usize>; 2]>, IrError> {
        if !self.op.is(IF) {
            return Ok(None);
        }
        let captures = branch_captures(self.op.attrs(), inputs);
        captures.map(Some).map_err(|e| IrError::layer(&self.name, IF.as_str(), e))
    }

    /// Facts of the outputs from facts of the inputs, through the regions where there are some.
    pub fn infer(&self, inputs: &[Option<Fact>]) -> Result<Vec<Fact>, IrError> {
        let wrap = |e| IrError::layer(&self.name, self.op.name(), e);
        if !self.op.roles().control {
            return self.op.infer(inputs, &self.name).map_err(wrap);
        }
        let outputs = infer::infer(&self.name, &self.op, &self.regions, inputs)?.outputs;
        outputs.iter().try_for_each(|f| check_sizes(&f.ty)).map_err(wrap)?;
        Ok(outputs)
    }

    /// Facts of the inputs of each region from facts of the node's inputs; none for nodes without regions.
    pub fn region_facts(&self, inputs: &[Option<Fact>]) -> Result<Vec<Vec<Fact>>, IrError> {
        match self.op.roles().control {
            true => infer::infer(&self.name, &self.op, &self.regions, inputs).map(|i| i.regions),
            false => Ok(Vec::new()),
        }
    }
}

impl Graph {
    /// Adds a `loop` or an `if` at the end of the order. Its outputs are named by `names` (unique in this
    /// graph) and inferred through the regions.
    pub fn add_control(
        &mut self,
        name: &str,
        op: Op,
        inputs: &[ValueId],
        regions: Vec<Graph>,
        names: &[String],
    ) -> Result<Vec<ValueId>, IrError> {
        let facts: Vec<Option<Fact>> = inputs.iter().map(|&v| Some(self.value(v).fact.clone())).collect();
        let out = infer::infer(name, &op, &regions, &facts)?.outputs;
        let id = NodeId(self.nodes.len() as u32);
        let named = |i: usize| names.get(i).cloned().unwrap_or_else(|| format!("{name}.{i}"));
        let outputs: Vec<ValueId> = out
            .into_iter()
            .enumerate()
            .map(|(i, fact)| self.add_value(&named(i), fact, Source::Node(id, i)))
            .collect();
        self.nodes.push(Some(Node {
            name: name.to_owned(),
            op,
            inputs: inputs.iter().copied().map(Some).collect(),
            outputs: outputs.clone(),
            regions,
            meta: Meta::default(),
        }));
        self.order.push(id);
        Ok(outputs)
    }
}
