//! Patterns on random graphs that almost match: the oracle finds the same before and after.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend_cpu::Cpu;
use kiln_builder::BuildConfig;
use kiln_builder::passes::{self, PassCx, PassWork};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Elems, Fact, Graph, Op, Tensor, TensorType, ValueId};
use kiln_tests::filetests::near;

/// A graph in the making, with data for its inputs.
struct Maker {
    g: Graph,
    rng: Rng,
    inputs: Vec<Tensor>,
}

impl Maker {
    fn new(seed: u64) -> Maker {
        Maker { g: Graph::new("random"), rng: Rng::new(seed), inputs: Vec::new() }
    }

    /// True once in `n` times.
    fn rarely(&mut self, n: i64) -> bool {
        self.rng.int(1, n) == 1
    }

    fn input(&mut self, shape: &[usize]) -> ValueId {
        let name = format!("x{}", self.inputs.len());
        let t = self.rng.tensor(DType::F32, shape);
        let dims = shape.iter().map(|&d| kiln_ir::Dim::new(d as i64));
        self.inputs.push(t);
        self.g.add_input(&name, Fact::of(TensorType::new(DType::F32, dims)))
    }

    fn constant(&mut self, t: Tensor) -> ValueId {
        let name = format!("c{}", self.g.value_ids().count());
        self.g.add_constant(&name, t)
    }

    fn random(&mut self, shape: &[usize]) -> ValueId {
        let t = self.rng.tensor(DType::F32, shape);
        self.constant(t)
    }

    fn ints(&mut self, v: &[i64]) -> ValueId {
        self.constant(Tensor::i64(&[v.len()], v).unwrap())
    }

    fn scalar(&mut self, x: f32) -> ValueId {
        self.constant(Tensor::f32(&[], &[x]).unwrap())
    }

    fn add(&mut self, op: &str, attrs: Attrs, inputs: &[ValueId]) -> ValueId {
        let name = format!("n{}", self.g.order().len());
        let y = self.g.add(&name, Op::new(op, attrs).unwrap(), inputs).unwrap();
        // Now and then somebody else reads what lies inside.
        if self.rarely(40) {
            self.g.outputs.push(y);
        }
        y
    }

    fn op(&mut self, op: &str, inputs: &[ValueId]) -> ValueId {
        let swapped = matches!(op, "add" | "mul") && self.rarely(2);
        match inputs {
            [a, b] if swapped => self.add(op, Attrs::new(), &[*b, *a]),
            _ => self.add(op, Attrs::new(), inputs),
        }
    }

    fn reduce(&mut self, op: &str, x: ValueId, axes: &[i64]) -> ValueId {
        let axes = self.constant(Tensor::i64(&[axes.len()], axes).unwrap());
        self.add("reduce", Attrs::new().with("op", op), &[x, axes])
    }

    fn shape(&self, v: ValueId) -> Vec<usize> {
        self.g.ty(v).static_dims().unwrap()
    }

    /// The last axes of a tensor; rarely other ones.
    fn axes(&mut self, rank: usize) -> Vec<i64> {
        let n = self.rng.int(1, 2.min(rank as i64));
        let axes: Vec<i64> = (0..n).map(|i| -1 - i).collect();
        if self.rarely(6) { vec![self.rng.int(0, rank as i64 - 1)] } else { axes }
    }

    /// A row of the last axes; rarely another shape that broadcasts.
    fn row(&mut self, shape: &[usize], axes: usize) -> ValueId {
        let row = &shape[shape.len() - axes..];
        match self.rng.int(0, 9) {
            0 => self.random(&[]),
            1 => self.random(shape),
            2 => self.random(&[&vec![1; shape.len() - axes][..], row].concat()),
            3 => self.random(&[&shape[shape.len() - axes..shape.len() - 1], &[1]].concat()),
            _ => self.random(row),
        }
    }

    /// A normalization, with or without mean, scale and bias.
    fn norm(&mut self) -> ValueId {
        let rank = self.rng.int(2, 4) as usize;
        let shape: Vec<usize> = (0..rank).map(|_| self.rng.int(1, 4) as usize).collect();
        let x = self.input(&shape);
        let axes = self.axes(rank);
        let mean_axes = if self.rarely(12) { self.axes(rank) } else { axes.clone() };
        let d = match self.rng.int(0, 2) {
            0 => x,
            _ => {
                let m = self.reduce("mean", x, &mean_axes);
                self.op("sub", &[x, m])
            }
        };
        let squares = match self.rng.int(0, 7) {
            0 => self.op("mul", &[d, x]),
            1..4 => self.op("mul", &[d, d]),
            n => {
                let power = self.scalar(if n == 4 { 4.0 } else { 2.0 });
                self.op("pow", &[d, power])
            }
        };
        let kind = if self.rarely(10) { "sum" } else { "mean" };
        let v = self.reduce(kind, squares, &axes);
        let eps = self.scalar(0.01);
        let e = self.op("add", &[v, eps]);
        let r = self.op("sqrt", &[e]);
        let (scaled, plus) = (self.rarely(2), self.rarely(2));
        let scale = self.row(&shape, axes.len().min(rank));
        let mut y = match self.rng.int(0, 2) {
            0 => self.op("div", &[d, r]),
            1 if scaled => {
                let i = self.op("recip", &[r]);
                let i = self.op("mul", &[i, scale]);
                self.op("mul", &[d, i])
            }
            _ => {
                let i = self.op("recip", &[r]);
                self.op("mul", &[d, i])
            }
        };
        if scaled {
            y = self.op("mul", &[y, scale]);
        }
        if plus {
            let b = self.row(&shape, axes.len().min(rank));
            y = self.op("add", &[y, b]);
        }
        y
    }

    fn softmax(&mut self, x: ValueId) -> ValueId {
        let rank = self.shape(x).len() as i64;
        let axis = if self.rarely(8) { self.rng.int(0, rank - 1) } else { -1 };
        if self.rarely(2) {
            return self.add("softmax", Attrs::new().with("axis", axis), &[x]);
        }
        let m = self.reduce("max", x, &[axis]);
        let d = self.op("sub", &[x, m]);
        let e = self.op("exp", &[d]);
        let of = if self.rarely(10) { x } else { e };
        let s = self.reduce("sum", of, &[axis]);
        self.op("div", &[e, s])
    }

    fn scaled(&mut self, x: ValueId, rank: usize) -> ValueId {
        let by = match self.rng.int(0, 9) {
            0 => self.random(&vec![1; rank]),
            1 => self.random(&self.shape(x)[rank - 1..]),
            _ => self.scalar(0.5),
        };
        if self.rarely(3) { self.op("div", &[x, by]) } else { self.op("mul", &[x, by]) }
    }

    fn maybe_scaled(&mut self, x: ValueId) -> ValueId {
        let rank = self.shape(x).len();
        if self.rarely(3) { self.scaled(x, rank) } else { x }
    }

    /// Dimensions of a mask: those of the scores, some of them 1, some of the first left out.
    fn mask_shape(&mut self, scores: &[usize]) -> Vec<usize> {
        let from = self.rng.int(0, scores.len() as i64 - 1) as usize;
        let mut out: Vec<usize> = scores[from..].to_vec();
        let last = out.len() - 1;
        for (i, d) in out.iter_mut().enumerate() {
            if self.rng.int(1, if i == last { 8 } else { 2 }) == 1 {
                *d = 1;
            }
        }
        out
    }

    fn attention(&mut self) -> ValueId {
        let [b, h, s, t, d] = [0; 5].map(|_| self.rng.int(1, 3) as usize);
        let lead = if self.rarely(2) { vec![b] } else { vec![b, h] };
        let kv_lead: Vec<usize> = lead.iter().map(|&n| if self.rng.int(1, 8) == 1 { 1 } else { n }).collect();
        let rank = lead.len() + 2;
        let q = self.input(&[&lead[..], &[s, d]].concat());
        let v = self.input(&[&kv_lead[..], &[t, 2]].concat());
        let trans = self.rarely(2);
        let mut k = match trans {
            true => self.input(&[&kv_lead[..], &[t, d]].concat()),
            false => self.input(&[&kv_lead[..], &[d, t]].concat()),
        };
        if !trans && self.rarely(2) {
            let x = self.input(&[&kv_lead[..], &[t, d]].concat());
            let x = self.maybe_scaled(x);
            let mut perm: Vec<i64> = (0..rank as i64).collect();
            perm.swap(rank - 2, rank - 1);
            k = self.add("transpose", Attrs::new().with("perm", perm), &[x]);
        }
        let (q, k) = (self.maybe_scaled(q), self.maybe_scaled(k));
        let p = self.add("matmul", Attrs::new().with("trans_b", trans), &[q, k]);
        let mut scores = self.maybe_scaled(p);
        let shape = self.shape(scores);
        if self.rarely(4) {
            scores = self.capped(scores);
        }
        for _ in 0..self.rng.int(0, 2) {
            scores = self.masked(scores, &shape);
        }
        if self.rarely(8) {
            scores = self.capped(scores);
        }
        let mut w = self.softmax(scores);
        if self.rarely(3) {
            w = self.guarded(w, scores);
        }
        self.op("matmul", &[w, v])
    }

    /// Tanh between two factors, which mostly are each other's inverse.
    fn capped(&mut self, x: ValueId) -> ValueId {
        let (by, cap) = (self.scalar(0.5), self.scalar(2.0));
        let cap = if self.rarely(8) { self.scalar(-1.5) } else { cap };
        let x = self.op("mul", &[x, by]);
        let x = self.op("tanh", &[x]);
        if self.rarely(6) { x } else { self.op("mul", &[x, cap]) }
    }

    /// Zeros for probabilities that are NaN, or for rows whose scores are all (rarely: any) −∞.
    fn guarded(&mut self, w: ValueId, scores: ValueId) -> ValueId {
        let zero = if self.rarely(10) { 1.0 } else { 0.0 };
        let zero = self.scalar(zero);
        let cond = if self.rarely(2) {
            let of = if self.rarely(8) { scores } else { w };
            self.op("isnan", &[of])
        } else {
            let low = if self.rarely(10) { 0.0 } else { f32::NEG_INFINITY };
            let low = self.scalar(low);
            let hidden = self.op("equal", &[scores, low]);
            let seen = self.op("not", &[hidden]);
            let x = if self.rarely(8) { hidden } else { seen };
            let x = self.add("cast", Attrs::new().with("to", DType::I64), &[x]);
            let kind = self.rng.pick(&["max", "sum", "min"]).unwrap();
            let any = self.reduce(kind, x, &[-1]);
            let any = self.add("cast", Attrs::new().with("to", DType::Bool), &[any]);
            if self.rarely(8) { any } else { self.op("not", &[any]) }
        };
        let order = if self.rarely(8) { [cond, w, zero] } else { [cond, zero, w] };
        self.op("select", &order)
    }

    /// Scores with something added to them, or hidden behind a number, or held above one, or scaled.
    fn masked(&mut self, mut scores: ValueId, shape: &[usize]) -> ValueId {
        let mask = self.mask_shape(shape);
        match self.rng.int(0, 6) {
            0 => {
                let m = self.input(&mask);
                scores = self.op("add", &[scores, m]);
            }
            1 => {
                let n = mask.iter().product();
                let bits = Elems::I((0..n).map(|_| self.rng.int(0, 2).min(1)).collect());
                let m = self.constant(Tensor::from_elems(DType::Bool, &mask, &bits).unwrap());
                let low = [f32::NEG_INFINITY, f32::MIN, -1e9, -1e4, 1.0];
                let low = self.rng.pick(&low).unwrap();
                let low = self.scalar(low);
                let order = if self.rarely(2) { [m, low, scores] } else { [m, scores, low] };
                scores = self.op("select", &order);
            }
            2 => {
                let m = self.input(&mask);
                scores = self.op("sub", &[scores, m]);
            }
            3 => {
                let low = if self.rarely(6) { 0.0 } else { f32::MIN };
                let low = self.scalar(low);
                scores = self.op("max", &[scores, low]);
            }
            4 => scores = self.scaled(scores, shape.len()),
            _ => {}
        }
        scores
    }

    /// Attention of groups: keys and values of fewer heads, repeated in one of several orders.
    fn groups(&mut self) -> ValueId {
        let [b, kv, n, s, t] = [0; 5].map(|_| self.rng.int(1, 3) as usize);
        let q = self.input(&[b, kv * n, s, 4]);
        let (k, v) = (self.input(&[b, kv, t, 4]), self.input(&[b, kv, t, 4]));
        let (k, v) = (self.repeated(k, n), self.repeated(v, n));
        let (q, k, v) = match self.rng.int(0, 3) {
            // Heads in the batch.
            0 => {
                let mut fold = |x: ValueId| {
                    let shape = self.shape(x);
                    let to = [(shape[0] * shape[1]) as i64, shape[2] as i64, shape[3] as i64];
                    let to = self.constant(Tensor::i64(&[3], &to).unwrap());
                    self.add("reshape", Attrs::new(), &[x, to])
                };
                (fold(q), fold(k), fold(v))
            }
            _ => (q, k, v),
        };
        let p = self.add("matmul", Attrs::new().with("trans_b", true), &[q, k]);
        let w = self.softmax(p);
        self.op("matmul", &[w, v])
    }

    /// Heads, each `n` times in a row, or all `n` times.
    fn repeated(&mut self, x: ValueId, n: usize) -> ValueId {
        let shape = self.shape(x);
        let heads = shape[1] as i64;
        let n = n as i64;
        match self.rng.int(0, 4) {
            0 => {
                let at: Vec<i64> = (0..heads * n).map(|i| i / n).collect();
                let at = self.ints(&at);
                self.add("gather", Attrs::new().with("axis", 1i64), &[x, at])
            }
            1 => {
                let by = self.ints(&[1, n, 1, 1]);
                self.op("tile", &[x, by])
            }
            way => {
                let axis = if self.rarely(6) { 1 } else { 2 };
                let axes = self.ints(&[axis]);
                let x = self.op("unsqueeze", &[x, axes]);
                let mut by = [1; 5];
                by[axis as usize] = n;
                let all = self.ints(&by);
                let x = match way {
                    2 => self.op("expand", &[x, all]),
                    3 => self.op("tile", &[x, all]),
                    _ => self.add("concat", Attrs::new().with("axis", axis), &vec![x; n as usize]),
                };
                let to = self.ints(&[shape[0] as i64, heads * n, shape[2] as i64, shape[3] as i64]);
                self.add("reshape", Attrs::new(), &[x, to])
            }
        }
    }
}

impl Maker {
    /// A transposed convolution of random geometry over constant weights, rarely others. An infinite element of x shows products
    /// with zeros that a rewrite adds.
    fn transposed(&mut self) -> ValueId {
        let rank = self.rng.int(1, 3) as usize;
        let of = |m: &mut Maker, lo, hi| (0..rank).map(|_| m.rng.int(lo, hi)).collect::<Vec<i64>>();
        let (sizes, strides) = (of(self, 1, 5), of(self, 1, if rank == 3 { 3 } else { 5 }));
        let longest = if rank == 3 { 1 } else { 2 };
        let kernel: Vec<i64> = strides.iter().map(|&s| self.rng.int(1, s * longest + 2)).collect();
        let dilations = if self.rarely(3) { of(self, 1, 4) } else { vec![1; rank] };
        let wide = self.rarely(6);
        let reach: Vec<i64> = kernel.iter().zip(&dilations).map(|(k, d)| (k - 1) * d + 1).collect();
        let pads: Vec<i64> =
            reach.iter().chain(&reach).map(|&n| self.rng.int(0, if wide { n + 2 } else { n / 2 })).collect();
        let more: Vec<i64> =
            strides.iter().map(|&s| if self.rarely(2) { self.rng.int(0, s) } else { 0 }).collect();
        let groups = if self.rarely(3) { self.rng.int(2, 3) } else { 1 };
        let (channels, made) = (groups * self.rng.int(1, 3), self.rng.int(1, 3));
        let mut attrs = Attrs::new().with("groups", groups).with("pads", pads).with("output_padding", more);
        if self.rarely(4) {
            let modes = ["explicit_round_up", "same_upper", "same_lower", "valid"];
            attrs.set("pad_mode", modes[self.rng.int(0, 3) as usize]);
        }
        if self.rarely(4) {
            attrs.set(
                "output_shape",
                sizes.iter().zip(&strides).map(|(n, s)| self.rng.int(1, (n + 1) * s)).collect::<Vec<_>>(),
            );
        }
        let shape = |first: [i64; 2], rest: &[i64]| -> Vec<usize> {
            first.iter().chain(rest).map(|&n| n as usize).collect()
        };
        let x = self.input(&shape([2, channels], &sizes));
        if let Some(t) = self.inputs.last_mut().filter(|_| self.rng.int(1, 3) == 1) {
            let mut v: Vec<f32> = t.to_f64().iter().map(|&v| v as f32).collect();
            let at = self.rng.int(0, v.len() as i64 - 1) as usize;
            v[at] = f32::INFINITY;
            *t = Tensor::f32(t.shape(), &v).unwrap();
        }
        let of_weights = shape([channels, made], &kernel);
        let w = if self.rarely(12) { self.input(&of_weights) } else { self.random(&of_weights) };
        let mut inputs = vec![x, w];
        if self.rarely(2) {
            inputs.push(self.random(&[(made * groups) as usize]));
        }
        // Geometries without a result are not wanted.
        let name = format!("t{}", self.g.order().len());
        let op =
            Op::new("conv_transpose", attrs.with("strides", strides).with("dilations", dilations)).unwrap();
        let y = self.g.add(&name, op, &inputs);
        y.unwrap_or_else(|_| self.op("relu", &[x]))
    }

    /// Attention with heads around the length up to which fused kernels hold them: in both layouts, grouped, masked, causal, in windows,
    /// bounded, or with flags that products do not follow.
    fn long_heads(&mut self) -> ValueId {
        let int = |m: &mut Maker, lo, hi| m.rng.int(lo, hi) as usize;
        let (batch, queries, keys) = (int(self, 1, 2), int(self, 1, 4), int(self, 1, 5));
        let (kv_heads, groups) = (int(self, 1, 2), int(self, 1, 2));
        let (size, v_size) = (int(self, 120, 150), int(self, 1, 140));
        let (heads, flat) = (kv_heads * groups, self.rarely(2));
        let shape = |heads: usize, length: usize, size: usize| match flat {
            true => vec![batch, length, heads * size],
            false => vec![batch, heads, length, size],
        };
        let q = self.input(&shape(heads, queries, size));
        let k = self.input(&shape(kv_heads, keys, size));
        let v = self.input(&shape(kv_heads, keys, v_size));
        let mut inputs = vec![q, k, v];
        if self.rarely(2) {
            let lead = if self.rarely(2) { vec![] } else { vec![batch, 1] };
            let shape = [&lead[..], &[queries, keys]].concat();
            inputs.push(match self.rarely(2) {
                true => {
                    let n = shape.iter().product();
                    let bits = Elems::I((0..n).map(|_| self.rng.int(0, 2).min(1)).collect());
                    self.constant(Tensor::from_elems(DType::Bool, &shape, &bits).unwrap())
                }
                false => self.input(&shape),
            });
        }
        let counts = if flat { [heads as i64, kv_heads as i64] } else { [0, 0] };
        let mut attrs = Attrs::new().with("q_heads", counts[0]).with("kv_heads", counts[1]);
        if self.rarely(2) {
            attrs = attrs.with("scale", 0.25f64);
        }
        if self.rarely(4) {
            attrs = attrs.with("causal", true);
        }
        if self.rarely(4) {
            attrs = attrs.with("window_left", 1i64).with("window_right", 2i64);
        }
        if self.rarely(6) {
            attrs = attrs.with("softcap", 2.0f64);
        }
        if self.rarely(4) {
            attrs = attrs.with("zero_nan", true);
        }
        let name = format!("a{}", self.g.order().len());
        self.g.add(&name, Op::new("attention", attrs).unwrap(), &inputs).unwrap()
    }

    /// A product or convolution of joined parts, some of which are the same at all positions.
    fn joined_parts(&mut self) -> ValueId {
        let int = |m: &mut Maker, lo, hi| m.rng.int(lo, hi) as usize;
        let image = self.rarely(2);
        let positions: Vec<usize> = (0..int(self, 1, 2)).map(|_| int(self, 1, 4)).collect();
        let (batch, made) = (int(self, 1, 2), int(self, 1, 5));
        let shape = |width: usize, positions: &[usize]| match image {
            true => [&[batch, width], positions].concat(),
            false => [&[batch], positions, &[width]].concat(),
        };
        let (mut parts, mut depth) = (Vec::new(), 0);
        for _ in 0..int(self, 2, 4) {
            let width = int(self, 1, 4);
            depth += width;
            let full = shape(width, &positions);
            if self.rarely(2) {
                parts.push(self.input(&full));
                continue;
            }
            // Sometimes but one of several dimensions is repeated.
            let mut once = vec![1; positions.len()];
            if self.rarely(3) {
                once[0] = positions[0];
            }
            let own = shape(width, &once);
            let x = self.input(&own);
            let tiles = self.rarely(2);
            let counts = full.iter().zip(&own).map(|(&f, &o)| if tiles { f / o } else { f } as i64);
            let counts = self.ints(&counts.collect::<Vec<_>>());
            parts.push(self.op(if tiles { "tile" } else { "expand" }, &[x, counts]));
        }
        let axis = if image { 1i64 } else { -1 };
        let x = self.add("concat", Attrs::new().with("axis", axis), &parts);
        if !image {
            let trans = self.rarely(2);
            let w = self.random(&if trans { [made, depth] } else { [depth, made] });
            return self.add("matmul", Attrs::new().with("trans_b", trans), &[x, w]);
        }
        let kernel = if self.rarely(6) { 2 } else { 1 };
        let pad = i64::from(kernel == 2 || self.rarely(6));
        let w = self.random(&[&[made, depth], &vec![kernel; positions.len()][..]].concat());
        let mut inputs = vec![x, w];
        if self.rarely(2) {
            inputs.push(self.random(&[made]));
        }
        let strides: Vec<i64> = positions.iter().map(|_| self.rng.int(1, 2)).collect();
        let attrs = Attrs::new().with("strides", strides).with("pads", vec![pad; 2 * positions.len()]);
        self.add("conv", attrs, &inputs)
    }

    /// A product of two operands with random labels: of both, of one, summed over or not.
    fn einsum(&mut self) -> ValueId {
        let (mut a, mut b, mut out) = (Vec::new(), Vec::new(), Vec::new());
        for label in 0..self.rng.int(2, 6) as u8 {
            let most = if self.rarely(12) { 5 } else { 3 };
            let kind = self.rng.int(0, most);
            let [in_a, in_b, in_out] = [
                [true, true, true],
                [true, false, true],
                [false, true, true],
                [true, true, false],
                [true, false, false],
                [false, true, false],
            ][kind as usize];
            for (list, is_in) in [(&mut a, in_a), (&mut b, in_b), (&mut out, in_out)] {
                if is_in {
                    let at = self.rng.int(0, list.len() as i64) as usize;
                    list.insert(at, label);
                }
            }
        }
        let sizes: Vec<usize> = (0..6).map(|_| self.rng.int(1, 4) as usize).collect();
        let shape = |labels: &[u8]| labels.iter().map(|&l| sizes[l as usize]).collect::<Vec<_>>();
        let inputs = [self.input(&shape(&a)), self.input(&shape(&b))];
        let text = |labels: &[u8]| labels.iter().map(|&l| char::from(b'a' + l)).collect::<String>();
        let equation = format!("{},{}->{}", text(&a), text(&b), text(&out));
        self.add("einsum", Attrs::new().with("equation", equation), &inputs)
    }
}

impl Maker {
    /// Halves of heads that turn, or almost.
    fn rotary(&mut self) -> ValueId {
        let int = |m: &mut Maker, lo, hi| m.rng.int(lo, hi) as usize;
        let (batch, heads, length) = (int(self, 1, 3), int(self, 1, 3), int(self, 1, 4));
        let (half, split) = (int(self, 1, 4), self.rarely(2));
        let size = 2 * half;
        let x = if split {
            let whole = self.input(&[batch, length, heads * size]);
            let shape = self.ints(&[batch as i64, length as i64, heads as i64, size as i64]);
            let apart = self.op("reshape", &[whole, shape]);
            self.add("transpose", Attrs::new().with("perm", vec![0i64, 2, 1, 3]), &[apart])
        } else {
            self.input(&[batch, heads, length, size])
        };
        let table = |m: &mut Maker| m.table(batch, length, half);
        let (cos, sin) = (table(self), table(self));
        let cut = |m: &mut Maker, from: usize, to: usize| {
            let bounds = [m.ints(&[from as i64]), m.ints(&[to as i64]), m.ints(&[-1])];
            m.add("slice", Attrs::new(), &[x, bounds[0], bounds[1], bounds[2]])
        };
        let middle = if self.rarely(8) { int(self, 1, size as i64 - 1) } else { half };
        let (low, high) = (cut(self, 0, middle), cut(self, middle, size));
        let minus = self.op("neg", &[high]);
        let order = if self.rarely(8) { [low, minus] } else { [minus, low] };
        let turned = self.add("concat", Attrs::new().with("axis", -1i64), &order);
        let (a, b) = (self.op("mul", &[x, cos]), self.op("mul", &[turned, sin]));
        self.op("add", &[a, b])
    }

    /// A table of angles whose halves are mostly equal: a constant, or out of an input.
    fn table(&mut self, batch: usize, length: usize, half: usize) -> ValueId {
        let all = if self.rarely(3) { 1 } else { batch };
        if self.rarely(2) {
            let angle = self.input(&[all, length, half]);
            let other = if self.rarely(8) { self.input(&[all, length, half]) } else { angle };
            let twice = self.add("concat", Attrs::new().with("axis", 2i64), &[angle, other]);
            let table = self.op("cos", &[twice]);
            let axis = self.ints(&[1]);
            return self.op("unsqueeze", &[table, axis]);
        }
        let rows: Vec<f32> = (0..length * half).map(|_| self.rng.int(-8, 8) as f32 / 4.0).collect();
        let mut whole: Vec<f32> = rows.chunks(half).flat_map(|row| [row, row].concat()).collect();
        if self.rarely(8) {
            whole[half] += 1.0;
        }
        let shape = if self.rarely(2) { vec![length, 2 * half] } else { vec![1, 1, length, 2 * half] };
        self.constant(Tensor::f32(&shape, &whole).unwrap())
    }
}

/// Rewrites a graph by a pass; how many rewrites there were.
fn check(pass: &str, mut m: Maker, y: ValueId) -> usize {
    if !m.g.outputs.contains(&y) {
        m.g.outputs.push(y);
    }
    let (backend, config, target) = (Cpu::new(), BuildConfig::default(), Cpu::target());
    let work = PassWork::new(&config);
    let cx = PassCx::new(&config, &backend, &target, &work);
    let mut after = m.g.clone();
    let changes = passes::run_one(pass, &mut after, &cx).unwrap().unwrap();
    after.verify().unwrap();
    let (a, b) = (m.g.eval(&m.inputs).unwrap(), after.eval(&m.inputs).unwrap());
    for (a, b) in a.iter().zip(&b) {
        near(a, b, 2e-5).unwrap_or_else(|e| panic!("{e}\n{}{}", m.g.to_text(), after.to_text()));
    }
    changes
}

fn run(make: fn(&mut Maker) -> ValueId, seeds: u64) -> (usize, usize) {
    run_by("patterns", make, seeds)
}

fn run_by(pass: &str, make: fn(&mut Maker) -> ValueId, seeds: u64) -> (usize, usize) {
    let (mut changed, mut kept) = (0, 0);
    for seed in 0..seeds {
        let mut m = Maker::new(seed);
        let y = make(&mut m);
        if check(pass, m, y) > 0 { changed += 1 } else { kept += 1 }
    }
    (changed, kept)
}

#[test]
fn normalizations() {
    let (changed, kept) = run(Maker::norm, 600);
    assert!(changed > 100 && kept > 100, "{changed} rewritten, {kept} kept");
}

#[test]
fn groups() {
    let (changed, kept) = run(Maker::groups, 400);
    assert!(changed > 100 && kept > 30, "{changed} rewritten, {kept} kept");
}

#[test]
fn attentions() {
    let (changed, kept) = run(Maker::attention, 1500);
    assert!(changed > 100 && kept > 50, "{changed} rewritten, {kept} kept");
}

#[test]
fn long_heads() {
    let (changed, kept) = run_by("attention-by-products", Maker::long_heads, 400);
    assert!(changed > 100 && kept > 50, "{changed} rewritten, {kept} kept");
}

#[test]
fn rotary_embeddings() {
    let (changed, kept) = run_by("rotary", Maker::rotary, 400);
    assert!(changed > 100 && kept > 50, "{changed} rewritten, {kept} kept");
}

#[test]
fn joined_parts() {
    let (changed, kept) = run_by("products-of-repeated-parts", Maker::joined_parts, 600);
    assert!(changed > 150 && kept > 100, "{changed} rewritten, {kept} kept");
}

#[test]
fn transposed_convolutions() {
    let (changed, kept) = run_by("phases-by-conv", Maker::transposed, 600);
    assert!(changed > 350 && kept > 50, "{changed} rewritten, {kept} kept");
}

#[test]
fn einsums() {
    let (changed, kept) = run_by("einsum", Maker::einsum, 600);
    assert!(changed > 200 && kept > 50, "{changed} rewritten, {kept} kept");
}
