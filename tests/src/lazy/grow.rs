//! A network as it grows: values with the shapes that they will have, and what a random program needs to make more.

use kiln_ir::IrError;
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Dim, Elems, Fact, Op, Tensor, TensorType};
use kiln_network::{Network, NetworkError, TensorId};
use std::collections::{HashMap, HashSet};

/// A value: its tensor, and what is known of it at run time.
#[derive(Clone, Debug)]
pub(super) struct Val {
    pub(super) id: TensorId,
    fact: Fact,
    shape: Vec<usize>,
}

impl Val {
    pub(super) fn new(id: TensorId, dtype: DType, shape: &[usize]) -> Val {
        Val { id, fact: Fact::of(typed(dtype, shape)), shape: shape.to_vec() }
    }

    pub(super) fn ty(&self) -> &TensorType {
        &self.fact.ty
    }

    pub(super) fn dtype(&self) -> DType {
        self.fact.ty.dtype
    }

    pub(super) fn shape(&self) -> &[usize] {
        &self.shape
    }

    pub(super) fn volume(&self) -> usize {
        self.shape.iter().product()
    }
}

fn typed(dtype: DType, shape: &[usize]) -> TensorType {
    TensorType::new(dtype, shape.iter().map(|&d| Dim::new(d as i64)))
}

/// A network, its inputs' data, and the values that can be read, frame by frame: one for each construct around.
pub(super) struct Grow {
    pub(super) net: Network,
    pub(super) rng: Rng,
    pub(super) inputs: Vec<Tensor>,
    pub(super) frames: Vec<Vec<Val>>,
    /// Whether dimensions of inputs are unknown when the network is built.
    pub(super) dynamic: bool,
    read: HashSet<TensorId>,
    constants: HashMap<Vec<i64>, Val>,
}

impl Grow {
    pub(super) fn new(name: &str, seed: u64, dynamic: bool) -> Grow {
        Grow {
            net: Network::new(name),
            rng: Rng::new(seed),
            inputs: Vec::new(),
            frames: vec![Vec::new()],
            dynamic,
            read: HashSet::new(),
            constants: HashMap::new(),
        }
    }

    /// An operator of values of known shapes; its first output.
    pub(super) fn op(&mut self, op: &str, attrs: Attrs, inputs: &[&Val]) -> Result<Val, NetworkError> {
        let facts: Vec<_> = inputs.iter().map(|v| Some(v.fact.clone())).collect();
        let made = Op::new(op, attrs.clone())?.infer(&facts, "").map_err(|e| IrError::layer("", op, e))?;
        let fact =
            made.into_iter().next().ok_or_else(|| IrError::Structure(format!("{op} gives nothing")))?;
        let lost = || IrError::Structure(format!("{op} gives {}", fact.ty));
        let shape = fact.ty.static_dims().ok_or_else(lost)?;
        let id = self.layer(op, attrs, inputs)?;
        Ok(Val { id, fact: Fact::of(fact.ty), shape })
    }

    fn layer(&mut self, op: &str, attrs: Attrs, inputs: &[&Val]) -> Result<TensorId, NetworkError> {
        let ids: Vec<_> = inputs.iter().map(|v| Some(v.id)).collect();
        let made = self.net.add_layer("", op, attrs, &ids)?;
        self.read.extend(inputs.iter().map(|v| v.id));
        made.first().copied().ok_or_else(|| IrError::Structure(format!("{op} gives nothing")).into())
    }

    /// An operator whose number of columns only the device knows, and the sum over them.
    pub(super) fn counted(&mut self, op: &str, x: &Val, axes: &Val) -> Result<Val, NetworkError> {
        let places = self.layer(op, Attrs::new(), &[x])?;
        let keep = Attrs::new().with("op", "sum").with("keep_dims", false);
        let places = Val::new(places, DType::I64, &[x.shape().len(), 0]);
        let id = self.layer("reduce", keep, &[&places, axes])?;
        Ok(Val::new(id, DType::I64, &[x.shape().len()]))
    }

    /// Whether it is read by anything.
    pub(super) fn is_read(&self, v: &Val) -> bool {
        self.read.contains(&v.id)
    }

    pub(super) fn mark_read(&mut self, v: &Val) {
        self.read.insert(v.id);
    }

    fn known(&mut self, t: Tensor) -> Result<Val, NetworkError> {
        let shape = t.shape().to_vec();
        let id = self.net.add_weights(None, t.clone())?;
        Ok(Val { id, fact: Fact::constant(t), shape })
    }

    /// A random constant.
    pub(super) fn constant(&mut self, dtype: DType, shape: &[usize]) -> Result<Val, NetworkError> {
        let t = self.rng.tensor_in(dtype, shape, -2.0, 2.0, 3);
        self.known(t)
    }

    /// A constant of one element, without dimensions.
    pub(super) fn number(&mut self, dtype: DType, n: f64) -> Result<Val, NetworkError> {
        let elems = if dtype.is_float() { Elems::F(vec![n]) } else { Elems::I(vec![n as i64]) };
        let t = Tensor::from_elems(dtype, &[], &elems);
        self.known(t.ok_or_else(|| IrError::Structure(format!("no {dtype} {n}")))?)
    }

    /// A list of integers.
    pub(super) fn ints(&mut self, v: &[i64]) -> Result<Val, NetworkError> {
        if let Some(known) = self.constants.get(v) {
            return Ok(known.clone());
        }
        let made = self.ints_of(&[v.len()], v)?;
        self.constants.insert(v.to_vec(), made.clone());
        Ok(made)
    }

    /// Integers in a shape.
    pub(super) fn ints_of(&mut self, shape: &[usize], v: &[i64]) -> Result<Val, NetworkError> {
        let t = self.rng.i64s(shape, v);
        self.known(t)
    }

    /// A new input of the network with random data, or these.
    pub(super) fn input(
        &mut self,
        dtype: DType,
        shape: &[usize],
        data: Option<Elems>,
    ) -> Result<Val, NetworkError> {
        let random = |g: &mut Grow| g.rng.tensor_in(dtype, shape, -2.0, 2.0, 3);
        let t = match data {
            Some(e) => {
                Tensor::from_elems(dtype, shape, &e).ok_or_else(|| IrError::Structure("no data".into()))?
            }
            None => random(self),
        };
        // Lengths that are equal have one name; 1 stays a number, so that what broadcasts is known.
        let symbol = |&d: &usize| match self.dynamic && d != 1 {
            true => Dim::host(format!("d{d}")),
            false => Dim::new(d as i64),
        };
        let ty = TensorType::new(dtype, shape.iter().map(symbol));
        let id = self.net.add_input(&format!("x{}", self.inputs.len()), ty)?;
        self.inputs.push(t);
        Ok(Val::new(id, dtype, shape))
    }

    /// A random small shape, sometimes without elements.
    pub(super) fn shape(&mut self) -> Vec<usize> {
        let rank = self.rng.int(0, 7).min(5) / 2;
        let least = i64::from(self.rng.int(0, 9) > 0);
        (0..rank).map(|_| self.rng.int(least, 3) as usize).collect()
    }

    /// A new tensor: an input of the network, or a constant.
    pub(super) fn fresh(&mut self, dtype: DType, shape: &[usize]) -> Result<Val, NetworkError> {
        if self.rng.int(0, 2) == 0 { self.constant(dtype, shape) } else { self.input(dtype, shape, None) }
    }

    /// A second value of the same type and shape that can be read here, or a constant.
    pub(super) fn partner(&mut self, x: &Val) -> Result<Val, NetworkError> {
        let alike = |v: &&Val| v.id != x.id && v.dtype() == x.dtype() && v.shape() == x.shape();
        let all: Vec<Val> = self.frames.iter().flatten().filter(alike).cloned().collect();
        match self.rng.int(0, 3) {
            1.. if !all.is_empty() => {
                let last = all.len() as i64 - 1;
                let (a, b) = (self.rng.int(0, last), self.rng.int(0, last));
                Ok(all[a.max(b) as usize].clone())
            }
            _ => self.constant(x.dtype(), x.shape()),
        }
    }

    /// The value as a list.
    pub(super) fn flat(&mut self, x: &Val) -> Result<Val, NetworkError> {
        // A list of no elements has no length that -1 could stand for.
        let to = if x.volume() == 0 { 0 } else { -1 };
        let to = self.ints(&[to])?;
        self.op("reshape", Attrs::new().with("allow_zero", true), &[x, &to])
    }

    /// The value cut to at most this many elements along every axis, if it is large.
    pub(super) fn cut(&mut self, x: Val, most: usize) -> Result<Val, NetworkError> {
        if x.volume() <= 27 {
            return Ok(x);
        }
        let axes: Vec<i64> = (0..x.shape().len() as i64).collect();
        let ends: Vec<i64> = x.shape().iter().map(|&d| d.min(most) as i64).collect();
        let starts = vec![0; axes.len()];
        let parts = [self.ints(&starts)?, self.ints(&ends)?, self.ints(&axes)?];
        self.op("slice", Attrs::new(), &[&x, &parts[0], &parts[1], &parts[2]])
    }

    /// The innermost frame.
    pub(super) fn frame(&mut self) -> &mut Vec<Val> {
        if self.frames.is_empty() {
            self.frames.push(Vec::new());
        }
        let last = self.frames.len() - 1;
        &mut self.frames[last]
    }
}
