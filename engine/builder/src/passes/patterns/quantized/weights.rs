//! A product by dequantized weights whose other operand is a float: the product by the codes themselves, which are dequantized
//! while they are multiplied. Plans and devices hold codes, and kernels for few rows read them at the speed of memory.

use super::super::view::{View, constant, input};
use super::super::{Rule, Writer};
use super::codes::is_all;
use kiln_backend::Target;
use kiln_ir::{Attrs, DType, Graph, IrError, Node, NodeId, ValueId};
use kiln_ops::cast::CAST;
use kiln_ops::matmul::MATMUL;
use kiln_ops::matmul::codes::MATMUL_CODES;
use kiln_ops::quantize::DEQUANTIZE;
use kiln_ops::shape::RESHAPE;
use kiln_ops::shape::expand::EXPAND;
use kiln_ops::slice::SLICE;
use kiln_ops::transpose::TRANSPOSE;

/// Rows up to which a product takes as long as its weights are read. Weights of 8 bits stay codes for so many: for more rows, or for an
/// unknown number, products of floats are faster on most devices.
pub const FEW: i64 = 64;

/// Feature of targets whose kernels for many rows dequantize codes about as fast as they read floats. The search tries floats there.
pub const FEATURE: &str = "weights_as_codes";

/// A product by weights that stay codes.
pub struct WeightCodes {
    x: ValueId,
    codes: ValueId,
    scale: ValueId,
    zero: Option<ValueId>,
    /// Sizes of the codes' dimensions, those along which scale or zero point change, and how many of them are merged into the rows.
    sizes: Vec<i64>,
    varies: Vec<bool>,
    rows: usize,
    /// Rows and columns that are left of the matrix, if it is cut.
    cut: Option<[i64; 2]>,
    /// Whether rows of the matrix are elements of the depth.
    turned: bool,
    /// Whether codes pay on every device: rows are few, or weights of 4 bits save memory.
    pays: bool,
    to: DType,
}

/// Sizes of the dimensions of a value, if all are numbers.
fn sizes(g: &Graph, v: ValueId) -> Option<Vec<i64>> {
    g.ty(v).dims.iter().map(|d| d.as_const()).collect()
}

/// The dimensions among these along which a value that broadcasts to them changes.
fn varying(g: &Graph, v: Option<ValueId>, of: &[i64]) -> Option<Vec<bool>> {
    let own = v.map_or(Some(Vec::new()), |v| sizes(g, v))?;
    let lead = of.len().checked_sub(own.len())?;
    Some((0..of.len()).map(|i| i >= lead && own[i - lead] != 1).collect())
}

/// Whether a refit may replace it.
fn named(g: &Graph, v: ValueId) -> bool {
    let own = |v: ValueId| g.weight(v).is_some_and(|w| w.name.is_some() || w.recipe.is_some());
    own(v) || g.producer(v).is_some_and(|(_, n)| n.inputs.iter().flatten().any(|&v| named(g, v)))
}

/// Rows and columns that a slice leaves of a matrix, if it keeps what comes first.
fn kept(view: &View<'_>, node: &Node) -> Option<[i64; 2]> {
    let starts = view.ints(input(node, 1)?)?;
    let steps = match input(node, 4) {
        Some(v) => view.ints(v)?,
        None => Vec::new(),
    };
    let first = starts.iter().all(|&n| n == 0) && steps.iter().all(|&n| n == 1);
    first.then(|| sizes(view.g, *node.outputs.first()?))??.try_into().ok()
}

impl WeightCodes {
    /// The number of neighbours along a merged group of dimensions that share a scale; none where others are between them.
    fn shared(&self, group: std::ops::Range<usize>) -> Option<i64> {
        let last = self.varies[group.clone()].iter().rposition(|&v| v);
        let inner = last.map_or(group.start, |i| group.start + i + 1);
        let whole = (group.start..inner).all(|i| self.varies[i] || self.sizes[i] == 1);
        whole.then(|| self.sizes[inner..group.end].iter().product())
    }

    /// Elements that share a scale in a row of the matrix, and rows that do.
    fn sharing(&self) -> Option<[i64; 2]> {
        Some([self.shared(0..self.rows)?, self.shared(self.rows..self.sizes.len())?])
    }

    /// Sizes of rows and columns, before they are cut.
    fn matrix(&self) -> [i64; 2] {
        let product = |d: &[i64]| d.iter().product();
        [product(&self.sizes[..self.rows]), product(&self.sizes[self.rows..])]
    }

    /// Whether the kernel's scales are those that there are, whatever is cut.
    fn fits(&self) -> bool {
        let Some(shared) = self.sharing() else { return false };
        let whole = self.matrix();
        let parts = |size: i64, of: i64| size / of.max(1) + i64::from(size % of.max(1) != 0);
        let left = self.cut.unwrap_or(whole);
        (0..2)
            .all(|i| shared[i] > 0 && left[i] > 0 && parts(whole[i], shared[i]) == parts(left[i], shared[i]))
    }
}

impl Rule for WeightCodes {
    const NAME: &'static str = "weight-codes";
    const WEIGHTS: bool = true;

    fn wanted(target: &Target, g: &Graph, root: NodeId) -> bool {
        target.has(FEATURE) || WeightCodes::find(&View::new(g), root).is_some_and(|found| found.pays)
    }

    fn find(view: &View<'_>, root: NodeId) -> Option<WeightCodes> {
        let g = view.g;
        let node = g.get(root).filter(|n| n.op.is(MATMUL))?;
        let (x, weights) = (input(node, 0)?, input(node, 1)?);
        let attrs = node.op.attrs();
        let plain = !attrs.bool("trans_a").ok()? || g.ty(x).rank() < 2;
        let to = g.ty(x).dtype;
        if !plain || g.ty(weights).rank() != 2 || !matches!(to, DType::F32 | DType::F16 | DType::BF16) {
            return None;
        }
        let mut turned = !attrs.bool("trans_b").ok()?;
        let (mut v, mut cut, mut merged) = (weights, None, None);
        let dequantized = loop {
            let (_, n) = g.producer(v)?;
            match n.op.id() {
                DEQUANTIZE => break n,
                CAST if g.ty(input(n, 0)?).dtype.is_float() => {}
                TRANSPOSE if cut.is_none() && merged.is_none() && view.perm(n)? == [1, 0] => turned = !turned,
                SLICE if cut.is_none() && merged.is_none() => cut = Some(kept(view, n)?),
                RESHAPE if merged.is_none() => merged = Some(sizes(g, v)?),
                _ => return None,
            }
            v = input(n, 0)?;
        };
        let (codes, scale) = (input(dequantized, 0)?, input(dequantized, 1)?);
        let zero = input(dequantized, 2).filter(|&z| named(g, z) || !is_all(g, z, 0));
        let rows = g
            .ty(x)
            .dims
            .split_last()
            .map(|(_, d)| d.iter().map(|d| d.as_const()).product::<Option<i64>>())?;
        let of = g.ty(codes).dtype;
        let pays = of == DType::I4 || rows.is_some_and(|n| n <= FEW);
        let given = [Some(codes), Some(scale), zero];
        let small = matches!(of, DType::I4 | DType::I8 | DType::U8);
        if !small || !given.into_iter().flatten().all(|v| constant(g, v)) {
            return None;
        }
        let sizes = sizes(g, codes)?;
        let varies: Vec<bool> = varying(g, Some(scale), &sizes)?
            .into_iter()
            .zip(varying(g, zero, &sizes)?)
            .map(|(a, b)| a || b)
            .collect();
        let matrix: [i64; 2] = merged.unwrap_or_else(|| sizes.clone()).try_into().ok()?;
        // The dimensions that make up the rows.
        let rows = (0..=sizes.len())
            .find(|&n| [&sizes[..n], &sizes[n..]].map(|d| d.iter().product::<i64>()) == matrix)?;
        let found = WeightCodes { x, codes, scale, zero, sizes, varies, rows, cut, turned, pays, to };
        found.fits().then_some(found)
    }

    fn write(self, mut w: Writer<'_>, root: NodeId) -> Result<bool, IrError> {
        let (Some(shared), whole) = (self.sharing(), self.matrix()) else { return Ok(false) };
        let mut codes = self.codes;
        if self.sizes.len() != 2 || self.sizes != whole {
            codes = w.reshape(codes, &whole)?;
        }
        if let Some(left) = self.cut.filter(|left| *left != whole) {
            let (starts, ends) = (w.ints(&[0, 0])?, w.ints(&left)?);
            codes = w.op(SLICE, Attrs::new(), &[codes, starts, ends])?;
        }
        let part = |size: i64, of: i64| size / of.max(1);
        let parts = [part(whole[0], shared[0]), part(whole[1], shared[1])];
        let scale = self.laid(&mut w, self.scale, &parts)?;
        let scale = w.in_type(scale, self.to)?;
        let zero = self.zero.map(|z| self.laid(&mut w, z, &parts)).transpose()?;
        let mut turn = |v: ValueId| match self.turned {
            true => w.op(TRANSPOSE, Attrs::new().with("perm", vec![1i64, 0]), &[v]),
            false => Ok(v),
        };
        let (codes, scale, zero) = (turn(codes)?, turn(scale)?, zero.map(&mut turn).transpose()?);
        let [across, along] = if self.turned { [shared[1], shared[0]] } else { shared };
        let attrs = Attrs::new().with("along", along).with("across", across);
        let inputs: Vec<Option<ValueId>> = [self.x, codes, scale].into_iter().chain(zero).map(Some).collect();
        let y = w.node(MATMUL_CODES, attrs, &inputs)?;
        Ok(w.replace(root, y))
    }
}

impl WeightCodes {
    /// Scales or zero points as a matrix of one element for each part of the weights.
    fn laid(&self, w: &mut Writer<'_>, v: ValueId, parts: &[i64; 2]) -> Result<ValueId, IrError> {
        let each: Vec<i64> =
            self.sizes.iter().zip(&self.varies).map(|(&n, &varies)| if varies { n } else { 1 }).collect();
        let mut v = v;
        if sizes(w.g, v).is_none_or(|own| own.iter().product::<i64>() != each.iter().product::<i64>()) {
            let shape = w.ints(&each)?;
            v = w.op(EXPAND, Attrs::new(), &[v, shape])?;
        }
        if sizes(w.g, v).as_deref() == Some(&parts[..]) { Ok(v) } else { w.reshape(v, parts) }
    }
}
