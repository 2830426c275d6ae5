//! Products of normalized rows by constant matrices. The norm's factors go into the matrix and its terms into a bias. The product's kernel
//! finds mean and spread of the rows that it reads anyway, so that normalized rows are never stored.

use super::parallel_matmul::{Part, part};
use super::view::{View, constant, input};
use super::{Rule, Writer};
use kiln_ir::{Attr, Attrs, DType, IrError, Node, NodeId, Op, ValueId};
use kiln_ops::cast::CAST;
use kiln_ops::matmul::MATMUL;
use kiln_ops::matmul::gated::GATED_MATMUL;
use kiln_ops::matmul::normed::NORM_MATMUL;
use kiln_ops::norm::layer_norm::{LAYER_NORM, RMS_NORM};
use kiln_ops::pointwise::binary::{ADD, MUL};
use kiln_ops::reduce::REDUCE;
use kiln_ops::shape::RESHAPE;

pub struct NormProduct {
    x: ValueId,
    /// Whether the norm subtracts the mean.
    centered: bool,
    epsilon: f64,
    scale: Option<ValueId>,
    bias: Option<ValueId>,
    products: Vec<Product>,
}

/// A product that reads normalized rows.
struct Product {
    part: Part,
    trans: bool,
    /// The reshape in front of it, which keeps rows whole.
    reshape: Option<(Op, ValueId)>,
    /// A constant term behind it: the sum and the term.
    term: Option<(NodeId, ValueId)>,
    /// A gated product, which adds a term itself.
    gated: Option<(Op, Option<ValueId>)>,
}

impl Rule for NormProduct {
    const NAME: &'static str = "norm-product";
    const WEIGHTS: bool = true;
    // Every block of a product finds the moments of its rows again.
    const ALWAYS: bool = false;
    const LATE: bool = true;
    // The norm's kernel runs while that of the product copies weights.
    const BY_RUNS: bool = true;

    /// The root is the norm.
    fn find(view: &View<'_>, root: NodeId) -> Option<NormProduct> {
        let node = view.g.get(root)?;
        let centered = node.op.is(LAYER_NORM);
        if !centered && !node.op.is(RMS_NORM) {
            return None;
        }
        let (x, y) = (input(node, 0)?, *node.outputs.first()?);
        let t = view.g.ty(x);
        let axis = node.op.attrs().int("axis").ok()?;
        let last = axis == -1 || axis == t.rank() as i64 - 1;
        let depth = t.dims.last()?.as_const()?;
        let (scale, bias) = (input(node, 1), input(node, 2));
        let along = |v: Option<ValueId>| {
            v.is_none_or(|v| {
                constant(view.g, v) && view.g.ty(v).static_volume() == usize::try_from(depth).ok()
            })
        };
        let alone = node.outputs.iter().skip(1).all(|&v| !view.is_read(v));
        let narrow = matches!(t.dtype, DType::F16 | DType::BF16);
        if !last || !narrow || t.rank() < 2 || !along(scale) || !along(bias) || !alone {
            return None;
        }
        let products = products(view, y, None)?;
        let epsilon = node.op.attrs().float("epsilon").ok()?;
        Some(NormProduct { x, centered, epsilon, scale, bias, products })
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let vector = |w: &mut Writer<'_>, v: Option<ValueId>| v.map(|v| w.reshape(v, &[-1])).transpose();
        let (scale, bias) = (vector(&mut w, self.scale)?, vector(&mut w, self.bias)?);
        for product in &self.products {
            self.write_product(&mut w, root, product, scale, bias)?;
        }
        w.g.remove_node(root);
        Ok(true)
    }
}

impl NormProduct {
    fn write_product(
        &self,
        w: &mut Writer<'_>,
        root: NodeId,
        product: &Product,
        scale: Option<ValueId>,
        bias: Option<ValueId>,
    ) -> Result<(), IrError> {
        let Product { part, trans, reshape, term, gated } = product;
        let depth_axis = usize::from(*trans);
        let mut weights = part.weights;
        if let Some(scale) = scale {
            let column = w.column(scale, 2, depth_axis)?;
            weights = w.op(MUL, Attrs::new(), &[weights, column])?;
        }
        let sums = if self.centered {
            let wide = w.op(CAST, Attrs::new().with("to", DType::F32), &[weights])?;
            let axes = w.ints(&[depth_axis as i64])?;
            Some(w.op(REDUCE, Attrs::new().with("op", "sum").with("keep_dims", false), &[wide, axes])?)
        } else {
            None
        };
        let x = match reshape {
            Some((op, shape)) => w.nodes(op.clone(), &[Some(self.x), Some(*shape)])?[0],
            None => self.x,
        };
        let trans = || Attrs::new().with("trans_b", Attr::Bool(*trans));
        // The norm's terms and that of the product.
        let mut terms = match bias {
            Some(bias) => Some(w.op(MATMUL, trans(), &[bias, part.weights])?),
            None => None,
        };
        let mut y = match gated {
            Some((op, own)) => {
                terms = match (terms, *own) {
                    (Some(a), Some(b)) => Some(w.op(ADD, Attrs::new(), &[a, b])?),
                    (a, b) => a.or(b),
                };
                let attrs = op.attrs().clone().with("normalized", true).with("epsilon", self.epsilon);
                w.node(GATED_MATMUL, attrs, &[Some(x), Some(weights), terms.take(), sums])?
            }
            None => {
                w.node(NORM_MATMUL, trans().with("epsilon", self.epsilon), &[Some(x), Some(weights), sums])?
            }
        };
        let names =
            [Some(root), Some(part.id)].map(|id| id.and_then(|id| w.g.get(id)).map(|n| n.name.clone()));
        if let (Some(made), [Some(norm), Some(name)]) = (w.g.producer(y).map(|p| p.0), names)
            && let Some(node) = w.g.get_mut(made)
        {
            node.name = format!("{norm} + {name}");
        }
        let (mut end, mut own) = (part.y, Vec::from([part.id]));
        if let Some(mut all) = terms {
            if let Some((sum, constant)) = *term {
                all = w.op(ADD, Attrs::new(), &[all, constant])?;
                end = w.g.get(sum).and_then(|n| n.outputs.first().copied()).unwrap_or(end);
                own.insert(0, sum);
            }
            y = w.op(ADD, Attrs::new(), &[y, all])?;
        }
        w.stand_in(end, y);
        own.into_iter().for_each(|id| w.g.remove_node(id));
        Ok(())
    }
}

/// All readers of normalized rows, if they are products by constant matrices.
fn products(view: &View<'_>, y: ValueId, reshape: Option<&(Op, ValueId)>) -> Option<Vec<Product>> {
    if view.readers(y).is_empty() || !view.is_read(y) || view.g.outputs.contains(&y) {
        return None;
    }
    let mut all = Vec::new();
    for &(id, port) in view.readers(y) {
        let node = view.g.get(id).filter(|_| port == 0)?;
        if node.op.is(RESHAPE) && reshape.is_none() {
            let (z, shape) = (*node.outputs.first()?, input(node, 1)?);
            let rows =
                view.dims(z).len() >= 2 && view.dims(z).last()?.as_const() == view.dims(y).last()?.as_const();
            all.extend(products(view, z, Some(&(node.op.clone(), shape))).filter(|_| rows)?);
            continue;
        }
        let (part, gated) = match gated(view, id, node) {
            Some((part, own)) => (part, Some((node.op.clone(), own))),
            None => (part(view.g, id, node)?, None),
        };
        let plain = view.g.ty(part.weights).dtype == view.g.ty(y).dtype && node.meta.precision.is_none();
        let trans = node.op.attrs().bool("trans_b").ok()?;
        let term = if gated.is_some() { None } else { term(view, &part) };
        all.push(Product { part, trans, reshape: reshape.cloned(), term, gated });
        plain.then_some(())?;
    }
    Some(all)
}

/// A gated product of rows that are not normalized yet, by constants, and its term.
fn gated(view: &View<'_>, id: NodeId, node: &Node) -> Option<(Part, Option<ValueId>)> {
    let plain = node.op.is(GATED_MATMUL) && !node.op.attrs().bool("normalized").ok()?;
    // Layers over constants may follow the norm.
    let folded = |v: ValueId| view.g.weight(v).is_some();
    let weights = input(node, 1).filter(|&v| plain && folded(v))?;
    let axis = usize::from(!node.op.attrs().bool("trans_b").ok()?);
    let width = view.dims(weights).get(axis)?.as_const()?;
    let own = input(node, 2);
    own.is_none_or(folded)
        .then_some((Part { id, y: *node.outputs.first()?, weights, width, axis: axis as i64 }, own))
}

/// The sum behind a product with a constant that has an element for each column.
fn term(view: &View<'_>, part: &Part) -> Option<(NodeId, ValueId)> {
    let &[(id, port)] = view.readers(part.y) else { return None };
    let node = view.g.get(id).filter(|n| n.op.is(ADD) && view.read_once(part.y))?;
    let other = input(node, 1 - port.min(1)).filter(|&v| constant(view.g, v))?;
    let t = view.g.ty(other);
    let fits = t.rank() == 1 && t.static_volume() == usize::try_from(part.width).ok();
    (fits && t.dtype == view.g.ty(part.y).dtype && node.meta.precision.is_none()).then_some((id, other))
}
