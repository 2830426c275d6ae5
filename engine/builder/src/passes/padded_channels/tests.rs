//! Padded graphs give the bits of the graphs they were made of.

use super::{FEATURE, apply, constant, sets};
use kiln_backend::{Backend, Target};
use kiln_backend_cpu::Cpu;
use kiln_ir::problem::Rng;
use kiln_ir::{Attr, Attrs, DType, Elems, Fact, Graph, Op, Tensor, TensorType, ValueId};

fn target(features: &[&str]) -> Target {
    let mut target = Cpu::new().targets().unwrap().remove(0);
    target.features = features.iter().map(|&f| f.into()).collect();
    target
}

/// A graph that is being written, with random weights.
struct Net {
    g: Graph,
    rng: Rng,
}

impl Net {
    fn new(seed: u64) -> Net {
        Net { g: Graph::new("net"), rng: Rng::new(seed) }
    }

    fn below(&mut self, n: usize) -> usize {
        self.rng.int(0, n as i64 - 1) as usize
    }

    fn random(&mut self, dtype: DType, shape: &[usize]) -> Tensor {
        let n = shape.iter().product();
        let v = (0..n).map(|_| (self.below(33) as f64 - 16.0) / 8.0).collect();
        Tensor::from_elems(dtype, shape, &Elems::F(v)).unwrap()
    }

    fn weight(&mut self, shape: &[usize]) -> ValueId {
        let t = self.random(DType::F16, shape);
        let name = self.g.unique_name("w");
        self.g.add_constant(&name, t)
    }

    fn axes(&mut self, list: &[i64]) -> ValueId {
        let name = self.g.unique_name("axes");
        self.g.add_constant(&name, Tensor::i64(&[list.len()], list).unwrap())
    }

    fn input(&mut self, shape: &[usize]) -> ValueId {
        let dims: Vec<i64> = shape.iter().map(|&d| d as i64).collect();
        let name = self.g.unique_name("x");
        self.g.add_input(&name, Fact::of(TensorType::new(DType::F16, dims)))
    }

    fn op(&mut self, op: &str, attrs: Attrs, inputs: &[ValueId]) -> ValueId {
        let name = self.g.unique_name(op);
        self.g.add(&name, Op::new(op, attrs).unwrap(), inputs).unwrap()
    }

    fn plain(&mut self, op: &str, inputs: &[ValueId]) -> ValueId {
        self.op(op, Attrs::new(), inputs)
    }

    /// A convolution by windows of 3 x 3 in a layout, with a bias.
    fn conv(&mut self, x: ValueId, from: usize, to: usize, last: bool) -> ValueId {
        let w = if last { [to, 3, 3, from] } else { [to, from, 3, 3] };
        let inputs = [x, self.weight(&w), self.weight(&[to])];
        self.op("conv", layout(last).with("pads", vec![1i64; 4]), &inputs)
    }

    /// Pads all sets, at least `least`, and compares all outputs.
    fn check(self, least: usize) -> Graph {
        let Net { mut g, mut rng } = self;
        g.verify().unwrap();
        let inputs: Vec<Tensor> = g
            .inputs
            .iter()
            .map(|&v| {
                let shape = g.ty(v).static_dims().unwrap();
                let n = shape.iter().product();
                let v = (0..n).map(|_| (rng.int(0, 64) as f64 - 32.0) / 16.0).collect();
                Tensor::from_elems(DType::F16, &shape, &Elems::F(v)).unwrap()
            })
            .collect();
        let names = |g: &Graph| g.outputs.iter().map(|&v| g.value(v).name.clone()).collect::<Vec<_>>();
        let types = |g: &Graph| g.outputs.iter().map(|&v| g.ty(v).clone()).collect::<Vec<_>>();
        let (wanted, named, typed) = (g.eval(&inputs).unwrap(), names(&g), types(&g));
        let mut count = 0;
        while let Some(set) = sets(&g, &target(&[FEATURE])).into_iter().next() {
            assert!(apply(&mut g, &set).unwrap());
            g.verify().unwrap();
            g.infer_from(&g.inputs.iter().map(|&v| g.value(v).fact.clone()).collect::<Vec<_>>()).unwrap();
            count += 1;
        }
        assert!(count >= least, "{count} sets are padded");
        assert_eq!((names(&g), types(&g)), (named, typed));
        assert_eq!(g.eval(&inputs).unwrap(), wanted);
        g
    }
}

fn layout(last: bool) -> Attrs {
    Attrs::new().with("layout", if last { "channels_last" } else { "linear" })
}

fn count(g: &Graph, op: &str) -> usize {
    g.nodes().filter(|(_, n)| n.op.name() == op).count()
}

/// Pads and cuts of values that depend on inputs.
fn moves(g: &Graph) -> (usize, usize) {
    let moved = |op: &str| {
        let found = g.nodes().filter(|(_, n)| n.op.name() == op);
        found.filter(|(_, n)| n.inputs[0].is_some_and(|v| !constant(g, v))).count()
    };
    (moved("pad"), moved("slice"))
}

#[test]
fn channels_between_convolutions_are_padded_without_a_move() {
    for last in [false, true] {
        let mut n = Net::new(1);
        let x = n.input(if last { &[2, 4, 5, 16] } else { &[2, 16, 4, 5] });
        let a = n.conv(x, 16, 45, last);
        let scale = n.weight(if last { &[45] } else { &[45, 1, 1] });
        let b = n.plain("mul", &[a, scale]);
        let b = n.plain("sigmoid", &[b]);
        let b = n.plain("add", &[b, a]);
        let p = n.op("pool", layout(last).with("kernel", vec![2i64, 2]), &[b]);
        let y = n.conv(p, 45, 24, last);
        n.g.outputs = vec![y];
        let g = n.check(1);
        assert_eq!(moves(&g), (0, 0), "{last}");
        assert_eq!(g.ty(b).static_dims().unwrap()[if last { 3 } else { 1 }], 48);
    }
}

#[test]
fn what_leaves_a_set_is_cut_and_what_enters_is_padded() {
    let mut n = Net::new(2);
    let x = n.input(&[1, 21, 6, 3]);
    let a = n.conv(x, 21, 21, false);
    let b = n.plain("add", &[a, x]);
    let c = n.conv(b, 21, 50, false);
    let d = n.plain("relu", &[c]);
    let e = n.op("softmax", Attrs::new().with("axis", 1i64), &[d]);
    let f = n.conv(e, 50, 8, false);
    n.g.outputs = vec![b, d, f];
    let g = n.check(2);
    // x; b for the outside; c's maker has no reader with weights, so that it stays as it was; the softmax is padded.
    assert_eq!(moves(&g), (2, 1));
}

#[test]
fn numbers_that_are_not_finite_stay_out() {
    // log 0 and 1/0 would be seen through weights of zero.
    for (op, through) in [("log", false), ("inverse", false), ("exp", true), ("sqrt", true)] {
        let mut n = Net::new(3);
        let x = n.input(&[1, 16, 3, 3]);
        let a = n.conv(x, 16, 30, false);
        let a = n.plain("abs", &[a]);
        let half = n.weight(&[30, 1, 1]);
        let half = n.plain("abs", &[half]);
        let a = n.plain("add", &[a, half]);
        let b = match op {
            "inverse" => {
                let one = n
                    .g
                    .add_constant("one", Tensor::from_elems(DType::F16, &[], &Elems::F(vec![1.0])).unwrap());
                n.plain("div", &[one, a])
            }
            _ => n.plain(op, &[a]),
        };
        let y = n.conv(b, 30, 16, false);
        n.g.outputs = vec![y];
        let g = n.check(1);
        assert_eq!(moves(&g) == (0, 0), through, "{op}");
    }
}

#[test]
fn constants_get_ones_where_zeros_do_not_do() {
    let mut n = Net::new(4);
    let x = n.input(&[1, 16, 3, 3]);
    let a = n.conv(x, 16, 30, false);
    let by = Tensor::from_elems(DType::F16, &[30, 1, 1], &Elems::F(vec![2.0; 30])).unwrap();
    let by = n.g.add_constant("by", by);
    let b = n.plain("div", &[a, by]);
    let y = n.conv(b, 30, 16, false);
    n.g.outputs = vec![y];
    assert_eq!(moves(&n.check(1)), (0, 0));
}

#[test]
fn windows_of_each_channel_and_means_keep_channels() {
    for last in [false, true] {
        let mut n = Net::new(5);
        let x = n.input(if last { &[1, 6, 6, 16] } else { &[1, 16, 6, 6] });
        let a = n.conv(x, 16, 37, last);
        let w = if last { [37, 3, 3, 1] } else { [37, 1, 3, 3] };
        let inputs = [a, n.weight(&w), n.weight(&[37])];
        let b = n.op("conv", layout(last).with("groups", 37i64), &inputs);
        let axes = n.axes(if last { &[1, 2] } else { &[2, 3] });
        let c = n.op("reduce", Attrs::new().with("op", "mean"), &[b, axes]);
        let d = n.conv(c, 37, 37, last);
        let e = n.plain("sigmoid", &[d]);
        let f = n.conv(e, 37, 16, last);
        n.g.outputs = vec![f];
        let g = n.check(2);
        assert_eq!(moves(&g), (0, 0));
        assert!(g.nodes().any(|(_, n)| n.op.attrs().int("groups") == Ok(40)));
    }
}

#[test]
fn hidden_columns_of_products_are_padded() {
    for trans in [false, true] {
        let mut n = Net::new(6);
        let x = n.input(&[2, 7, 32]);
        let flag = || Attrs::new().with("trans_b", Attr::Bool(trans));
        let shape = |a: usize, b: usize| if trans { [b, a] } else { [a, b] };
        let (w, v, bias) = (n.weight(&shape(32, 85)), n.weight(&shape(85, 32)), n.weight(&[85]));
        let a = n.op("matmul", flag(), &[x, w]);
        let b = n.plain("add", &[a, bias]);
        let c = n.plain("gelu", &[b]);
        let y = n.op("matmul", flag(), &[c, v]);
        n.g.outputs = vec![y];
        let g = n.check(1);
        assert_eq!(moves(&g), (0, 0));
        assert_eq!(g.ty(c).static_dims().unwrap(), [2, 7, 88]);
    }
}

#[test]
fn random_networks_keep_their_bits() {
    for seed in 0..60 {
        let mut n = Net::new(100 + seed);
        let last = n.below(2) == 0;
        let channels = [9, 15, 16, 21, 27, 36];
        let mut c = channels[n.below(6)];
        let x = n.input(&if last { [1, 5, 4, c] } else { [1, c, 5, 4] });
        let mut values = vec![(x, c)];
        for _ in 0..8 {
            let (v, of) = values[n.below(values.len())];
            let (y, to) = match n.below(7) {
                0..3 => {
                    c = channels[n.below(6)];
                    (n.conv(v, of, c, last), c)
                }
                3 => {
                    let scale = n.weight(&if last { [1, 1, 1, of] } else { [1, of, 1, 1] });
                    let op = ["mul", "add", "sub", "max"][n.below(4)];
                    (n.plain(op, &[v, scale]), of)
                }
                4 => {
                    let op = ["relu", "sigmoid", "tanh", "softplus", "neg"][n.below(5)];
                    (n.plain(op, &[v]), of)
                }
                5 => {
                    let same: Vec<_> = values.iter().filter(|o| o.1 == of).copied().collect();
                    let (o, _) = same[n.below(same.len())];
                    (n.plain("add", &[v, o]), of)
                }
                _ => {
                    let attrs = layout(last).with("kernel", vec![3i64, 3]).with("pads", vec![1i64; 4]);
                    let op = ["max", "average"][n.below(2)];
                    (n.op("pool", attrs.with("op", op), &[v]), of)
                }
            };
            values.push((y, to));
        }
        let outputs: Vec<ValueId> = values.iter().rev().take(2).map(|v| v.0).collect();
        n.g.outputs = outputs;
        n.check(0);
    }
}

#[test]
fn other_targets_and_small_layers_are_left_alone() {
    let mut n = Net::new(7);
    let x = n.input(&[1, 16, 3, 3]);
    let a = n.conv(x, 16, 30, false);
    let y = n.conv(a, 30, 16, false);
    n.g.outputs = vec![y];
    assert_eq!(sets(&n.g, &target(&[FEATURE])).len(), 1);
    assert_eq!(sets(&n.g, &target(&[])).len(), 0);
    let mut n = Net::new(8);
    let x = n.input(&[1, 4, 3, 3]);
    let a = n.conv(x, 4, 9, false);
    let y = n.conv(a, 9, 4, false);
    n.g.outputs = vec![y];
    assert_eq!(sets(&n.g, &target(&[FEATURE])).len(), 0);
    assert_eq!(count(&n.g, "conv"), 2);
}
