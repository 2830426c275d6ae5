//! Values as codes: small integers, less a zero point, or floats of 8 bits, times a scale.

use super::super::Writer;
use super::super::view::{View, constant, input};
use kiln_ir::{Attrs, DType, Elems, Graph, IrError, Node, ValueId};
use kiln_ops::cast::CAST;
use kiln_ops::pointwise::binary::{ADD, MUL, SUB};
use kiln_ops::quantize::DEQUANTIZE;
use kiln_ops::reduce::REDUCE;
use kiln_ops::transpose::TRANSPOSE;

/// A value as codes.
#[derive(Clone, Copy, Debug)]
pub struct Codes {
    /// Integers of 4 or 8 bits, or floats of 8 bits.
    pub codes: ValueId,
    /// The code of 0, as a code or in i32; absent where that is 0.
    pub zero: Option<ValueId>,
    /// The step between codes; absent for integers, whose step is 1.
    pub scale: Option<ValueId>,
}

impl Codes {
    /// The codes behind a dequantization, or behind integers that were widened to i32 and perhaps lessened by a zero point.
    pub fn of(view: &View<'_>, v: ValueId) -> Option<Codes> {
        let g = view.g;
        let found = match g.producer(v) {
            Some((_, n)) if n.op.is(DEQUANTIZE) => {
                Codes { codes: input(n, 0)?, zero: input(n, 2), scale: Some(input(n, 1)?) }
            }
            Some((_, n)) if n.op.is(SUB) && g.ty(v).dtype == DType::I32 => {
                let codes = widened(g, input(n, 0)?)?;
                Codes { codes, zero: Some(zero_point(g, input(n, 1)?, g.ty(codes).dtype)?), scale: None }
            }
            _ => Codes { codes: widened(g, v)?, zero: None, scale: None },
        };
        let narrow = match g.ty(found.codes).dtype {
            DType::I8 | DType::U8 => true,
            DType::I4 => constant(g, found.codes),
            // Padding and sums know no other zero than that of the type.
            DType::F8E4M3 => found.scale.is_some() && found.zero.is_none_or(|z| is_all(g, z, 0)),
            _ => false,
        };
        let zero = found.zero.filter(|&z| !is_all(g, z, 0));
        narrow.then_some(Codes { zero, ..found })
    }

    /// Whether two operands can be multiplied as codes: both integers or both floats, with scales or without.
    pub fn go_with(&self, other: &Codes, g: &Graph) -> bool {
        let float = |c: &Codes| g.ty(c.codes).dtype.is_float();
        float(self) == float(other) && self.scale.is_some() == other.scale.is_some()
    }

    /// Whether scale and zero point are of one element.
    pub fn per_tensor(&self, g: &Graph) -> bool {
        let one = |v: Option<ValueId>| v.is_none_or(|v| one_element(g, v));
        one(self.scale) && one(self.zero)
    }

    /// The codes as a type that products take.
    pub fn factor(&self, w: &mut Writer<'_>) -> Result<ValueId, IrError> {
        match w.g.ty(self.codes).dtype {
            DType::I4 => w.op(CAST, Attrs::new().with("to", DType::I8), &[self.codes]),
            _ => Ok(self.codes),
        }
    }
}

/// The source of a cast to i32 of small integers, or the value itself if it is of these.
fn widened(g: &Graph, v: ValueId) -> Option<ValueId> {
    let small = |v: ValueId| matches!(g.ty(v).dtype, DType::I8 | DType::U8);
    let cast = |n: &Node| input(n, 0).filter(|_| n.op.is(CAST) && g.ty(v).dtype == DType::I32);
    let source = g.producer(v).and_then(|(_, n)| cast(n));
    [Some(v), source].into_iter().flatten().find(|&v| small(v))
}

/// A zero point: the codes that are widened to i32, or constants in i32 that are codes of this type, as folded casts are.
fn zero_point(g: &Graph, v: ValueId, codes: DType) -> Option<ValueId> {
    let range = match codes {
        DType::U8 => 0..=255,
        _ => -128..=127,
    };
    let inside =
        |t: &kiln_ir::Tensor| t.dtype() == DType::I32 && t.to_i64().iter().all(|x| range.contains(x));
    widened(g, v).or_else(|| g.weight(v).is_some_and(|w| w.name.is_none() && inside(&w.tensor)).then_some(v))
}

/// Whether a value has one element.
pub fn one_element(g: &Graph, v: ValueId) -> bool {
    g.ty(v).dims.iter().all(|d| d.is(1))
}

/// A value of one element without dimensions.
pub fn scalar(w: &mut Writer<'_>, v: ValueId) -> Result<ValueId, IrError> {
    if w.g.ty(v).rank() == 0 { Ok(v) } else { w.reshape(v, &[]) }
}

/// Whether all elements of a constant are this number; a constant that is not folded yet is looked into.
pub fn is_all(g: &Graph, v: ValueId, wanted: i64) -> bool {
    let same = |t: &kiln_ir::Tensor| match t.elems() {
        Elems::F(v) => v.iter().all(|&x| x == wanted as f64),
        Elems::I(v) => v.iter().all(|&x| x == wanted),
    };
    match g.producer(v) {
        Some((_, n)) if n.op.is(CAST) || n.op.movement().is_view() => {
            input(n, 0).is_some_and(|x| is_all(g, x, wanted))
        }
        _ => g.weight(v).is_some_and(|w| same(&w.tensor)),
    }
}

/// Elements as i32.
pub fn wide(w: &mut Writer<'_>, v: ValueId) -> Result<ValueId, IrError> {
    w.in_type(v, DType::I32)
}

/// Codes less their zero point, in i32.
pub fn centred(w: &mut Writer<'_>, c: Codes) -> Result<ValueId, IrError> {
    let x = wide(w, c.codes)?;
    match c.zero {
        Some(zero) => {
            let zero = wide(w, zero)?;
            w.op(SUB, Attrs::new(), &[x, zero])
        }
        None => Ok(x),
    }
}

/// Sums along axes, which stay with size 1.
pub fn sum(w: &mut Writer<'_>, x: ValueId, axes: &[i64]) -> Result<ValueId, IrError> {
    let axes = w.ints(axes)?;
    w.op(REDUCE, Attrs::new().with("op", "sum").with("keep_dims", true), &[x, axes])
}

/// The last two dimensions swapped, of values that have two.
pub fn swapped(w: &mut Writer<'_>, v: ValueId) -> Result<ValueId, IrError> {
    let rank = w.g.ty(v).rank() as i64;
    if rank < 2 {
        return Ok(v);
    }
    let perm: Vec<i64> = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
    w.op(TRANSPOSE, Attrs::new().with("perm", perm), &[v])
}

/// A scale in f32.
pub fn step(w: &mut Writer<'_>, v: ValueId) -> Result<ValueId, IrError> {
    w.in_type(v, DType::F32)
}

/// Sums of products of codes, less what zero points add to them, as the values that they stand for: floats of a type where there are
/// scales, else integers. Sums of floats have no zero points.
pub fn real(
    w: &mut Writer<'_>,
    sums: ValueId,
    excess: Vec<ValueId>,
    scales: [Option<ValueId>; 2],
    to: DType,
) -> Result<ValueId, IrError> {
    let mut less: Option<ValueId> = None;
    for term in excess {
        less = Some(match less {
            Some(other) => w.op(ADD, Attrs::new(), &[other, term])?,
            None => term,
        });
    }
    match (scales, less) {
        ([Some(a), Some(b)], _) => {
            let (a, b) = (step(w, a)?, step(w, b)?);
            let scale = w.op(MUL, Attrs::new(), &[a, b])?;
            if w.g.ty(sums).dtype.is_float() {
                let y = w.op(MUL, Attrs::new(), &[sums, scale])?;
                return w.in_type(y, to);
            }
            let inputs: Vec<Option<ValueId>> = [sums, scale].into_iter().chain(less).map(Some).collect();
            w.node(DEQUANTIZE, Attrs::new().with("to", to), &inputs)
        }
        (_, Some(less)) => w.op(SUB, Attrs::new(), &[sums, less]),
        (_, None) => Ok(sums),
    }
}
