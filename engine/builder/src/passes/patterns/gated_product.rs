//! Gated products: an activation of one product times another product of the same input. Gates and values become columns of one matrix,
//! 32 of each in turn. The product's kernel has both sums of a result then, and stores neither.

use super::parallel_matmul::{Part, part};
use super::roll::cut;
use super::view::{View, constant, input};
use super::{Rule, Writer};
use kiln_backend::Target;
use kiln_ir::{Attrs, DType, Elems, Graph, IrError, Node, NodeId, OpName, Tensor, ValueId};
use kiln_ops::matmul::gated::{GATED_MATMUL, SIDE};
use kiln_ops::pointwise::activation::{GELU, SIGMOID, SWISH};
use kiln_ops::pointwise::binary::{ADD, MUL};
use kiln_ops::pointwise::clip::RELU;
use kiln_ops::pointwise::swiglu::SWIGLU;
use kiln_ops::pointwise::unary::TANH;
use kiln_ops::slice::concat::CONCAT;

pub struct GatedProduct {
    x: ValueId,
    gate: Half,
    value: Half,
    /// All layers that it replaces.
    inside: Vec<NodeId>,
}

/// One of the two factors.
struct Half {
    activation: &'static str,
    part: Part,
    /// Columns of the matrix.
    columns: [i64; 2],
    /// The term of these columns and of others of the matrix.
    bias: Option<ValueId>,
}

/// A target of this feature has kernels in which a thread has both sums. Others would compute each sum by itself.
const FEATURE: &str = "gated_products";

/// Operators whose name an activation has.
const PLAIN: &[(OpName, &str)] = &[(SIGMOID, "sigmoid"), (SWISH, "swish"), (RELU, "relu"), (TANH, "tanh")];

impl Rule for GatedProduct {
    const NAME: &'static str = "gated-product";
    const WEIGHTS: bool = true;
    // Tiles of such products are fewer.
    const ALWAYS: bool = false;
    const LATE: bool = true;
    // The kernel of the gate runs while that of the product behind it copies weights.
    const BY_RUNS: bool = true;

    fn wanted(target: &Target, _: &Graph, _: NodeId) -> bool {
        target.has(FEATURE)
    }

    /// The root multiplies the factors.
    fn find(view: &View<'_>, root: NodeId) -> Option<GatedProduct> {
        let node = view.g.get(root)?;
        let swiglu = node.op.is(SWIGLU) && node.op.attrs().float("alpha").is_ok_and(|a| a == 1.0);
        if !node.op.is(MUL) && !swiglu {
            return None;
        }
        let (y, a, b) = (*node.outputs.first()?, input(node, 0)?, input(node, 1)?);
        let t = view.g.ty(y);
        let whole = |v: ValueId| view.dims(v) == t.dims.as_slice() && view.g.ty(v).dtype == t.dtype;
        if !matches!(t.dtype, DType::F16 | DType::BF16) || a == b || !whole(a) || !whole(b) {
            return None;
        }
        let mut inside = vec![root];
        let gate = half(view, a, swiglu.then_some("swish"), &mut inside)?;
        let value = half(view, b, swiglu.then_some("none"), &mut inside)?;
        let x = |h: &Half| view.g.get(h.part.id).and_then(|n| input(n, 0));
        let shared = x(&gate)?;
        let apart = gate.part.id != value.part.id || {
            let [low, high] = if gate.columns[0] == 0 { [&gate, &value] } else { [&value, &gate] };
            low.columns[0] == 0 && low.columns[1] == high.columns[0] && high.columns[1] == low.part.width
        };
        let width = gate.columns[1] - gate.columns[0];
        let alike = value.columns[1] - value.columns[0] == width && gate.part.axis == value.part.axis;
        let typed = [gate.bias, value.bias].iter().flatten().all(|&v| view.g.ty(v).dtype == t.dtype);
        let fits = alike
            && width > 0
            && width % SIDE as i64 == 0
            && x(&value) == Some(shared)
            && view.dims(shared).len() >= 2;
        inside.sort_unstable();
        inside.dedup();
        (fits && apart && typed && view.g.ty(shared).dtype == t.dtype).then_some(GatedProduct {
            x: shared,
            gate,
            value,
            inside,
        })
    }

    fn inside(&self) -> &[NodeId] {
        &self.inside
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let (axis, halves) = (self.gate.part.axis, [&self.gate, &self.value]);
        let depth = w.g.ty(self.gate.part.weights).dims[usize::from(axis == 0)].as_const().unwrap_or(-1);
        let mut matrices = Vec::new();
        for half in halves {
            matrices.push(half.of(&mut w, half.part.weights, axis)?);
        }
        let weights = in_turn(&mut w, &matrices, axis as usize, depth)?;
        let mut inputs = vec![Some(self.x), Some(weights)];
        if halves.iter().any(|h| h.bias.is_some()) {
            let mut terms = Vec::new();
            for half in halves {
                terms.push(match half.bias {
                    Some(bias) => half.of(&mut w, bias, 0)?,
                    None => {
                        let count = (half.columns[1] - half.columns[0]) as usize;
                        let zeros = Elems::F(vec![0.0; count]);
                        let zeros = Tensor::from_elems(w.g.ty(self.x).dtype, &[count], &zeros);
                        w.constant(
                            zeros.ok_or_else(|| IrError::Structure("a bias could not be made".into()))?,
                        )
                    }
                });
            }
            inputs.push(Some(in_turn(&mut w, &terms, 0, 1)?));
        }
        let attrs = Attrs::new().with("trans_b", axis == 0);
        let attrs = attrs.with("gate", self.gate.activation).with("value", self.value.activation);
        let y = w.node(GATED_MATMUL, attrs, &inputs)?;
        Ok(w.replace(root, y))
    }
}

impl Half {
    /// Its part of a constant with an element for each column along an axis.
    fn of(&self, w: &mut Writer<'_>, all: ValueId, axis: i64) -> Result<ValueId, IrError> {
        match self.columns {
            [0, end] if end == self.part.width => Ok(all),
            [from, to] => w.slice(all, axis, from, to),
        }
    }
}

/// Two constants with 32 elements of each in turn along an axis, which is the last one, or in front of one of `depth` elements.
fn in_turn(w: &mut Writer<'_>, both: &[ValueId], axis: usize, depth: i64) -> Result<ValueId, IrError> {
    let rank = w.g.ty(both[0]).rank();
    let shape = |side: i64| match (rank, axis) {
        (1, _) => vec![-1, side],
        (_, 0) => vec![-1, side, depth],
        _ => vec![depth, -1, side],
    };
    let mut parts = Vec::new();
    for &v in both {
        parts.push(w.reshape(v, &shape(SIDE as i64))?);
    }
    let all = w.op(CONCAT, Attrs::new().with("axis", axis as i64 + 1), &parts)?;
    match (rank, axis) {
        (1, _) => w.reshape(all, &[-1]),
        (_, 0) => w.reshape(all, &[-1, depth]),
        _ => w.reshape(all, &[depth, -1]),
    }
}

/// A factor: an activation, or `given` for one that the root has, of a product by a constant matrix, or of some of its columns.
fn half(view: &View<'_>, v: ValueId, given: Option<&'static str>, inside: &mut Vec<NodeId>) -> Option<Half> {
    let mut at = v;
    let mut activation = given.unwrap_or("none");
    if let Some((id, node)) = view.g.producer(v).filter(|_| given.is_none())
        && let Some(name) = named(node)
    {
        inside.push(id);
        (at, activation) = (input(node, 0)?, name);
    }
    let mut columns = None;
    if let Some(slice) = cut(view, at)
        && slice.axis + 1 == view.dims(at).len()
    {
        inside.push(view.g.producer(at)?.0);
        (at, columns) = (slice.x, Some([slice.first, slice.end]));
    }
    let mut bias = None;
    if let Some((id, sum)) = view.made_by(at, ADD) {
        let (a, b) = (input(sum, 0)?, input(sum, 1)?);
        let (product, term) = if constant(view.g, b) { (a, b) } else { (b, a) };
        inside.push(id);
        (at, bias) = (product, Some(term).filter(|&v| constant(view.g, v)));
        bias?;
    }
    let (id, node) = view.g.producer(at)?;
    let part = part(view.g, id, node)?;
    inside.push(id);
    let vector = |v: ValueId| view.dims(v).len() == 1 && view.dims(v)[0].as_const() == Some(part.width);
    let fits = view.g.ty(part.weights).dtype == view.g.ty(v).dtype
        && bias.is_none_or(vector)
        && node.meta.precision.is_none();
    fits.then_some(Half { activation, part, columns: columns.unwrap_or([0, part.width]), bias })
}

/// The name that an activation has in gated products.
fn named(node: &Node) -> Option<&'static str> {
    if node.op.is(GELU) {
        return match node.op.attrs().str("approximate").ok()? {
            "tanh" => Some("gelu_tanh"),
            "none" => Some("gelu"),
            _ => None,
        };
    }
    let scaled = node.op.is(SWISH) && node.op.attrs().float("alpha").is_ok_and(|a| a != 1.0);
    PLAIN.iter().find(|(op, _)| node.op.is(*op) && !scaled).map(|(_, name)| *name)
}
