//! Writing layers.

use kiln_ir::{Attrs, DType};
use kiln_network::TensorId;

use super::cx::Cx;
use crate::error::{Refusal, unsupported};

impl Cx<'_> {
    /// The name of the node's next layer: the node's own for the first, with the operator behind it for others.
    fn layer_name(&self, op: &str) -> String {
        let label = self.node.label();
        let own = self.layers == 0 && !self.importer.reserved.contains(&label);
        if own { label } else { format!("{label}/{op}") }
    }

    /// A layer with all its outputs.
    pub(crate) fn layers(
        &mut self,
        op: &str,
        attrs: Attrs,
        inputs: &[Option<TensorId>],
    ) -> Result<Vec<TensorId>, Refusal> {
        let name = self.layer_name(op);
        self.layers += 1;
        let given = inputs.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        Ok(self.importer.net.add_layer(&name, op, attrs, &inputs[..given])?)
    }

    /// A layer's first output.
    pub(crate) fn layer(
        &mut self,
        op: &str,
        attrs: Attrs,
        inputs: &[Option<TensorId>],
    ) -> Result<TensorId, Refusal> {
        match self.layers(op, attrs, inputs)?.first() {
            Some(first) => Ok(*first),
            None => unsupported(format!("{op} has no outputs")),
        }
    }

    /// A layer of one input without attributes.
    pub(crate) fn un(&mut self, op: &str, x: TensorId) -> Result<TensorId, Refusal> {
        self.layer(op, Attrs::new(), &[Some(x)])
    }

    /// A layer of two inputs without attributes.
    pub(crate) fn bin(&mut self, op: &str, a: TensorId, b: TensorId) -> Result<TensorId, Refusal> {
        self.layer(op, Attrs::new(), &[Some(a), Some(b)])
    }

    /// `op(x, c)` with a number of the type of `x`.
    pub(crate) fn bin_num(&mut self, op: &str, x: TensorId, c: f64) -> Result<TensorId, Refusal> {
        let c = self.num_like(x, c)?;
        self.bin(op, x, c)
    }

    /// The tensor in another element type; itself if it has that already.
    pub(crate) fn cast(&mut self, x: TensorId, to: DType) -> Result<TensorId, Refusal> {
        if self.dtype(x) == to {
            return Ok(x);
        }
        self.layer("cast", Attrs::new().with("to", to), &[Some(x)])
    }

    /// A tensor of its own with the same contents.
    pub(crate) fn identity(&mut self, x: TensorId) -> Result<TensorId, Refusal> {
        self.un("identity", x)
    }

    /// Makes a run fail with a message unless all elements of `cond` are true. Conditions on sizes and on contents that the
    /// host knows are checked before the run starts; what is certain now needs no layer.
    pub(crate) fn demand(&mut self, cond: TensorId, message: String) -> Result<(), Refusal> {
        if self.ints_of(cond).is_some_and(|all| !all.contains(&0)) {
            return Ok(());
        }
        self.layers("assertion", Attrs::new().with("message", message), &[Some(cond)]).map(drop)
    }
}
