//! A region as kernels see it: an anchor, and the pointwise expression around it.

pub use crate::cx::Cx;
pub use crate::refusal::{op_error, unsupported};
use crate::reshapes::{is_on_host, is_read_through, is_view, neighbours};
use crate::views::chain;
use crate::{Dialect, Kernel, Views, side};
use kiln_backend::{BackendError, Target};
use kiln_ir::expr::{Builder, Expr};
use kiln_ir::{DType, Graph, Node, Op, Source, ValueId};
use kiln_ops::slice::insert::INSERT_SLICE;
use std::collections::{HashMap, HashSet};

/// Groups of neighbours of a row, of which few are in two rows.
const MANY: usize = 32;

/// A region, analysed.
#[derive(Clone)]
pub struct Site<'a> {
    /// The operator that is not pointwise, with its position among the nodes.
    pub anchor: Option<(usize, &'a Node)>,
    /// From the anchor's result (if there is one) and the extras to the region's output; `None` where the anchor
    /// stands alone.
    pub fused: Option<Expr>,
    /// The reduction of the rows of the region's first output that is the second one, with its position among the nodes.
    pub side: Option<(usize, &'a Node)>,
    /// Inputs of the region that the expression reads, after the anchor's result.
    pub extras: Vec<ValueId>,
    /// Value for each extra whose shape decides how its elements are read: the extra itself, or a view of it.
    pub lies: Vec<ValueId>,
    /// The slice, for each extra that is read through one: its position among the nodes.
    pub slices: Vec<Option<usize>>,
    /// Moves in front of the anchor's inputs that its kernel reads through: for each input, positions among the nodes, the
    /// first one first. Empty where there are none at all.
    pub moves: Vec<Vec<usize>>,
    /// Whether the last dimension of every input is contiguous in the value that is bound for it.
    pub rows: bool,
    /// The `insert_slice` behind everything else, with its position: the kernel stores its result as a part of that layer's.
    pub insert: Option<(usize, &'a Node)>,
    /// Types of all values.
    pub graph: &'a Graph,
    /// Who will run it.
    pub target: &'a Target,
    /// The language to write it in.
    pub dialect: &'static Dialect,
}

impl<'a> Site<'a> {
    /// Analyses a region; refuses what no kernel can run.
    pub fn of(
        graph: &'a Graph,
        target: &'a Target,
        dialect: &'static Dialect,
    ) -> Result<Site<'a>, BackendError> {
        let all: Vec<&Node> = graph.nodes().map(|(_, n)| n).collect();
        if all.iter().any(|n| !n.regions.is_empty()) {
            return unsupported("control flow inside a kernel");
        }
        let mut site = Site {
            anchor: None,
            fused: None,
            side: side::find(graph, &all).map(|k| (k, all[k])),
            extras: Vec::new(),
            lies: Vec::new(),
            slices: Vec::new(),
            moves: Vec::new(),
            rows: true,
            insert: None,
            graph,
            target,
            dialect,
        };
        let all = site.take_insert(&all)?;
        let anchor = site.find_anchor(all)?;
        site.anchor = anchor.map(|k| (k, all[k]));
        let in_front = site.moves_in_front(all)?;
        let known = in_front + usize::from(anchor.is_some()) + usize::from(site.side.is_some());
        if site.insert.is_some() || all.len() > known {
            site.fuse()?;
        }
        let first = graph.outputs.first().map(std::slice::from_ref);
        let by_anchor = || site.anchor.is_some_and(|(_, n)| Some(&n.outputs[..]) == first);
        if site.side.is_some() && site.fused.is_none() && !by_anchor() {
            return unsupported("a reduction of a value that the kernel does not compute");
        }
        Ok(site)
    }

    /// Finds an `insert_slice` behind other nodes, and returns these.
    fn take_insert<'n>(&mut self, all: &'n [&'a Node]) -> Result<&'n [&'a Node], BackendError> {
        let Some((&last, before)) = all.split_last().filter(|(n, b)| n.op.is(INSERT_SLICE) && !b.is_empty())
        else {
            return Ok(all);
        };
        let inside = |v: Option<ValueId>| v.is_some_and(|v| before.iter().any(|n| n.outputs.contains(&v)));
        let &[into, part] = &last.inputs[..] else { return unsupported("a part without a place") };
        if self.graph.outputs != last.outputs || !inside(part) || inside(into) {
            return unsupported("a part that is more than the last result");
        }
        if into.is_none() && !last.op.attrs().bool("unset").map_err(op_error)? {
            return unsupported("zeros around a part");
        }
        if part.is_some_and(|v| self.graph.ty(v).dtype.bits() < 8) {
            return unsupported("a part whose elements share bytes");
        }
        self.insert = Some((before.len(), last));
        Ok(before)
    }

    /// Whether the node at a position is the reduction that is a side result.
    fn is_side(&self, at: usize) -> bool {
        self.side.is_some_and(|(k, _)| k == at)
    }

    /// Whether a node needs no kernel: a view of an operand of the expression, or a number that the host alone reads.
    fn is_silent(&self, n: &Node) -> bool {
        self.dialect.reshapes && (is_view(self.graph, n) || is_on_host(self.graph, n))
    }

    /// The position of the node that is neither pointwise nor a view of an operand of the expression. Of several it is the only one
    /// that does not move data, as the others may be moves in front of it. Of moves it is the one that the expression does not read through, or
    /// the first whose result has the shape of the region's.
    fn find_anchor(&self, all: &[&Node]) -> Result<Option<usize>, BackendError> {
        let anchors = |&k: &usize| !all[k].op.is_pointwise() && !self.is_silent(all[k]) && !self.is_side(k);
        let found: Vec<usize> = (0..all.len()).filter(anchors).collect();
        let computes = |k: &&usize| !all[**k].op.movement().is_addressable();
        let mut computing = found.iter().filter(computes);
        let mut moving = found.iter().filter(|k| !self.is_cut(all[**k]));
        let like = self.result().map(|y| &self.graph.ty(y).dims);
        let whole = |k: &&usize| all[**k].outputs.first().map(|&v| &self.graph.ty(v).dims) == like;
        match (computing.next(), computing.next(), moving.next(), moving.next()) {
            (Some(&anchor), None, ..) | (None, _, Some(&anchor), None) => Ok(Some(anchor)),
            (None, _, None, _) => Ok(found.iter().find(whole).copied()),
            (_, other, ..) => {
                let other = other.or(found.last()).map_or("", |&k| all[k].op.name());
                unsupported(format!("two operators of one kernel that are not pointwise: {other}"))
            }
        }
    }

    /// Whether a node is a slice through which the expression reads an operand: where its neighbours in memory are mostly read at once.
    fn is_cut(&self, n: &Node) -> bool {
        let at_once = self.dialect.at_once;
        let fits = |run: usize| run.is_multiple_of(at_once) || run >= MANY * at_once;
        is_read_through(self.graph, n)
            && !self.is_silent(n)
            && (at_once == 1 || neighbours(self.graph, n).is_some_and(fits))
    }

    /// Finds the moves in front of the anchor's inputs, and says how many there are.
    fn moves_in_front(&mut self, all: &[&'a Node]) -> Result<usize, BackendError> {
        let Some((at, anchor)) = self.anchor else { return Ok(0) };
        let mut moves = Vec::with_capacity(anchor.inputs.len());
        for v in &anchor.inputs {
            let on_host = anchor.op.port(moves.len()).is_some_and(|p| p.host);
            let Some(v) = v.filter(|_| !on_host) else {
                moves.push(Vec::new());
                continue;
            };
            let view = chain(self.graph, all, at, v)?;
            self.rows &= view.rows;
            moves.push(view.moves);
        }
        let covered: HashSet<usize> = moves.iter().flatten().copied().collect();
        let own = |n: &Node| n.outputs.iter().any(|v| self.graph.outputs.contains(v));
        for (k, n) in all.iter().enumerate() {
            let stays = k != at
                && n.op.movement().is_addressable()
                && !self.is_silent(n)
                && !self.is_cut(n)
                && !covered.contains(&k);
            if stays || covered.contains(&k) && own(n) {
                return unsupported("a move that is read elsewhere");
            }
        }
        if !covered.is_empty() {
            self.moves = moves;
        }
        Ok(covered.len())
    }

    /// Builds the expression.
    fn fuse(&mut self) -> Result<(), BackendError> {
        let Some(output) = self.result() else {
            return unsupported(format!(
                "{} outputs of a fused region, 1 is possible",
                self.graph.outputs.len()
            ));
        };
        let first = match self.anchor {
            Some((_, n)) => {
                let Some((&y, others)) = n.outputs.split_first() else {
                    return unsupported("fusion behind no output");
                };
                let read = |v: &ValueId| {
                    let reads = |n: &Node| n.inputs.contains(&Some(*v));
                    self.graph.outputs.contains(v) || self.graph.nodes().any(|(_, n)| reads(n))
                };
                let drops = n.op.roles().absorbs_pointwise && self.side.is_none();
                if others.iter().any(read) || !others.is_empty() && !drops {
                    return unsupported("fusion behind several outputs");
                }
                if self.graph.ty(y).dims != self.graph.ty(output).dims {
                    return unsupported("a result that changes its shape after the anchor");
                }
                Some(y)
            }
            None => None,
        };
        let position = self.anchor.map_or(0, |(k, _)| k);
        let mut values: Vec<ValueId> = first.into_iter().collect();
        let (mut extras, mut slices) = (Vec::new(), Vec::new());
        for (k, (_, n)) in self.graph.nodes().enumerate().filter(|(_, (_, n))| n.op.is_pointwise()) {
            if k < position && first.is_some() {
                return unsupported("pointwise operators before the anchor");
            }
            for &v in n.inputs.iter().flatten() {
                if values.contains(&v) {
                    continue;
                }
                let through = |n: &Node| self.is_cut(n) || self.dialect.reshapes && is_view(self.graph, n);
                let view = self.graph.producer(v).filter(|(_, n)| through(n));
                let base = view.map_or(Some(v), |(_, n)| n.inputs.first().copied().flatten());
                let outside =
                    |v: &ValueId| matches!(self.graph.value(*v).source, Source::Input | Source::Weight(_));
                let Some(base) = base.filter(outside) else {
                    if view.is_some() {
                        return unsupported("a view of what the kernel itself computes");
                    }
                    continue;
                };
                if !self.graph.inputs.contains(&base) {
                    return unsupported("a constant that feeds a host port and a pointwise operator");
                }
                values.push(v);
                extras.push(base);
                let cut = view.filter(|(_, n)| self.is_cut(n));
                slices.push(cut.and_then(|(id, _)| self.graph.nodes().position(|(other, _)| other == id)));
            }
        }
        let types: Vec<DType> = values.iter().map(|&v| self.graph.ty(v).dtype).collect();
        let mut b = Builder::new(&types);
        let mut regs: HashMap<ValueId, u16> =
            values.iter().enumerate().map(|(i, &v)| (v, b.input(i))).collect();
        for (_, n) in self.graph.nodes().filter(|(_, n)| n.op.is_pointwise()) {
            let reg = self.inline(&mut b, n, &regs)?;
            regs.insert(n.outputs[0], reg);
        }
        let Some(&result) = regs.get(&output) else { return unsupported("an output that is no result") };
        self.fused = Some(b.finish(result, self.graph.ty(output).dtype));
        self.lies = values.split_off(usize::from(first.is_some()));
        self.extras = extras;
        self.slices = slices;
        Ok(())
    }

    fn inline(&self, b: &mut Builder, n: &Node, regs: &HashMap<ValueId, u16>) -> Result<u16, BackendError> {
        let given: Vec<ValueId> = n.inputs.iter().map_while(|v| *v).collect();
        let types: Vec<DType> = given.iter().map(|&v| self.graph.ty(v).dtype).collect();
        let Some(expr) = n.op.def().expr else { return unsupported("an anchor in the expression") };
        let expr = expr(n.op.attrs(), &types).map_err(|e| BackendError::InvalidArgument(e.to_string()))?;
        let args: Option<Vec<u16>> = given.iter().map(|v| regs.get(v).copied()).collect();
        match args {
            Some(args) => Ok(b.inline(&expr, &args)),
            None => unsupported("an expression that reads another output of the anchor"),
        }
    }

    /// The anchor's operator; refuses regions without one.
    pub fn op(&self) -> Result<&'a Op, BackendError> {
        self.anchor.map_or_else(|| unsupported("a region without an anchor"), |(_, n)| Ok(&n.op))
    }

    /// The name of the anchor's kernel, the generic one if there is one, which those of a single tactic are called by.
    pub fn kernel_name(&self) -> &'static str {
        let Ok(op) = self.op() else { return "" };
        let mut families = self.dialect.generic.iter().chain(self.dialect.own).flat_map(|f| f.iter());
        families.find(|k| k.ops.contains(&op.name())).map_or("", |k| k.name)
    }

    /// The element type of an input of the anchor, if present.
    pub fn dtype(&self, i: usize) -> Option<DType> {
        Some(self.graph.ty((*self.anchor?.1.inputs.get(i)?)?).dtype)
    }

    /// An input of the anchor, if present.
    pub fn input(&self, i: usize) -> Option<ValueId> {
        self.anchor?.1.inputs.get(i).copied().flatten()
    }

    /// The value that is bound for an input of the anchor: the first one of the moves in front of it.
    pub fn bound(&self, i: usize) -> Option<ValueId> {
        match self.moves.get(i).and_then(|m| m.first()) {
            None => self.input(i),
            Some(&first) => self.graph.nodes().nth(first)?.1.inputs.first().copied().flatten(),
        }
    }

    /// The value that the expression computes, whose shape it has; stored as a part of the region's output if it is
    /// [inserted](Site::insert). None of regions with several results.
    pub fn result(&self) -> Option<ValueId> {
        match (self.insert, &self.graph.outputs[..]) {
            (Some((_, insert)), _) => insert.inputs.get(1).copied().flatten(),
            (None, &[output]) => Some(output),
            (None, &[output, _]) if self.side.is_some() => Some(output),
            _ => None,
        }
    }

    /// A stored output: of the region if it is fused or has a side result, of the anchor else.
    pub fn stored_value(&self, j: usize) -> Option<ValueId> {
        if self.fused.is_some() || self.side.is_some() {
            return self.graph.outputs.get(j).copied();
        }
        self.anchor?.1.outputs.get(j).copied()
    }

    /// The element type of the anchor's first input.
    pub fn first_dtype(&self) -> DType {
        self.dtype(0).unwrap_or(DType::F32)
    }

    /// The rank of an input of the anchor, if present.
    pub fn rank(&self, i: usize) -> Option<usize> {
        Some(self.graph.ty((*self.anchor?.1.inputs.get(i)?)?).rank())
    }

    /// The element type of an output of the anchor, or of the side result behind it.
    pub fn out_dtype(&self, j: usize) -> DType {
        let value = match self.side {
            Some((_, n)) if j == 1 => n.outputs.first(),
            _ => self.anchor.and_then(|(_, n)| n.outputs.get(j)),
        };
        value.map_or(DType::F32, |&v| self.graph.ty(v).dtype)
    }

    /// Inputs of the anchor that are present and lie on the device.
    pub fn device_inputs(&self) -> Vec<usize> {
        let Some((_, n)) = self.anchor else { return Vec::new() };
        let present = n.inputs.iter().enumerate().filter(|(_, v)| v.is_some());
        present.map(|(i, _)| i).filter(|&i| !n.op.port(i).is_some_and(|p| p.host)).collect()
    }

    /// Whether an output of the anchor has a reader.
    pub fn wanted(&self, j: usize) -> bool {
        self.anchor.and_then(|(_, n)| n.outputs.get(j)).is_some_and(|v| self.graph.outputs.contains(v))
    }

    /// Types of the stored outputs: of the region if it is fused, of the anchor else, and of the side result.
    pub fn stored(&self) -> Vec<DType> {
        let types = |n: &Node| n.outputs.iter().map(|&v| self.graph.ty(v).dtype).collect();
        let mut stored: Vec<DType> = match (&self.fused, self.anchor) {
            (Some(e), _) => vec![e.result_type()],
            (None, Some((_, n))) => types(n),
            _ => Vec::new(),
        };
        stored.extend(self.side.map_or_else(Vec::new, |(_, n)| types(n)));
        stored
    }

    /// Outputs of the anchor that nobody reads, and a fused region does not store: their positions.
    pub fn dropped(&self) -> std::ops::Range<usize> {
        let all = self.anchor.map_or(0, |(_, n)| n.outputs.len());
        match self.fused {
            Some(_) if self.side.is_none() => 1..all,
            _ => 0..0,
        }
    }

    /// The kernels that may run it.
    pub fn kernels(&self) -> impl Iterator<Item = &'static Kernel> + '_ {
        self.dialect.kernels(|k| match self.anchor {
            _ if self.side.is_some() && !k.side_results => false,
            None => k.ops.is_empty(),
            Some((_, n)) => {
                let views = match k.views {
                    Views::Whole => self.moves.is_empty(),
                    Views::Rows => self.rows,
                    Views::Strided | Views::Framed => true,
                };
                k.ops.contains(&n.op.name()) && (k.epilogue || self.fused.is_none()) && views
            }
        })
    }

    /// Whether loops are cut into spans.
    pub fn cut(&self) -> bool {
        self.dialect.spans.is_some()
    }

    /// A constant of a kernel.
    pub fn constant(&self, name: &str, of: &str, value: impl std::fmt::Display) -> String {
        (self.dialect.constant)(name, of, &value.to_string())
    }

    /// Another name for the register type of an element type.
    pub fn alias(&self, name: &str, of: DType) -> String {
        (self.dialect.alias)(name, crate::scalar::register(of))
    }

    /// A function that returns an expression.
    pub fn function(&self, name: &str, arguments: &[(&str, &str)], result: &str, value: &str) -> String {
        (self.dialect.function)(name, arguments, result, value)
    }
}
