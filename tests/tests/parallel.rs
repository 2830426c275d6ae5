//! Equal layers side by side on random graphs: the oracle finds the same before and after they become one, errors included.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend_cpu::Cpu;
use kiln_builder::BuildConfig;
use kiln_builder::passes::{self, PassCx, PassWork};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Dim, Elems, Fact, Graph, Op, Tensor, TensorType, ValueId};
use kiln_tests::filetests::near;

/// A graph in the making, with data for its inputs.
struct Maker {
    g: Graph,
    rng: Rng,
    inputs: Vec<Tensor>,
}

impl Maker {
    fn one_in(&mut self, n: i64) -> bool {
        self.rng.int(1, n) == 1
    }

    fn size(&mut self, least: i64, most: i64) -> usize {
        self.rng.int(least, most) as usize
    }

    fn input(&mut self, t: Tensor) -> ValueId {
        let dims = t.shape().iter().map(|&d| Dim::new(d as i64));
        let fact = Fact::of(TensorType::new(t.dtype(), dims));
        let name = format!("x{}", self.inputs.len());
        self.inputs.push(t);
        self.g.add_input(&name, fact)
    }

    fn constant(&mut self, t: Tensor) -> ValueId {
        let name = format!("c{}", self.g.value_ids().count());
        self.g.add_constant(&name, t)
    }

    fn weight(&mut self, shape: &[usize]) -> ValueId {
        let t = self.rng.tensor(DType::F32, shape);
        self.constant(t)
    }

    fn ints(&mut self, v: &[i64]) -> ValueId {
        self.constant(Tensor::i64(&[v.len()], v).unwrap())
    }

    fn add(&mut self, op: &str, attrs: Attrs, inputs: &[ValueId]) -> ValueId {
        let name = format!("n{}", self.g.order().len());
        let y = self.g.add(&name, Op::new(op, attrs).unwrap(), inputs).unwrap();
        // Now and then somebody else reads what lies inside.
        if self.one_in(40) {
            self.g.outputs.push(y);
        }
        y
    }

    /// Indices of tables of which the smallest has so many rows: negative ones too, rarely one outside of some table.
    fn indices(&mut self, dtype: DType, shape: &[usize], rows: i64) -> Tensor {
        let n: usize = shape.iter().product();
        let far = i64::from(self.one_in(40)) * self.rng.int(0, 40);
        let v = (0..n).map(|_| self.rng.int(-rows - far, rows - 1 + far)).collect();
        Tensor::from_elems(dtype, shape, &Elems::I(v)).unwrap()
    }

    /// Rows of several tables: by columns of one tensor, or by tensors of their own; side by side or stacked.
    fn tables(&mut self) -> ValueId {
        let n = self.size(2, 6);
        let dtype = if self.one_in(3) { DType::I32 } else { DType::I64 };
        let shape: Vec<usize> = (0..self.size(1, 2)).map(|_| self.size(1, 4)).collect();
        let width = self.size(1, 3);
        let rows: Vec<usize> = (0..n).map(|_| self.size(1, 5)).collect();
        let least = *rows.iter().min().unwrap() as i64;
        let axis = self.size(0, shape.len() as i64);
        let columns = self.one_in(2).then(|| {
            let mut all = shape.clone();
            all.insert(axis, n + 2);
            let t = self.indices(dtype, &all, least);
            self.input(t)
        });
        let from = self.rng.int(0, 2);
        let mut parts = Vec::new();
        for (i, &rows) in rows.iter().enumerate() {
            let index = match columns {
                Some(x) => {
                    let wrong = i64::from(self.one_in(20));
                    let at = self.constant(Tensor::i64(&[], &[(from + i as i64 - wrong).max(0)]).unwrap());
                    self.add("gather", Attrs::new().with("axis", axis as i64), &[x, at])
                }
                None => {
                    let t = self.indices(dtype, &shape, rows as i64);
                    self.input(t)
                }
            };
            let width = if self.one_in(20) { width + 1 } else { width };
            let table = self.weight(&[rows, width]);
            parts.push(self.add("gather", Attrs::new(), &[table, index]));
        }
        let mut shape = shape;
        if self.one_in(3) {
            let axis = self.size(0, shape.len() as i64 - 1);
            let axes = self.ints(&[axis as i64]);
            let kind = self.rng.pick(&["sum", "mean", "max"]).unwrap();
            for v in &mut parts {
                let kind = if self.one_in(20) { "min" } else { kind };
                *v = self.add("reduce", Attrs::new().with("op", kind).with("keep_dims", false), &[*v, axes]);
            }
            shape.remove(axis);
        }
        let mut along = shape.len() as i64;
        let same = |m: &Maker, v: &ValueId| m.g.ty(*v).dims == m.g.ty(parts[0]).dims;
        if self.one_in(2) && parts.iter().all(|v| same(self, v)) {
            let new = if self.one_in(6) { 0 } else { along };
            let axes = self.ints(&[new]);
            for v in &mut parts {
                *v = self.add("unsqueeze", Attrs::new(), &[*v, axes]);
            }
            along = new;
        }
        for at in [0, parts.len() + 1] {
            if self.one_in(3) && along == shape.len() as i64 {
                let mut other: Vec<usize> = self.g.ty(parts[0]).static_dims().unwrap();
                other[shape.len()] = self.size(1, 3);
                let t = self.rng.tensor(DType::F32, &other);
                let v = self.input(t);
                parts.insert(at.min(parts.len()), v);
            }
        }
        self.add("concat", Attrs::new().with("axis", along), &parts)
    }

    /// Convolutions of one input, most of them with the same windows, and layers behind them.
    fn branches(&mut self) -> ValueId {
        let rank = self.size(1, 2);
        let channels = self.size(1, 3);
        let shape: Vec<usize> = [1, channels].into_iter().chain((0..rank).map(|_| self.size(4, 6))).collect();
        let x = self.rng.tensor(DType::F32, &shape);
        let x = self.input(x);
        let kernel = self.size(1, 3);
        let stride = self.rng.int(1, 2);
        let (biased, act) = (self.one_in(2), self.rng.pick(&["relu", "tanh", ""]).unwrap());
        let mut parts = Vec::new();
        for _ in 0..self.size(2, 4) {
            let k = if self.one_in(8) { 1 } else { kernel };
            let w: Vec<usize> = [self.size(1, 4), channels].into_iter().chain(vec![k; rank]).collect();
            let mut inputs = vec![x, self.weight(&w)];
            if biased != self.one_in(12) {
                inputs.push(self.weight(&w[..1]));
            }
            let mut y = self.add("conv", Attrs::new().with("strides", vec![stride; rank]), &inputs);
            let act = if self.one_in(10) { "exp" } else { act };
            if !act.is_empty() {
                y = self.add(act, Attrs::new(), &[y]);
            }
            let axes = self.ints(&(2..2 + rank as i64).collect::<Vec<_>>());
            parts.push(self.add("reduce", Attrs::new().with("op", "sum"), &[y, axes]));
        }
        self.add("concat", Attrs::new().with("axis", 1i64), &parts)
    }
}

impl Maker {
    /// A product with a matrix of its own, perhaps a vector added, perhaps a pointwise layer behind.
    fn product(&mut self, x: ValueId, width: usize, trans: bool, biased: bool, act: &str) -> ValueId {
        let depth = self.g.ty(x).static_dims().unwrap().last().copied().unwrap();
        let w = self.weight(&if trans { [width, depth] } else { [depth, width] });
        let trans = trans != (width == depth && self.one_in(20));
        let mut y = self.add("matmul", Attrs::new().with("trans_b", trans), &[x, w]);
        if biased != self.one_in(15) {
            let b = self.weight(&[width]);
            y = self.add("add", Attrs::new(), &[y, b]);
        }
        let act = if self.one_in(15) { "abs" } else { act };
        if act.is_empty() { y } else { self.add(act, Attrs::new(), &[y]) }
    }

    fn style(&mut self) -> (bool, bool, &'static str) {
        (self.one_in(2), self.one_in(2), self.rng.pick(&["relu", "tanh", ""]).unwrap())
    }

    fn lead(&mut self) -> Vec<usize> {
        (0..self.size(1, 3)).map(|_| self.size(1, 3)).collect()
    }

    /// Products of one input, and their sum along the last axis.
    fn products(&mut self) -> ValueId {
        let shape = [self.lead(), vec![self.size(1, 4)]].concat();
        let x = self.rng.tensor_in(DType::F32, &shape, -1.0, 1.0, 0);
        let x = self.input(x);
        let (trans, biased, act) = self.style();
        let widths: Vec<usize> = (0..self.size(2, 4)).map(|_| self.size(1, 4)).collect();
        let parts: Vec<ValueId> = widths.iter().map(|&n| self.product(x, n, trans, biased, act)).collect();
        self.add("concat", Attrs::new().with("axis", -1i64), &parts)
    }

    /// Products of the codes of one input, made floats by a scale for each column or by one, perhaps with a vector added.
    fn coded(&mut self) -> ValueId {
        let shape = [self.lead(), vec![self.size(1, 4)]].concat();
        let x = self.rng.tensor(DType::I8, &shape);
        let (depth, x) = (*shape.last().unwrap(), self.input(x));
        let (trans, biased, act) = self.style();
        let by_column = self.one_in(2);
        let parts: Vec<ValueId> = (0..self.size(2, 4))
            .map(|_| {
                let width = self.size(1, 4);
                let w = self.rng.tensor(DType::I8, &if trans { [width, depth] } else { [depth, width] });
                let w = self.constant(w);
                let sums = self.add("matmul", Attrs::new().with("trans_b", trans), &[x, w]);
                let shape = if by_column != self.one_in(15) { vec![1, width] } else { vec![] };
                let scale = self.weight(&shape);
                let mut y = self.add("dequantize", Attrs::new(), &[sums, scale]);
                if biased != self.one_in(15) {
                    let b = self.weight(&[width]);
                    let sum = if self.one_in(2) { [y, b] } else { [b, y] };
                    y = self.add("add", Attrs::new(), &sum);
                }
                if act.is_empty() { y } else { self.add(act, Attrs::new(), &[y]) }
            })
            .collect();
        self.add("concat", Attrs::new().with("axis", -1i64), &parts)
    }

    /// Products of parts of one tensor: mostly all of them, in any order, of equal lengths.
    fn experts(&mut self) -> ValueId {
        let (n, depth, width) = (self.size(2, 4), self.size(1, 4), self.size(1, 4));
        let lead = self.lead();
        let rest = usize::from(self.one_in(15));
        let shape = [lead.clone(), vec![n * depth + rest]].concat();
        let x = self.rng.tensor_in(DType::F32, &shape, -1.0, 1.0, 0);
        let x = self.input(x);
        let (trans, biased, act) = self.style();
        let mut starts: Vec<usize> = (0..n).map(|i| i * depth).collect();
        let turn = self.size(0, n as i64 - 1);
        starts.rotate_left(turn);
        let axis = if self.one_in(2) { -1 } else { lead.len() as i64 };
        let axis = self.ints(&[axis]);
        let mut parts = Vec::new();
        for start in starts {
            let start = if self.one_in(25) { 0 } else { start as i64 };
            let (from, to) = (self.ints(&[start]), self.ints(&[start + depth as i64]));
            let part = self.add("slice", Attrs::new(), &[x, from, to, axis]);
            parts.push(self.product(part, width, trans, biased, act));
        }
        self.add("concat", Attrs::new().with("axis", 0i64), &parts)
    }
}

/// Graphs of so many seeds, before and after a pattern; how many it changed.
fn changed(pattern: &str, make: fn(&mut Maker) -> ValueId, seeds: u64) -> (usize, usize) {
    let (mut rewritten, mut refused) = (0, 0);
    let (backend, config, target) = (Cpu::new(), BuildConfig::default(), Cpu::target());
    for seed in 0..seeds {
        let mut m = Maker { g: Graph::new("random"), rng: Rng::new(seed), inputs: Vec::new() };
        let y = make(&mut m);
        if !m.g.outputs.contains(&y) {
            m.g.outputs.push(y);
        }
        let work = PassWork::new(&config);
        let cx = PassCx::new(&config, &backend, &target, &work);
        let mut after = m.g.clone();
        rewritten += usize::from(passes::run_one(pattern, &mut after, &cx).unwrap().unwrap() > 0);
        after.verify().unwrap();
        let text = || format!("seed {seed}\n{}{}", m.g.to_text(), after.to_text());
        match (m.g.eval(&m.inputs), after.eval(&m.inputs)) {
            (Ok(a), Ok(b)) => {
                for (a, b) in a.iter().zip(&b) {
                    near(a, b, 1e-6).unwrap_or_else(|e| panic!("{e}\n{}", text()));
                }
            }
            (Err(_), Err(_)) => refused += 1,
            (a, b) => panic!("{a:?} and {b:?}\n{}", text()),
        }
    }
    (rewritten, refused)
}

#[test]
fn rows_of_several_tables() {
    let (rewritten, refused) = changed("parallel-gather", Maker::tables, 1000);
    assert!((500..950).contains(&rewritten) && refused > 10, "{rewritten} rewritten, {refused} with errors");
}

#[test]
fn convolutions_of_one_input() {
    let (rewritten, _) = changed("parallel-conv", Maker::branches, 600);
    assert!((300..590).contains(&rewritten), "{rewritten} rewritten");
}

#[test]
fn products_of_one_input() {
    let (rewritten, _) = changed("parallel-matmul", Maker::products, 600);
    assert!((400..=600).contains(&rewritten), "{rewritten} rewritten");
}

#[test]
fn products_of_the_codes_of_one_input() {
    let (rewritten, _) = changed("parallel-matmul", Maker::coded, 600);
    assert!((400..=600).contains(&rewritten), "{rewritten} rewritten");
}

#[test]
fn products_of_parts_of_one_tensor() {
    let (rewritten, _) = changed("batched-matmul", Maker::experts, 1000);
    assert!((400..900).contains(&rewritten), "{rewritten} rewritten");
}
