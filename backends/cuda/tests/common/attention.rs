//! Problems of attention: every element type, option and way to lie, at lengths that leave parts of tiles empty.

use kiln_backend::Region;
use kiln_ir::problem::Rng;
use kiln_ir::tensor::Elems;
use kiln_ir::{Attrs, DType, Fact, Graph, Op, Tensor, ValueId};

/// A region with inputs.
pub struct Case {
    pub label: String,
    pub graph: Graph,
    pub inputs: Vec<Tensor>,
    /// Greatest difference of an element.
    noise: f64,
}

/// All of a graph as one region.
pub fn region(g: &Graph) -> Region {
    Region::extract(g, g.order()).unwrap()
}

impl Case {
    /// Text of the differences between results, if there are any. NaN equals NaN alone.
    pub fn differs(&self, found: &Tensor, wanted: &Tensor) -> Option<String> {
        if (found.dtype(), found.shape()) != (wanted.dtype(), wanted.shape()) {
            return Some(format!("{} {:?}", found.dtype(), found.shape()));
        }
        let (x, y) = (found.to_f64(), wanted.to_f64());
        let near =
            |x: f64, y: f64| (x - y).abs() <= self.noise * (1.0 + y.abs()) || (x.is_nan() && y.is_nan());
        let bad: Vec<_> = x.iter().zip(&y).enumerate().filter(|(_, (x, y))| !near(**x, **y)).collect();
        let &(at, (x, y)) = bad.first()?;
        Some(format!("{} of {} wrong; {x} for {y} at {at}", bad.len(), found.len()))
    }
}

/// Layout of q, k and v.
#[derive(Clone, Copy, PartialEq)]
pub enum Way {
    /// [batch, heads, length, size].
    Heads,
    /// [batch, length, heads·size].
    Flat,
    /// Slices of one [batch, length, 3·heads·size].
    Slices,
    /// The same, by way of [batch, length, 3, heads, size] transposed.
    Packed,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Mask {
    None,
    /// Random numbers.
    Added(&'static [usize]),
    /// Numbers with every third row, and half of the others, minus infinity.
    Infinite(&'static [usize]),
    Bools(&'static [usize]),
    /// The last so many queries and first so many keys of random bools.
    Cut(&'static [usize; 2], [usize; 2]),
    /// Bools that are false as [`Mask::Infinite`] hides, behind this number.
    Hidden(&'static [usize], f64),
    /// A mask that is added, with the least f32 where it hides, whatever the type of the queries.
    Least(&'static [usize]),
}

/// An attention: batch, query heads, key heads, queries, keys, past, head size, value size.
#[derive(Clone, Copy)]
pub struct Sizes {
    pub label: &'static str,
    pub t: DType,
    pub sizes: [usize; 8],
    pub way: Way,
    pub mask: Mask,
    pub causal: bool,
    pub cap: f64,
    pub zero_nan: bool,
    pub nonpad: bool,
    /// Whether the cache's tensors are outputs, too.
    pub present: bool,
    /// Whether a query is not a number.
    pub nan: bool,
    /// Whether another tensor is added to the result.
    pub behind: bool,
}

const BASE: Sizes = Sizes {
    label: "",
    t: DType::F16,
    sizes: [1, 2, 2, 64, 64, 0, 64, 64],
    way: Way::Heads,
    mask: Mask::None,
    causal: false,
    cap: 0.0,
    zero_nan: false,
    nonpad: false,
    present: false,
    nan: false,
    behind: false,
};

const fn of(label: &'static str, sizes: [usize; 8]) -> Sizes {
    Sizes { label, sizes, ..BASE }
}

const CASES: &[Sizes] = &[
    of("length 1", [2, 2, 2, 1, 1, 0, 64, 64]),
    of("length 17", [2, 3, 3, 17, 17, 0, 32, 32]),
    of("length 300", [1, 2, 2, 300, 300, 0, 64, 64]),
    of("one query", [2, 4, 4, 1, 513, 0, 64, 64]),
    of("large heads", [1, 2, 2, 70, 90, 0, 256, 256]),
    of("odd heads", [1, 2, 1, 33, 41, 0, 41, 9]),
    of("heads of 80 and 96", [1, 2, 2, 50, 130, 0, 80, 96]),
    of("no keys", [1, 2, 2, 3, 0, 0, 16, 16]),
    of("grouped heads", [2, 6, 2, 37, 60, 0, 128, 64]),
    Sizes { way: Way::Flat, ..of("flat, grouped heads", [2, 4, 2, 40, 75, 0, 64, 32]) },
    Sizes { way: Way::Slices, ..of("slices", [2, 3, 3, 197, 197, 0, 64, 64]) },
    Sizes { way: Way::Packed, ..of("packed", [2, 3, 3, 49, 49, 0, 32, 32]) },
    Sizes { way: Way::Slices, ..of("odd slices", [2, 3, 3, 19, 19, 0, 5, 5]) },
    Sizes { mask: Mask::Added(&[3, 49, 49]), ..of("bias of windows", [4, 3, 3, 49, 49, 0, 32, 32]) },
    Sizes {
        mask: Mask::Added(&[2, 1, 1, 128]),
        way: Way::Flat,
        ..of("padding", [2, 2, 2, 128, 128, 0, 64, 64])
    },
    Sizes { mask: Mask::Infinite(&[50, 60]), ..of("rows without keys", [1, 2, 2, 50, 60, 0, 64, 64]) },
    Sizes {
        mask: Mask::Infinite(&[50, 60]),
        zero_nan: true,
        ..of("rows without keys give 0", [1, 2, 2, 50, 60, 0, 64, 64])
    },
    Sizes { mask: Mask::Bools(&[2, 1, 30, 100]), ..of("bools", [2, 2, 2, 30, 110, 0, 64, 64]) },
    Sizes { mask: Mask::Cut(&[64, 70], [33, 41]), ..of("cut bools", [2, 2, 2, 33, 41, 0, 64, 64]) },
    Sizes { nan: true, ..of("not a number", [1, 2, 2, 40, 40, 0, 64, 64]) },
    Sizes { nan: true, zero_nan: true, ..of("not a number, 0", [1, 2, 2, 40, 40, 0, 64, 64]) },
    Sizes { causal: true, ..of("causal", [1, 2, 2, 300, 300, 0, 64, 64]) },
    of("many stages", [1, 2, 2, 200, 700, 0, 128, 128]),
    Sizes { causal: true, ..of("many stages, causal", [1, 4, 2, 333, 333, 0, 128, 96]) },
    of("widest heads", [1, 1, 1, 130, 300, 0, 256, 256]),
    Sizes { way: Way::Flat, causal: true, ..of("flat, grouped, causal", [2, 4, 2, 150, 290, 0, 64, 64]) },
    // More tiles than blocks that go on from tile to tile.
    of("many tiles", [205, 2, 2, 20, 150, 0, 16, 16]),
    of("many tiles of few keys", [540, 1, 1, 20, 40, 0, 16, 16]),
    of("many tiles of wide heads", [270, 1, 1, 20, 70, 0, 80, 80]),
    Sizes { mask: Mask::Added(&[540, 1, 20, 72]), ..of("many tiles, masks", [540, 1, 1, 20, 72, 0, 16, 16]) },
    Sizes {
        mask: Mask::Added(&[540, 1, 1, 72]),
        ..of("many tiles, masks of keys", [540, 1, 1, 20, 72, 0, 16, 16])
    },
    Sizes { causal: true, way: Way::Flat, ..of("many tiles, causal", [12, 8, 2, 140, 140, 0, 16, 16]) },
    Sizes { mask: Mask::Added(&[140, 1, 30, 72]), ..of("many tiles, bias", [140, 1, 1, 30, 72, 0, 16, 16]) },
    Sizes { mask: Mask::Added(&[2, 1, 140, 256]), ..of("bias of entries", [2, 2, 2, 140, 264, 0, 64, 64]) },
    Sizes { mask: Mask::Added(&[3, 200, 296]), ..of("bias of heads", [2, 3, 3, 200, 296, 0, 128, 128]) },
    Sizes {
        mask: Mask::Infinite(&[150, 200]),
        causal: true,
        cap: 2.0,
        ..of("bias, causal, capped", [1, 2, 2, 150, 200, 0, 64, 64])
    },
    Sizes { causal: true, ..of("causal, more keys", [2, 2, 2, 20, 150, 0, 32, 32]) },
    Sizes { causal: true, ..of("causal, grouped", [1, 8, 2, 23, 23, 0, 64, 64]) },
    Sizes { cap: 1.5, causal: true, ..of("capped, causal", [1, 2, 2, 70, 90, 0, 32, 32]) },
    Sizes { cap: 3.0, mask: Mask::Bools(&[20, 80]), ..of("capped, bools", [1, 2, 2, 20, 90, 0, 64, 64]) },
    Sizes { nonpad: true, ..of("padded keys", [3, 2, 2, 33, 130, 0, 64, 64]) },
    of("past", [2, 4, 4, 1, 1, 200, 64, 64]),
    Sizes { present: true, ..of("past, present", [2, 4, 4, 1, 1, 200, 64, 64]) },
    Sizes { present: true, causal: true, ..of("past, present, causal", [2, 4, 2, 70, 70, 33, 32, 48]) },
    Sizes { present: true, way: Way::Packed, ..of("packed past, present", [2, 3, 3, 2, 2, 90, 64, 64]) },
    Sizes { present: true, ..of("odd past, present", [1, 2, 1, 3, 3, 13, 9, 7]) },
    Sizes { present: true, nonpad: true, ..of("present, padded", [2, 2, 2, 5, 90, 0, 64, 64]) },
    Sizes { behind: true, ..of("sum", [2, 2, 2, 150, 300, 0, 64, 64]) },
    Sizes { behind: true, way: Way::Flat, ..of("flat, sum", [2, 4, 2, 40, 75, 0, 64, 32]) },
    Sizes { behind: true, ..of("odd heads, sum", [1, 2, 1, 33, 41, 0, 41, 9]) },
    Sizes {
        behind: true,
        way: Way::Slices,
        mask: Mask::Added(&[2, 1, 1, 128]),
        ..of("padding, sum", [2, 3, 3, 128, 128, 0, 64, 64])
    },
    Sizes { behind: true, ..of("one query, sum", [2, 4, 4, 1, 513, 0, 64, 64]) },
];

/// Keys that are hidden behind numbers, in every type.
const HIDDEN: &[Sizes] = &[
    Sizes { mask: Mask::Hidden(&[50, 300], -1e4), ..of("hidden", [1, 2, 2, 50, 300, 0, 64, 64]) },
    Sizes { mask: Mask::Hidden(&[50, 61], -3e38), ..of("hidden far", [1, 2, 2, 50, 61, 0, 64, 64]) },
    Sizes {
        cap: 3.0,
        mask: Mask::Hidden(&[50, 60], 0.5),
        ..of("hidden, capped", [1, 2, 2, 50, 60, 0, 64, 64])
    },
    Sizes { mask: Mask::Least(&[50, 300]), ..of("least in f32", [1, 2, 2, 50, 300, 0, 64, 64]) },
    Sizes {
        cap: 3.0,
        mask: Mask::Least(&[50, 60]),
        ..of("least in f32, capped", [1, 2, 2, 50, 60, 0, 64, 64])
    },
];

/// Cases whose masks hide keys behind numbers, some rows as a whole.
pub fn hidden() -> Vec<Case> {
    let of = |t| HIDDEN.iter().map(move |c| Sizes { t, ..*c });
    [DType::F16, DType::BF16, DType::F32].into_iter().flat_map(of).map(|s| s.case()).collect()
}

/// All problems: those of f16, and some in the other types.
pub fn cases() -> Vec<Case> {
    // Heads of f32 of more than 512 bytes have no tile.
    let fits = |t: DType, c: &Sizes| t != DType::F32 || c.sizes[6].max(c.sizes[7]) <= 128;
    let more = |t| CASES.iter().step_by(3).filter(move |c| fits(t, c)).map(move |c| Sizes { t, ..*c });
    CASES.iter().copied().chain(more(DType::BF16)).chain(more(DType::F32)).map(|s| s.case()).collect()
}

/// Attentions of models, without the past of a cache as an output.
pub const WORKLOADS: &[Sizes] = &[
    Sizes { way: Way::Slices, ..of("bert b1", [1, 12, 12, 128, 128, 0, 64, 64]) },
    Sizes {
        way: Way::Slices,
        mask: Mask::Added(&[32, 1, 128, 128]),
        ..of("bert b32 masked", [32, 12, 12, 128, 128, 0, 64, 64])
    },
    Sizes { way: Way::Slices, ..of("bert b32", [32, 12, 12, 128, 128, 0, 64, 64]) },
    Sizes { way: Way::Slices, ..of("bert_large s384 b8", [8, 16, 16, 384, 384, 0, 64, 64]) },
    Sizes { way: Way::Slices, ..of("vit b1", [1, 12, 12, 197, 197, 0, 64, 64]) },
    Sizes { way: Way::Slices, ..of("vit b32", [32, 12, 12, 197, 197, 0, 64, 64]) },
    Sizes {
        way: Way::Slices,
        mask: Mask::Added(&[3, 49, 49]),
        ..of("swin b32, 1", [2048, 3, 3, 49, 49, 0, 32, 32])
    },
    Sizes {
        way: Way::Slices,
        mask: Mask::Added(&[12, 49, 49]),
        ..of("swin b32, 3", [128, 12, 12, 49, 49, 0, 32, 32])
    },
    of("gpt2 b1", [1, 12, 12, 1, 1, 512, 64, 64]),
    of("gpt2 b32", [32, 12, 12, 1, 1, 512, 64, 64]),
    Sizes { present: true, ..of("gpt2 b1, present", [1, 12, 12, 1, 1, 512, 64, 64]) },
    Sizes { present: true, ..of("gpt2 b32, present", [32, 12, 12, 1, 1, 512, 64, 64]) },
    of("long", [2, 16, 16, 2048, 2048, 0, 64, 64]),
    of("long, 128", [2, 16, 16, 2048, 2048, 0, 128, 128]),
    of("long, 256", [2, 8, 8, 1024, 1024, 0, 256, 256]),
    Sizes { causal: true, ..of("long, causal, 128", [2, 16, 16, 2048, 2048, 0, 128, 128]) },
    Sizes { mask: Mask::Added(&[1, 8, 512, 512]), ..of("bias of 512", [8, 8, 8, 512, 512, 0, 64, 64]) },
    of("keys of 77", [2, 8, 8, 4096, 77, 0, 40, 40]),
];

impl Sizes {
    pub fn case(&self) -> Case {
        let mut w = Writer { g: Graph::new("case"), inputs: Vec::new(), rng: Rng::new(5), t: self.t };
        let [b, hq, hk, _, sk, past, d, dv] = self.sizes;
        let [q, k, v] = w.heads(self);
        let mask = w.mask(self.mask);
        let cache = (past > 0).then(|| [w.input("pk", &[b, hk, past, d]), w.input("pv", &[b, hk, past, dv])]);
        let nonpad = self.nonpad.then(|| {
            let n: Vec<i64> = (0..b).map(|i| (i * sk / 2).min(sk) as i64).collect();
            let t = w.rng.i64s(&[b], &n);
            w.given("nonpad", t)
        });
        let flat = matches!(self.way, Way::Flat | Way::Slices);
        let heads = if flat { [hq as i64, hk as i64] } else { [0, 0] };
        let attrs = Attrs::new()
            .with("q_heads", heads[0])
            .with("kv_heads", heads[1])
            .with("causal", self.causal)
            .with("softcap", self.cap)
            .with("zero_nan", self.zero_nan);
        let attrs = match self.mask {
            Mask::Hidden(_, number) => attrs.with("hidden_score", number),
            _ => attrs,
        };
        let [pk, pv] = cache.map_or([None, None], |c| c.map(Some));
        let all = [Some(q), Some(k), Some(v), mask, pk, pv, nonpad];
        let outs = w.g.add_node("attention", Op::new("attention", attrs).unwrap(), &all).unwrap();
        w.g.outputs = if self.present { outs[..3].to_vec() } else { outs[..1].to_vec() };
        if self.behind {
            let shape = w.g.ty(outs[0]).static_dims().unwrap();
            let other = w.input("other", &shape);
            w.g.outputs =
                vec![w.g.add("sum", Op::new("add", Attrs::new()).unwrap(), &[outs[0], other]).unwrap()];
        }
        let noise = match self.t {
            DType::F16 => 4e-3,
            DType::BF16 => 3e-2,
            _ => 4e-3,
        };
        Case { label: format!("{} {}", self.label, self.t), graph: w.g, inputs: w.inputs, noise }
    }
}

struct Writer {
    g: Graph,
    inputs: Vec<Tensor>,
    rng: Rng,
    t: DType,
}

impl Writer {
    fn given(&mut self, name: &str, t: Tensor) -> ValueId {
        let v = self.g.add_input(name, Fact::of(t.ty()));
        self.inputs.push(t);
        v
    }

    fn input(&mut self, name: &str, shape: &[usize]) -> ValueId {
        let t = self.rng.tensor(self.t, shape);
        self.given(name, t)
    }

    fn ints(&mut self, name: &str, v: &[i64]) -> ValueId {
        let t = self.rng.i64s(&[v.len()], v);
        self.g.add_constant(name, t)
    }

    fn slice(&mut self, name: &str, x: ValueId, axis: i64, from: usize, to: usize) -> ValueId {
        let bounds = [("from", from as i64), ("to", to as i64), ("axis", axis)];
        let [a, b, c] = bounds.map(|(n, v)| self.ints(&format!("{name}.{n}"), &[v]));
        self.g.add(name, Op::new("slice", Attrs::new()).unwrap(), &[x, a, b, c]).unwrap()
    }

    fn heads(&mut self, s: &Sizes) -> [ValueId; 3] {
        let [b, hq, hk, sq, sk, _, d, dv] = s.sizes;
        let shapes = match s.way {
            Way::Heads => [vec![b, hq, sq, d], vec![b, hk, sk, d], vec![b, hk, sk, dv]],
            Way::Flat => [vec![b, sq, hq * d], vec![b, sk, hk * d], vec![b, sk, hk * dv]],
            Way::Slices | Way::Packed => return self.packed(s.way, [b, hq, sq, d]),
        };
        let mut out = [0, 1, 2].map(|i| self.rng.tensor(self.t, &shapes[i]));
        if s.nan {
            let mut x = out[0].to_f64();
            x[d + 1] = f64::NAN;
            out[0] = Tensor::from_elems(self.t, &shapes[0], &Elems::F(x)).unwrap();
        }
        let [q, k, v] = out;
        [self.given("q", q), self.given("k", k), self.given("v", v)]
    }

    fn packed(&mut self, way: Way, [b, h, s, d]: [usize; 4]) -> [ValueId; 3] {
        let x = self.input("x", &[b, s, 3 * h * d]);
        if way == Way::Slices {
            return [0, 1, 2].map(|i| self.slice(&format!("s{i}"), x, 2, i * h * d, (i + 1) * h * d));
        }
        let shape = self.ints("shape", &[b, s, 3, h, d].map(|n| n as i64));
        let x = self.g.add("split", Op::new("reshape", Attrs::new()).unwrap(), &[x, shape]).unwrap();
        let perm = Op::new("transpose", Attrs::new().with("perm", vec![2i64, 0, 3, 1, 4])).unwrap();
        let x = self.g.add("turned", perm, &[x]).unwrap();
        [0, 1, 2].map(|i| {
            let one = self.slice(&format!("s{i}"), x, 0, i, i + 1);
            let axes = self.ints(&format!("axes{i}"), &[0]);
            let op = Op::new("squeeze", Attrs::new()).unwrap();
            self.g.add(&format!("part{i}"), op, &[one, axes]).unwrap()
        })
    }

    fn mask(&mut self, mask: Mask) -> Option<ValueId> {
        let tensor = match mask {
            Mask::None => return None,
            Mask::Added(shape) => self.rng.tensor(self.t, shape),
            Mask::Infinite(shape) => {
                let len = shape.last().copied().unwrap();
                let mut x = self.rng.tensor(self.t, shape).to_f64();
                let hidden = |i: usize| i / len % 3 == 1 || i % 2 == 1;
                x.iter_mut()
                    .enumerate()
                    .filter(|(i, _)| hidden(*i))
                    .for_each(|(_, x)| *x = f64::NEG_INFINITY);
                Tensor::from_elems(self.t, shape, &Elems::F(x)).unwrap()
            }
            Mask::Hidden(shape, _) | Mask::Least(shape) => {
                let len = shape.last().copied().unwrap();
                let n = shape.iter().product::<usize>();
                let seen = |i: usize| i / len % 3 != 1 && i.is_multiple_of(2);
                let bools = Elems::I((0..n).map(|i| i64::from(seen(i))).collect());
                let least = |i| if seen(i) { 0.0 } else { f64::from(f32::MIN) };
                let floats = Elems::F((0..n).map(least).collect());
                let least = matches!(mask, Mask::Least(_));
                let (t, x) = if least { (DType::F32, floats) } else { (DType::Bool, bools) };
                Tensor::from_elems(t, shape, &x).unwrap()
            }
            Mask::Bools(shape) => {
                let len = shape.last().copied().unwrap();
                let n = shape.iter().product::<usize>();
                // Key 0 takes part in every row.
                let x = (0..n).map(|i| if i % len == 0 { 1 } else { self.rng.int(0, 1) }).collect();
                Tensor::from_elems(DType::Bool, shape, &Elems::I(x)).unwrap()
            }
            Mask::Cut(&[rows, keys], [queries, seen]) => {
                let x = (0..rows * keys).map(|i| i64::from(i % keys == 0 || i % 3 == 1)).collect();
                let t = Tensor::from_elems(DType::Bool, &[rows, keys], &Elems::I(x)).unwrap();
                let whole = self.given("mask", t);
                let part = self.slice("queries", whole, 0, rows - queries, rows);
                return Some(self.slice("keys", part, 1, 0, seen));
            }
        };
        Some(self.given("mask", tensor))
    }
}
