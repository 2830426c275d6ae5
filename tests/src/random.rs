//! Random networks of mixed operators, each from a seed, whose values stay near one so that results compare.

use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Tensor, TensorType};
use kiln_network::{Network, NetworkError, TensorId};
use std::collections::HashSet;

/// A network with data for its inputs.
pub struct Sample {
    /// The network.
    pub network: Network,
    /// One tensor for each input.
    pub inputs: Vec<Tensor>,
}

/// A network of this many layers.
pub fn network(seed: u64, layers: usize) -> Result<Sample, NetworkError> {
    let mut m = Maker {
        network: Network::new(&format!("random {seed}")),
        inputs: Vec::new(),
        values: Vec::new(),
        read: HashSet::new(),
        layers: 0,
        rng: Rng::new(seed),
    };
    for i in 0..2 {
        m.input(i)?;
        m.weight(i)?;
    }
    while m.layers < layers {
        let made = m.layer()?;
        m.values.push(made);
    }
    m.outputs()?;
    Ok(Sample { network: m.network, inputs: m.inputs })
}

struct Maker {
    network: Network,
    inputs: Vec<Tensor>,
    /// All f32, of rank 2 or 3.
    values: Vec<TensorId>,
    /// Tensors that some layer reads.
    read: HashSet<TensorId>,
    /// Layers that compute.
    layers: usize,
    rng: Rng,
}

impl Maker {
    fn shape(&mut self) -> Vec<usize> {
        let rank = self.rng.int(2, 3);
        (0..rank).map(|_| self.rng.int(1, 6) as usize).collect()
    }

    fn input(&mut self, i: usize) -> Result<(), NetworkError> {
        let shape = self.shape();
        let ty = TensorType::new(DType::F32, shape.iter().map(|&d| kiln_ir::Dim::new(d as i64)));
        self.values.push(self.network.add_input(&format!("x{i}"), ty)?);
        self.inputs.push(self.rng.tensor(DType::F32, &shape));
        Ok(())
    }

    fn weight(&mut self, i: usize) -> Result<(), NetworkError> {
        let shape = self.shape();
        let t = self.rng.tensor(DType::F32, &shape);
        self.values.push(self.network.add_weights(Some(&format!("w{i}")), t)?);
        Ok(())
    }

    /// Marks results that nobody reads, and one in the middle, which may then be read and given out. The first four values
    /// are inputs and weights.
    fn outputs(&mut self) -> Result<(), NetworkError> {
        let middle = self.values[self.values.len() / 2];
        let open = self.values.iter().copied().skip(4).filter(|v| !self.read.contains(v) || *v == middle);
        for (i, v) in open.collect::<Vec<_>>().into_iter().enumerate() {
            self.network.mark_output(v, &format!("y{i}"))?;
        }
        Ok(())
    }

    fn any(&mut self) -> TensorId {
        // Late values are likelier, so that graphs are deep.
        let n = self.values.len() as i64;
        let (a, b) = (self.rng.int(0, n - 1), self.rng.int(0, n - 1));
        self.values[a.max(b) as usize]
    }

    fn dims(&self, v: TensorId) -> Vec<usize> {
        self.network.ty(v).static_dims().unwrap_or_default()
    }

    fn add(&mut self, op: &str, attrs: Attrs, inputs: &[TensorId]) -> Result<TensorId, NetworkError> {
        self.read.extend(inputs);
        self.layers += 1;
        let inputs: Vec<_> = inputs.iter().copied().map(Some).collect();
        Ok(self.network.add_layer("", op, attrs, &inputs)?[0])
    }

    fn ints(&mut self, v: &[i64]) -> Result<TensorId, NetworkError> {
        let t = self.rng.i64s(&[v.len()], v);
        self.network.add_weights(None, t)
    }

    fn layer(&mut self) -> Result<TensorId, NetworkError> {
        let x = self.any();
        match self.rng.int(0, 13) {
            0..=2 => self.unary(x),
            3..=5 => self.binary(x),
            6 | 7 => self.product(x),
            8 => self.reduce(x),
            9 => self.reshape(x),
            10 => self.transpose(x),
            11 => self.concat(x),
            12 => self.slice(x),
            _ => self.rows(x),
        }
    }

    fn unary(&mut self, x: TensorId) -> Result<TensorId, NetworkError> {
        let ops = ["tanh", "sigmoid", "relu", "abs", "neg", "sin", "softsign", "erf"];
        let op = self.rng.pick(&ops).unwrap_or("tanh");
        self.add(op, Attrs::new(), &[x])
    }

    /// Adds a binary operator on a value of the same shape, or else on one row of a new constant.
    fn binary(&mut self, x: TensorId) -> Result<TensorId, NetworkError> {
        let shape = self.dims(x);
        let same: Vec<TensorId> = self.values.iter().copied().filter(|&v| self.dims(v) == shape).collect();
        let partner = self.rng.pick(&same).filter(|&v| v != x);
        let y = match partner {
            Some(y) => y,
            None => {
                let row = self.rng.tensor_in(DType::F32, &shape[shape.len() - 1..], -1.0, 1.0, 1);
                self.network.add_weights(None, row)?
            }
        };
        let op = self.rng.pick(&["add", "sub", "mul", "max", "min"]).unwrap_or("add");
        let z = self.add(op, Attrs::new(), &[x, y])?;
        if matches!(op, "max" | "min") { Ok(z) } else { self.add("tanh", Attrs::new(), &[z]) }
    }

    fn product(&mut self, x: TensorId) -> Result<TensorId, NetworkError> {
        let k = self.dims(x).last().copied().unwrap_or(1);
        let n = self.rng.int(1, 6) as usize;
        let w = self.rng.tensor(DType::F32, &[k, n]);
        let name = format!("product{}.weight", self.layers);
        let w = self.network.add_weights(Some(&name), w)?;
        let y = self.add("matmul", Attrs::new(), &[x, w])?;
        self.add("tanh", Attrs::new(), &[y])
    }

    fn reduce(&mut self, x: TensorId) -> Result<TensorId, NetworkError> {
        let axis = self.rng.int(0, self.dims(x).len() as i64 - 1);
        let op = self.rng.pick(&["mean", "max", "min", "l2"]).unwrap_or("mean");
        let axes = self.ints(&[axis])?;
        self.add("reduce", Attrs::new().with("op", op), &[x, axes])
    }

    fn reshape(&mut self, x: TensorId) -> Result<TensorId, NetworkError> {
        let shape = self.dims(x);
        let (first, rest) = (shape[0] as i64, shape[1..].iter().product::<usize>() as i64);
        let to = if shape.len() == 3 { vec![first, rest] } else { vec![first, 1, rest] };
        let to = self.ints(&to)?;
        self.add("reshape", Attrs::new(), &[x, to])
    }

    fn transpose(&mut self, x: TensorId) -> Result<TensorId, NetworkError> {
        let rank = self.dims(x).len() as i64;
        let perm: Vec<i64> =
            if self.rng.int(0, 1) == 0 { (0..rank).rev().collect() } else { (1..rank).chain([0]).collect() };
        self.add("transpose", Attrs::new().with("perm", perm), &[x])
    }

    fn concat(&mut self, x: TensorId) -> Result<TensorId, NetworkError> {
        let y = self.add("neg", Attrs::new(), &[x])?;
        let axis = self.rng.int(0, self.dims(x).len() as i64 - 1);
        let both = self.add("concat", Attrs::new().with("axis", axis), &[x, y])?;
        if self.dims(both).iter().product::<usize>() > 512 { Ok(y) } else { Ok(both) }
    }

    fn slice(&mut self, x: TensorId) -> Result<TensorId, NetworkError> {
        let shape = self.dims(x);
        let axis = self.rng.int(0, shape.len() as i64 - 1);
        let end = self.rng.int(1, shape[axis as usize] as i64);
        let parts = [self.ints(&[0])?, self.ints(&[end])?, self.ints(&[axis])?];
        self.add("slice", Attrs::new(), &[x, parts[0], parts[1], parts[2]])
    }

    /// Operators on the last dimension, and the one that writes in place.
    fn rows(&mut self, x: TensorId) -> Result<TensorId, NetworkError> {
        let rank = self.dims(x).len();
        match self.rng.int(0, 3) {
            0 => self.add("softmax", Attrs::new(), &[x]),
            1 => self.add("layer_norm", Attrs::new().with("epsilon", 0.5), &[x]),
            _ if rank == 3 => {
                let cache = self.add("neg", Attrs::new(), &[x])?;
                let part = self.slice_one(x)?;
                self.add("kv_cache_update", Attrs::new(), &[cache, part])
            }
            _ => self.add("identity", Attrs::new(), &[x]),
        }
    }

    fn slice_one(&mut self, x: TensorId) -> Result<TensorId, NetworkError> {
        let parts = [self.ints(&[0])?, self.ints(&[1])?, self.ints(&[1])?];
        let part = self.add("slice", Attrs::new(), &[x, parts[0], parts[1], parts[2]])?;
        self.add("abs", Attrs::new(), &[part])
    }
}
