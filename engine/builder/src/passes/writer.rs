//! Writing layers into a graph before a position.

use kiln_ir::OpName;
use kiln_ir::graph::Meta;
use kiln_ir::{Attr, Attrs, DType, Dim, Graph, IrError, NodeId, Op, Source, Tensor, ValueId};
use kiln_ops::cast::CAST;
use kiln_ops::shape::RESHAPE;
use kiln_ops::slice::SLICE;

/// A cast at a position of the order.
pub fn cast(g: &mut Graph, at: usize, name: &str, x: ValueId, to: DType) -> Result<ValueId, IrError> {
    let out = g.insert_node(at, name, Op::new(CAST, Attrs::new().with("to", to))?, &[Some(x)])?;
    out.first().copied().ok_or_else(|| IrError::Structure("a cast has no output".into()))
}

/// Adds nodes, in order, before the position of one node; their names start with a stem.
pub struct Writer<'a> {
    /// The graph that is written to.
    pub g: &'a mut Graph,
    at: usize,
    stem: String,
    count: usize,
    meta: Meta,
    /// Values from here on are its own.
    first: u32,
}

impl Writer<'_> {
    /// Writes before node `at`; new nodes get its precision.
    pub fn before(g: &mut Graph, at: NodeId) -> Writer<'_> {
        let position = g.order().iter().position(|&n| n == at).unwrap_or(g.order().len());
        let (stem, meta) = g.get(at).map_or_else(Default::default, |n| (n.name.clone(), n.meta.clone()));
        let first = g.value_ids().count() as u32;
        Writer { g, at: position, stem, count: 0, meta, first }
    }

    /// Leaves the precision of new nodes open from here on.
    pub fn forget_precision(&mut self) {
        self.meta.precision = None;
    }

    /// New nodes are asked to run in this type from here on.
    pub fn want_precision(&mut self, precision: Option<DType>) {
        self.meta.precision = precision;
    }

    fn name(&mut self, what: &str) -> String {
        self.count += 1;
        format!("{}.{what}{}", self.stem, self.count)
    }

    /// A layer on these inputs; its first output.
    pub fn op(&mut self, op: OpName, attrs: Attrs, inputs: &[ValueId]) -> Result<ValueId, IrError> {
        let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
        self.node(op, attrs, &inputs)
    }

    /// A layer on these inputs, some perhaps absent; its first output.
    pub fn node(&mut self, op: OpName, attrs: Attrs, inputs: &[Option<ValueId>]) -> Result<ValueId, IrError> {
        let out = self.nodes(Op::new(op, attrs)?, inputs)?;
        out.first().copied().ok_or_else(|| IrError::Structure(format!("{op} has no output")))
    }

    /// A layer on these inputs; all its outputs.
    pub fn nodes(&mut self, op: Op, inputs: &[Option<ValueId>]) -> Result<Vec<ValueId>, IrError> {
        let name = self.name(&op.id());
        let out = self.g.insert_node(self.at, &name, op, inputs)?;
        self.at += 1;
        let made = out.first().and_then(|&y| self.g.producer(y)).map(|p| p.0);
        if let Some(node) = made.and_then(|id| self.g.get_mut(id)) {
            node.meta.precision = self.meta.precision;
        }
        Ok(out)
    }

    /// A value in a type, by a cast where it has another one.
    pub fn in_type(&mut self, x: ValueId, to: DType) -> Result<ValueId, IrError> {
        if self.g.ty(x).dtype == to { Ok(x) } else { self.op(CAST, Attrs::new().with("to", to), &[x]) }
    }

    /// A constant of one element.
    pub fn scalar(&mut self, x: f64, dtype: DType) -> Result<ValueId, IrError> {
        let t = Tensor::from_elems(dtype, &[], &kiln_ir::Elems::F(vec![x]));
        let t = t.ok_or_else(|| IrError::Structure("a scalar could not be made".into()))?;
        Ok(self.constant(t))
    }

    /// A constant.
    pub fn constant(&mut self, t: Tensor) -> ValueId {
        let name = self.name("constant");
        let name = self.g.unique_name(&name);
        self.g.add_constant(&name, t)
    }

    /// A weight of this name, which a refit may replace.
    pub fn weight(&mut self, name: &str, tensor: Tensor) -> ValueId {
        let v = self.constant(tensor);
        if let Source::Weight(w) = &mut self.g.value_mut(v).source {
            w.name = Some(name.into());
        }
        v
    }

    /// An integer constant of one element.
    pub fn integer(&mut self, x: i64, dtype: DType) -> Result<ValueId, IrError> {
        let t = Tensor::from_elems(dtype, &[], &kiln_ir::Elems::I(vec![x]));
        let t = t.ok_or_else(|| IrError::Structure("a scalar could not be made".into()))?;
        Ok(self.constant(t))
    }

    /// A constant list of integers: a shape, axes.
    pub fn ints(&mut self, v: &[i64]) -> Result<ValueId, IrError> {
        let t = Tensor::i64(&[v.len()], v);
        let t = t.ok_or_else(|| IrError::Structure("a list could not be made".into()))?;
        let name = self.name("ints");
        let name = self.g.unique_name(&name);
        Ok(self.g.add_constant(&name, t))
    }

    /// Reshapes; −1 is what remains, 0 a dimension of no elements.
    pub fn reshape(&mut self, x: ValueId, shape: &[i64]) -> Result<ValueId, IrError> {
        let shape = self.ints(shape)?;
        let zero = shape_has_zero(self.g, shape);
        self.op(RESHAPE, Attrs::new().with("allow_zero", Attr::Bool(zero)), &[x, shape])
    }

    /// The elements from `from` to before `to` along an axis.
    pub fn slice(&mut self, x: ValueId, axis: i64, from: i64, to: i64) -> Result<ValueId, IrError> {
        let bounds = [self.ints(&[from])?, self.ints(&[to])?, self.ints(&[axis])?];
        self.op(SLICE, Attrs::new(), &[x, bounds[0], bounds[1], bounds[2]])
    }

    /// A [C] vector as a tensor of `rank` dimensions with C at `axis`.
    pub fn column(&mut self, v: ValueId, rank: usize, axis: usize) -> Result<ValueId, IrError> {
        let shape: Vec<i64> = (0..rank).map(|i| if i == axis { -1 } else { 1 }).collect();
        self.reshape(v, &shape)
    }

    /// Puts a new value in the place of another, whose name it takes.
    pub fn stand_in(&mut self, y: ValueId, new: ValueId) {
        self.g.replace_uses(y, new);
        let name = std::mem::take(&mut self.g.value_mut(y).name);
        self.g.value_mut(new).name = name;
    }

    /// Puts `new` in the place of the single output of node `old` and removes the node. A value that this writer made,
    /// or one in the place of an output of the graph, takes the name. What is not a layer's result, or an output itself,
    /// can't stand for an output: then nothing happens, and the answer is false.
    pub fn replace(self, old: NodeId, new: ValueId) -> bool {
        let g = self.g;
        let Some(y) = g.get(old).and_then(|n| n.outputs.first().copied()) else { return false };
        let is_output = g.outputs.contains(&y);
        if is_output && (g.producer(new).is_none() || g.outputs.contains(&new)) {
            return false;
        }
        let own = new.0 >= self.first;
        let dims: Vec<Dim> = g.ty(y).dims.clone();
        if own && g.ty(new).rank() == dims.len() {
            g.value_mut(new).fact.ty.dims = dims;
        }
        g.replace_uses(y, new);
        g.remove_node(old);
        if own || is_output {
            let name = std::mem::take(&mut g.value_mut(y).name);
            g.value_mut(new).name = name;
        }
        true
    }
}

fn shape_has_zero(g: &Graph, shape: ValueId) -> bool {
    g.weight(shape).is_some_and(|w| w.tensor.to_i64().contains(&0))
}
