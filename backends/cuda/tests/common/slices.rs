//! Loops over slices of tensors.

#![allow(clippy::unwrap_used, reason = "a test")]

use super::branches::{looped, op, scalar};
use kiln_ir::{Attrs, DType, Fact, Graph, Op, Tensor, TensorType};

/// Uses of the elements e of a tensor and f of the same in reverse order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Inside {
    /// e + f and -f.
    Pointwise,
    /// e by a matrix, and -f.
    Product,
    /// The softmax of e's rows, and the transpose of f.
    Rows,
    /// e as it is, and -f.
    HandedOn,
    /// Result of a conditional on e, and -f.
    Chosen,
    /// Value of a carried one, and -f.
    Carried,
}

/// A loop over matrices, whose results are stacked.
#[derive(Clone, Copy, Debug)]
pub struct Over {
    pub inside: Inside,
    /// Number of elements; the loop goes through all, if no condition ends it.
    pub iterations: i64,
    /// Rows, as many columns.
    pub n: i64,
    /// Whether the iterations are along the last axis.
    pub last: bool,
    /// Iterations after which a condition ends it.
    pub limit: Option<i64>,
    /// The length of what is stacked.
    pub length: Option<i64>,
}

fn real(dims: &[i64]) -> Fact {
    Fact::of(TensorType::new(DType::F32, dims.iter().copied()))
}

/// Small integers, of which products are exact in every type.
fn numbers(dims: &[i64], by: usize) -> Tensor {
    let shape: Vec<usize> = dims.iter().map(|&d| d as usize).collect();
    let all: Vec<f32> = (0..shape.iter().product()).map(|i: usize| (i * by % 9) as f32 - 4.0).collect();
    Tensor::f32(&shape, &all).unwrap()
}

impl Over {
    pub fn new(inside: Inside, iterations: i64, n: i64) -> Over {
        Over { inside, iterations, n, last: false, limit: None, length: None }
    }

    /// Bytes of an element.
    pub fn bytes(&self) -> u64 {
        (self.n * self.n * 4) as u64
    }

    fn shape(&self) -> [i64; 3] {
        let Over { iterations, n, .. } = *self;
        if self.last { [n, n, iterations] } else { [iterations, n, n] }
    }

    /// Carried t and h, elements e and f; captures d and m.
    fn body(&self) -> Graph {
        let n = self.n;
        let mut b = Graph::new("body");
        let t = b.add_input("t", real(&[]));
        let [h, e, f] = ["h", "e", "f"].map(|name| b.add_input(name, real(&[n, n])));
        let d = b.add_input("d", real(&[]));
        let m = b.add_input("m", real(&[n, n]));
        let next = b.add("next", op("add"), &[t, d]).unwrap();
        let turned = Op::new("transpose", Attrs::new().with("perm", vec![1i64, 0])).unwrap();
        let of_f = if self.inside == Inside::Rows { turned } else { op("neg") };
        let z = b.add("z", of_f, &[f]).unwrap();
        let mut carried = h;
        let y = match self.inside {
            Inside::Pointwise => b.add("y", op("add"), &[e, f]).unwrap(),
            Inside::Product => b.add("y", op("matmul"), &[e, m]).unwrap(),
            Inside::Rows => {
                let softmax = Op::new("softmax", Attrs::new().with("axis", 1i64)).unwrap();
                b.add("y", softmax, &[e]).unwrap()
            }
            Inside::HandedOn => e,
            Inside::Chosen => {
                let above = b.add("above", op("greater"), &[t, d]).unwrap();
                let branch = |name: &str| {
                    let mut g = Graph::new(name);
                    let x = g.add_input("x", real(&[n, n]));
                    g.outputs = vec![g.add("of", op(name), &[x]).unwrap()];
                    g
                };
                let choice = Op::new("if", Attrs::new().with("then_captures", 1i64)).unwrap();
                let both = vec![branch("abs"), branch("neg")];
                b.add_control("if", choice, &[above, e, e], both, &["y".into()]).unwrap()[0]
            }
            Inside::Carried => {
                carried = b.add("sum", op("add"), &[h, e]).unwrap();
                carried
            }
        };
        b.outputs = vec![next, carried, y, z];
        b
    }

    fn below(&self) -> Graph {
        let mut g = Graph::new("below");
        let t = g.add_input("t", real(&[]));
        g.add_input("h", real(&[self.n, self.n]));
        let limit = g.add_input("limit", real(&[]));
        g.outputs = vec![g.add("less", op("less"), &[t, limit]).unwrap()];
        g
    }

    /// The network, and what it is given.
    pub fn graph(&self) -> (Graph, Vec<Tensor>) {
        let (n, axis) = (self.n, if self.last { 2 } else { 0 });
        let mut g = Graph::new("over slices");
        let t = g.add_input("t", real(&[]));
        let d = g.add_input("d", real(&[]));
        let limit = g.add_input("limit", real(&[]));
        let h = g.add_input("h", real(&[n, n]));
        let m = g.add_input("m", real(&[n, n]));
        let x = g.add_input("x", real(&self.shape()));
        let count = g.add_constant("count", Tensor::i64(&[], &[self.iterations]).unwrap());
        let mut inputs = vec![count, t, h, x, x];
        if let Some(l) = self.length {
            inputs.push(g.add_constant("length", Tensor::i64(&[], &[l]).unwrap()));
        }
        inputs.extend([d, m]);
        let mut regions = vec![self.body()];
        if self.limit.is_some() {
            inputs.push(limit);
            regions.push(self.below());
        }
        let back = if self.limit.is_some() { "concat" } else { "reverse" };
        let outs = [
            ("last", 0, 0, false),
            ("last", 1, 0, false),
            ("concat", 0, axis, self.length.is_some()),
            (back, 1, axis, false),
        ];
        let of_loop = looped(true, self.limit.is_some(), 2, &[(axis, false), (axis, true)], 2, &outs);
        let names: Vec<String> = (0..4).map(|i| format!("out{i}")).collect();
        g.outputs = g.add_control("loop", of_loop, &inputs, regions, &names).unwrap();
        (g, self.given(0))
    }

    /// Inputs of run number `run`.
    pub fn given(&self, run: usize) -> Vec<Tensor> {
        let n = self.n;
        let limit = scalar(self.limit.unwrap_or(0) as f32);
        let (h, m) = (numbers(&[n, n], 2 + run), numbers(&[n, n], 5));
        vec![scalar(0.0), scalar(1.0), limit, h, m, numbers(&self.shape(), 7 + run)]
    }
}
