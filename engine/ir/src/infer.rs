//! Type and shape inference, with the contents of small integer tensors followed symbolically.
//!
//! Shape rules of operators run at three times. When a network is written, dimensions are symbolic. Before enqueue,
//! input shapes and shape inputs are known, so that every host-known dimension becomes a number. On the
//! oracle, everything is known.

use crate::attr::Attrs;
pub use crate::axis::{normalize_axes, normalize_axis};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::error::OpError;
pub use crate::fact::{Fact, MAX_CONTENT, Value};
use crate::op::{Op, OpDef};
use crate::tensor::Tensor;
use crate::ty::{TensorType, dims_text};

/// Arguments of an operator's inference rule.
pub struct InferCx<'a> {
    /// The schema, for names in messages.
    pub def: &'static OpDef,
    /// The attributes, checked against the schema.
    pub attrs: &'a Attrs,
    inputs: &'a [Option<Fact>],
    scope: &'a str,
}

impl<'a> InferCx<'a> {
    /// A context for one application of `op`; `scope` is the layer's name, from which new symbols take theirs.
    pub fn new(op: &'a Op, inputs: &'a [Option<Fact>], scope: &'a str) -> InferCx<'a> {
        InferCx { def: op.def(), attrs: op.attrs(), inputs, scope }
    }

    /// Context of this application with other attributes and inputs.
    pub fn reordered<'b>(&'b self, attrs: &'b Attrs, inputs: &'b [Option<Fact>]) -> InferCx<'b> {
        InferCx { def: self.def, attrs, inputs, scope: self.scope }
    }

    /// Number of inputs, absent ones included.
    pub fn len(&self) -> usize {
        self.inputs.len()
    }

    /// None at all?
    pub fn is_empty(&self) -> bool {
        self.inputs.is_empty()
    }

    /// Whether the optional input is present.
    pub fn has(&self, i: usize) -> bool {
        self.inputs.get(i).is_some_and(Option::is_some)
    }

    /// Facts of an input, if present.
    pub fn fact(&self, i: usize) -> Option<&'a Fact> {
        self.inputs.get(i)?.as_ref()
    }

    /// The type of an input that must be present.
    pub fn ty(&self, i: usize) -> Result<&'a TensorType, OpError> {
        self.fact(i).map(|f| &f.ty).ok_or_else(|| OpError::MissingInput { input: i, name: self.port_name(i) })
    }

    /// The dimensions of an input that must be present.
    pub fn dims(&self, i: usize) -> Result<&'a [Dim], OpError> {
        Ok(&self.ty(i)?.dims)
    }

    /// The element type of an input that must be present.
    pub fn dtype(&self, i: usize) -> Result<DType, OpError> {
        Ok(self.ty(i)?.dtype)
    }

    /// The elements of an integer input, if they are known (as numbers or symbols).
    pub fn contents(&self, i: usize) -> Option<Vec<Dim>> {
        self.fact(i)?.as_dims()
    }

    /// The elements of an integer input, if all are numbers.
    pub fn ints(&self, i: usize) -> Option<Vec<i64>> {
        self.fact(i)?.as_const().map(Tensor::to_i64)
    }

    /// The elements of an integer input that must be known numbers now.
    pub fn need_ints(&self, i: usize) -> Result<Vec<i64>, OpError> {
        self.ty(i)?;
        self.ints(i).ok_or_else(|| OpError::NeedsValue {
            input: i,
            name: self.port_name(i),
            wanted: "known when the network is built; make it a constant".into(),
        })
    }

    /// A new dimension that the host computes by applying this rule again once it knows the inputs' contents.
    /// It may have an upper bound.
    pub fn fresh_host(&self, hint: &str, bound: Option<Dim>) -> Dim {
        Dim::host_bounded(format!("{}.{hint}", self.scope), bound)
    }

    /// A new dimension that the device computes, with an upper bound if there is one.
    pub fn fresh_device(&self, hint: &str, bound: Option<Dim>) -> Dim {
        Dim::device(format!("{}.{hint}", self.scope), bound)
    }

    /// A new dimension that follows from the contents of input `i`: host-known if those are, else on the device.
    pub fn fresh_from(&self, i: usize, hint: &str, bound: Option<Dim>) -> Dim {
        match self.contents(i) {
            Some(d) if d.iter().all(|d| d.kind() <= crate::dim::DimKind::Host) => {
                self.fresh_host(hint, bound)
            }
            _ => self.fresh_device(hint, bound),
        }
    }

    fn port_name(&self, i: usize) -> String {
        self.def.inputs.get(i).or(self.def.inputs.last()).map_or(String::new(), |p| p.name.into())
    }

    /// Refuses an input of another type than `allowed`.
    pub fn check_dtype(
        &self,
        i: usize,
        allowed: impl Fn(DType) -> bool,
        wanted: &str,
    ) -> Result<DType, OpError> {
        let found = self.dtype(i)?;
        if allowed(found) {
            Ok(found)
        } else {
            Err(OpError::DType { input: i, found, wanted: wanted.into() })
        }
    }

    /// Refuses two inputs of different types.
    pub fn same_dtype(&self, i: usize, j: usize) -> Result<DType, OpError> {
        let a = self.dtype(i)?;
        self.check_dtype(j, |d| d == a, &format!("{a}, as input {i} is"))
    }

    /// Refuses an input of another rank.
    pub fn check_rank(&self, i: usize, rank: usize) -> Result<(), OpError> {
        self.check_shape(i, |d| d.len() == rank, &format!("{rank} dimensions"))
    }

    /// Refuses an input whose dimensions fail a test.
    pub fn check_shape(&self, i: usize, ok: impl Fn(&[Dim]) -> bool, wanted: &str) -> Result<(), OpError> {
        let dims = self.dims(i)?;
        if ok(dims) { Ok(()) } else { Err(self.bad_shape(i, wanted)) }
    }

    /// The error for an input of the wrong shape.
    pub fn bad_shape(&self, i: usize, wanted: &str) -> OpError {
        let found = self.fact(i).map_or(String::new(), |f| dims_text(&f.ty.dims));
        OpError::Shape { input: i, found, wanted: wanted.into() }
    }

    /// An axis attribute, negative ones counted from the end, refused if outside `0..rank`.
    pub fn axis(&self, name: &str, rank: usize) -> Result<usize, OpError> {
        normalize_axis(self.attrs.int(name)?, rank, name)
    }

    /// A list of axes as attribute, each in range, sorted, without repetition.
    pub fn axes(&self, name: &str, rank: usize) -> Result<Vec<usize>, OpError> {
        normalize_axes(self.attrs.ints(name)?, rank, name)
    }
}

/// Whether the two are certainly different numbers.
pub fn differ(a: &Dim, b: &Dim) -> bool {
    matches!((a.as_const(), b.as_const()), (Some(x), Some(y)) if x != y)
}

/// Two dimensions that must be equal at run time; the better known of the two.
pub fn unify(a: &Dim, b: &Dim) -> Option<Dim> {
    match (differ(a, b), a.kind() <= b.kind()) {
        (true, _) => None,
        (_, true) => Some(a.clone()),
        _ => Some(b.clone()),
    }
}

/// One dimension of a broadcast. An unknown one beside a number other than 1 must be that number or 1.
fn broadcast_dim(x: Dim, y: Dim) -> Option<Dim> {
    match (x.as_const(), y.as_const()) {
        (Some(1), _) => Some(y),
        (_, Some(1)) | (Some(_), None) => Some(x),
        (None, Some(_)) => Some(y),
        (None, None) if x != y => Some(x.max_with(&y)),
        _ => unify(&x, &y),
    }
}

/// Numpy broadcasting of two shapes, right-aligned; a 1 stretches, also to 0.
pub fn broadcast(a: &[Dim], b: &[Dim]) -> Result<Vec<Dim>, OpError> {
    let rank = a.len().max(b.len());
    let at = |d: &[Dim], i: usize| (i + d.len()).checked_sub(rank).map_or(Dim::new(1), |k| d[k].clone());
    (0..rank)
        .map(|i| {
            broadcast_dim(at(a, i), at(b, i)).ok_or_else(|| OpError::Mismatch {
                a: dims_text(a),
                b: dims_text(b),
                wanted: "dimensions, from the last, must be equal or 1".into(),
            })
        })
        .collect()
}

/// Broadcasting of any number of shapes.
pub fn broadcast_all<'a>(shapes: impl IntoIterator<Item = &'a [Dim]>) -> Result<Vec<Dim>, OpError> {
    shapes.into_iter().try_fold(Vec::new(), |acc, s| broadcast(&acc, s))
}
