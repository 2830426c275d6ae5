//! Graphs with loops and conditionals.

#![allow(dead_code, reason = "each test uses some")]

use kiln_ir::problem::Rng;
use kiln_ir::{Attr, Attrs, DType, Elems, Fact, Graph, Op, Tensor, TensorType, ValueId};

pub fn op(name: &str) -> Op {
    Op::new(name, Attrs::new()).unwrap()
}

pub fn scalar(v: f32) -> Tensor {
    Tensor::f32(&[], &[v]).unwrap()
}

pub fn truth(b: bool) -> Tensor {
    Tensor::from_bytes(DType::Bool, &[], vec![u8::from(b)]).unwrap()
}

fn real(dims: &[i64]) -> Fact {
    Fact::of(TensorType::new(DType::F32, dims.iter().copied()))
}

/// One output of a loop: its kind, which value, axis, and whether it has a length.
pub type Out = (&'static str, i64, i64, bool);

/// A loop operator.
pub fn looped(
    count: bool,
    condition: bool,
    carried: i64,
    iterated: &[(i64, bool)],
    captures: i64,
    outs: &[Out],
) -> Op {
    let axes: Vec<i64> = iterated.iter().map(|i| i.0).collect();
    let reverse: Vec<i64> = iterated.iter().map(|i| i64::from(i.1)).collect();
    let attrs = Attrs::new()
        .with("count", count)
        .with("while", condition)
        .with("carried", carried)
        .with("iter_axes", axes)
        .with("iter_reverse", reverse)
        .with("body_captures", captures)
        .with("out_kinds", Attr::Strs(outs.iter().map(|o| o.0.to_owned()).collect()))
        .with("out_index", outs.iter().map(|o| o.1).collect::<Vec<i64>>())
        .with("out_axes", outs.iter().map(|o| o.2).collect::<Vec<i64>>())
        .with("out_length", outs.iter().map(|o| i64::from(o.3)).collect::<Vec<i64>>());
    Op::new("loop", attrs).unwrap()
}

/// t < limit, of carried values t and x.
pub fn below(n: i64) -> Graph {
    let mut g = Graph::new("below");
    let t = g.add_input("t", real(&[]));
    g.add_input("x", real(&[n]));
    let limit = g.add_input("limit", real(&[]));
    g.outputs = vec![g.add("less", op("less"), &[t, limit]).unwrap()];
    g
}

/// t + d, and x after so many sums with itself and halves of it: each a kernel.
pub fn body(n: i64, kernels: usize) -> Graph {
    let mut g = Graph::new("body");
    let (t, mut x) = (g.add_input("t", real(&[])), g.add_input("x", real(&[n])));
    let d = g.add_input("d", real(&[]));
    let next = g.add("next", op("add"), &[t, d]).unwrap();
    for k in 1..kernels {
        x = g.add(&format!("x{k}"), op(if k % 2 == 1 { "neg" } else { "abs" }), &[x]).unwrap();
    }
    g.outputs = vec![next, x];
    g
}

fn branch(name: &str, n: i64, layers: usize) -> Graph {
    let mut g = Graph::new(name);
    let mut x = g.add_input("x", real(&[n]));
    for k in 0..layers {
        x = g.add(&format!("y{k}"), op(name), &[x]).unwrap();
    }
    g.outputs = vec![x];
    g
}

/// While t < limit: t grows by d, x changes its sign; then x or e^-x by a conditional.
pub fn gated(condition: bool) -> (Graph, Vec<Tensor>) {
    let n = 4096;
    let mut g = Graph::new("control flow");
    let [t, d, limit] = ["t", "d", "limit"].map(|name| g.add_input(name, real(&[])));
    let x = g.add_input("x", real(&[n]));
    let c = g.add_input("c", Fact::of(TensorType::scalar(DType::Bool)));
    let op = looped(false, true, 2, &[], 1, &[("last", 1, 0, false), ("last", 0, 0, false)]);
    let regions = vec![body(n, 2), below(n)];
    let z = g.add_control("loop", op, &[t, x, d, limit], regions, &["z".into(), "u".into()]).unwrap();
    let choice = Op::new("if", Attrs::new().with("then_captures", 1i64)).unwrap();
    let both = vec![branch("exp", n, 1), branch("neg", n, 1)];
    let y = g.add_control("if", choice, &[c, z[0], z[0]], both, &["y".into()]).unwrap();
    g.outputs = vec![y[0], z[1]];
    let x = Rng::new(3).tensor_in(DType::F32, &[n as usize], 0.1, 0.5, 1);
    (g, vec![scalar(0.0), scalar(1.0), scalar(4.5), x, truth(condition)])
}

/// While t < limit with so many kernels in the body.
pub fn endless(kernels: usize, iterations: f32) -> (Graph, Vec<Tensor>) {
    let n = 1024;
    let mut g = Graph::new("while");
    let [t, d, limit] = ["t", "d", "limit"].map(|name| g.add_input(name, real(&[])));
    let x = g.add_input("x", real(&[n]));
    let op = looped(false, true, 2, &[], 1, &[("last", 1, 0, false), ("last", 0, 0, false)]);
    let regions = vec![body(n, kernels), below(n)];
    g.outputs = g.add_control("loop", op, &[t, x, d, limit], regions, &["z".into(), "u".into()]).unwrap();
    let x = Rng::new(3).tensor_in(DType::F32, &[n as usize], 0.1, 0.5, 1);
    (g, vec![scalar(0.0), scalar(1.0), scalar(iterations), x])
}

/// While t < limit and t is not `stop`: t grows by one, in any type.
pub fn stopping(dtype: DType, limit: f64, stop: f64) -> (Graph, Vec<Tensor>) {
    let fact = || Fact::of(TensorType::new(dtype, [1i64]));
    let mut b = Graph::new("body");
    let (t, one) = (b.add_input("t", fact()), b.add_input("one", fact()));
    b.outputs = vec![b.add("next", op("add"), &[t, one]).unwrap()];
    let mut c = Graph::new("condition");
    let [t, limit_in, stop_in] = ["t", "limit", "stop"].map(|name| c.add_input(name, fact()));
    let less = c.add("less", op("less"), &[t, limit_in]).unwrap();
    let equal = c.add("equal", op("equal"), &[stop_in, t]).unwrap();
    let other = c.add("other", op("not"), &[equal]).unwrap();
    c.outputs = vec![c.add("both", op("and"), &[less, other]).unwrap()];
    let mut g = Graph::new("stopping");
    let given = ["t", "one", "limit", "stop"].map(|name| g.add_input(name, fact()));
    let op = looped(false, true, 1, &[], 1, &[("last", 0, 0, false)]);
    g.outputs = g.add_control("loop", op, &given, vec![b, c], &["end".into()]).unwrap();
    let number = |v: f64| match dtype.is_float() {
        true => Tensor::from_elems(dtype, &[1], &Elems::F(vec![v])).unwrap(),
        false => Tensor::from_elems(dtype, &[1], &Elems::I(vec![v as i64])).unwrap(),
    };
    (g, vec![number(-5.0), number(1.0), number(limit), number(stop)])
}

/// While t < limit: t grows by d, and a state goes through one step of an LSTM of so many units.
pub fn recurring(units: usize, limit: f32) -> (Graph, Vec<Tensor>) {
    let (n, size) = (units as i64, 8);
    let shapes = [vec![1, 1, n], vec![1, 1, size], vec![1, 4 * n, size], vec![1, 4 * n, n]];
    let mut b = Graph::new("body");
    let (t, h) = (b.add_input("t", real(&[])), b.add_input("h", real(&shapes[0])));
    let d = b.add_input("d", real(&[]));
    let [x, w, r] = [("x", 1), ("w", 2), ("r", 3)].map(|(name, k)| Some(b.add_input(name, real(&shapes[k]))));
    let next = b.add("next", op("add"), &[t, d]).unwrap();
    let out = b.add_node("cell", op("lstm"), &[x, w, r, None, None, Some(h)]).unwrap();
    b.outputs = vec![next, out[1]];
    let mut c = Graph::new("below");
    let t = c.add_input("t", real(&[]));
    c.add_input("h", real(&shapes[0]));
    let end = c.add_input("limit", real(&[]));
    c.outputs = vec![c.add("less", op("less"), &[t, end]).unwrap()];
    let mut g = Graph::new("recurring");
    let numbers = ["t", "d", "limit"].map(|name| g.add_input(name, real(&[])));
    let names = ["h", "x", "w", "r"];
    let given: Vec<ValueId> = names.iter().zip(&shapes).map(|(name, s)| g.add_input(name, real(s))).collect();
    let inputs = [numbers[0], given[0], numbers[1], given[1], given[2], given[3], numbers[2]];
    let of_loop = looped(false, true, 2, &[], 4, &[("last", 1, 0, false)]);
    g.outputs = g.add_control("loop", of_loop, &inputs, vec![b, c], &["end".into()]).unwrap();
    let mut rng = Rng::new(9);
    let scale = 1.7 / (units as f64).sqrt();
    let draw = |(s, a): (&Vec<i64>, f64)| {
        let dims: Vec<usize> = s.iter().map(|&d| d as usize).collect();
        rng.tensor_in(DType::F32, &dims, -a, a, 0)
    };
    let mut all = vec![scalar(0.0), scalar(1.0), scalar(limit)];
    all.extend(shapes.iter().zip([0.8, 1.0, scale, scale]).map(draw));
    (g, all)
}

/// At most so many iterations while t < limit. Each adds d to t and changes the sign of x. Outputs: all x of
/// iterations, the one before each, and the last t.
pub fn ending(most: i64, limit: f32) -> (Graph, Vec<Tensor>) {
    let n = 48;
    let mut b = body(n, 2);
    let x = b.inputs[1];
    b.outputs.extend([b.outputs[1], x]);
    let mut g = Graph::new("ending");
    let count = g.add_input("count", Fact::of(TensorType::scalar(DType::I64)));
    let [t, d, end] = ["t", "d", "limit"].map(|name| g.add_input(name, real(&[])));
    let x = g.add_input("x", real(&[n]));
    let outs = [("concat", 0, 0, false), ("last", 0, 0, false), ("concat", 1, 0, false)];
    let op = looped(true, true, 2, &[], 1, &outs);
    let names = ["all", "t", "before"].map(String::from);
    g.outputs = g.add_control("loop", op, &[count, t, x, d, end], vec![b, below(n)], &names).unwrap();
    let x = Rng::new(5).tensor_in(DType::F32, &[n as usize], 0.1, 0.5, 1);
    let most = Tensor::i64(&[], &[most]).unwrap();
    (g, vec![most, scalar(0.0), scalar(1.0), scalar(limit), x])
}

/// The loop of [`ending`] if c holds; else x as one row, t, and x as two rows.
pub fn ending_or_not(most: i64, limit: f32, c: bool) -> (Graph, Vec<Tensor>) {
    let (looping, mut inputs) = ending(most, limit);
    let mut other = Graph::new("other");
    let copied = |g: &mut Graph, v: ValueId| {
        let (name, fact) = (looping.value(v).name.clone(), looping.value(v).fact.clone());
        g.add_input(&name, fact)
    };
    let own: Vec<ValueId> = looping.inputs.iter().map(|&v| copied(&mut other, v)).collect();
    let row = other.add_constant("row", Tensor::i64(&[2], &[1, -1]).unwrap());
    let one = other.add("one", op("reshape"), &[own[4], row]).unwrap();
    let both = Op::new("concat", Attrs::new().with("axis", 0i64)).unwrap();
    let two = other.add("two", both, &[one, one]).unwrap();
    other.outputs = vec![one, own[1], two];
    let mut g = Graph::new("ending or not");
    let given: Vec<ValueId> = looping.inputs.iter().map(|&v| copied(&mut g, v)).collect();
    let condition = g.add_input("c", Fact::of(TensorType::scalar(DType::Bool)));
    let choice = Op::new("if", Attrs::new().with("then_captures", given.len() as i64)).unwrap();
    let all: Vec<ValueId> = [condition].into_iter().chain(given.iter().chain(&given).copied()).collect();
    let names = ["first", "second", "third"].map(String::from);
    g.outputs = g.add_control("if", choice, &all, vec![looping.clone(), other], &names).unwrap();
    inputs.push(truth(c));
    (g, inputs)
}

/// A loop of a constant number of iterations, with so many kernels in each.
pub fn counted(iterations: i64, kernels: usize) -> (Graph, Vec<Tensor>) {
    let mut g = Graph::new("counted");
    let count = g.add_constant("n", Tensor::i64(&[], &[iterations]).unwrap());
    let (t, x) = (g.add_input("t", real(&[])), g.add_input("x", real(&[1024])));
    let d = g.add_input("d", real(&[]));
    let op = looped(true, false, 2, &[], 1, &[("last", 0, 0, false), ("last", 1, 0, false)]);
    let names = ["end".to_owned(), "y".to_owned()];
    g.outputs = g.add_control("loop", op, &[count, t, x, d], vec![body(1024, kernels)], &names).unwrap();
    let x = Rng::new(3).tensor_in(DType::F32, &[1024], 0.1, 0.5, 1);
    (g, vec![scalar(0.0), x, scalar(1.0)])
}

/// So many small kernels, each waiting for the one before.
pub fn chain(kernels: usize) -> (Graph, Vec<Tensor>) {
    let mut g = Graph::new("chain");
    let mut x = g.add_input("x", real(&[1024]));
    for k in 0..kernels {
        x = g.add(&format!("x{k}"), op(if k % 2 == 1 { "neg" } else { "abs" }), &[x]).unwrap();
    }
    g.outputs = vec![x];
    (g, vec![Rng::new(3).tensor_in(DType::F32, &[1024], 0.1, 0.5, 1)])
}

/// The layers of a branch alone.
pub fn straight(name: &str, n: i64, layers: usize) -> (Graph, Vec<Tensor>) {
    let g = branch(name, n, layers);
    (g, vec![Rng::new(3).tensor_in(DType::F32, &[n as usize], 0.1, 0.5, 1)])
}

/// A heavy branch, of so many large layers, or a light one of none but a sum.
pub fn heavy(layers: usize, n: i64, condition: bool) -> (Graph, Vec<Tensor>) {
    let mut g = Graph::new("heavy or light");
    let c = g.add_input("c", Fact::of(TensorType::scalar(DType::Bool)));
    let x = g.add_input("x", real(&[n]));
    let choice = Op::new("if", Attrs::new().with("then_captures", 1i64)).unwrap();
    let both = vec![branch("tanh", n, layers), branch("neg", n, 1)];
    g.outputs = g.add_control("if", choice, &[c, x, x], both, &["y".into()]).unwrap();
    let x = Rng::new(3).tensor_in(DType::F32, &[n as usize], 0.1, 0.5, 1);
    (g, vec![truth(condition), x])
}

/// Elements that a counted loop may take.
const COLUMNS: i64 = 400;

/// A counted loop that swaps two values, and stacks one of them and the elements of a matrix, forward and back.
pub fn stacking(iterations: i64, length: Option<i64>, nested: bool) -> (Graph, Vec<Tensor>) {
    let mut b = Graph::new("body");
    let [p, q, e] = ["p", "q", "e"].map(|name| b.add_input(name, real(&[3])));
    let s = b.add("s", op("add"), &[q, e]).unwrap();
    b.outputs = vec![q, s, p, e];
    let outs = [
        ("last", 0, 0, false),
        ("last", 1, 0, false),
        ("concat", 0, 0, length.is_some()),
        ("reverse", 1, 1, false),
    ];
    let build = |g: &mut Graph, count: ValueId, given: [ValueId; 3], length: Option<ValueId>| {
        let mut inputs = vec![count];
        inputs.extend(given);
        inputs.extend(length);
        let names: Vec<String> = (0..4).map(|i| format!("out{i}")).collect();
        let op = looped(true, false, 2, &[(1, true)], 0, &outs);
        g.add_control("loop", op, &inputs, vec![b.clone()], &names).unwrap()
    };
    let constant = |g: &mut Graph, name: &str, n: i64| g.add_constant(name, Tensor::i64(&[], &[n]).unwrap());
    let mut g = Graph::new("stacking");
    let [p, q] = ["p", "q"].map(|name| g.add_input(name, real(&[3])));
    let m = g.add_input("m", real(&[3, COLUMNS]));
    if nested {
        let mut outer = Graph::new("outer");
        let [p, q] = ["p", "q"].map(|name| outer.add_input(name, real(&[3])));
        let m = outer.add_input("m", real(&[3, COLUMNS]));
        let (count, length) =
            (constant(&mut outer, "n", iterations), length.map(|n| constant(&mut outer, "l", n)));
        outer.outputs = build(&mut outer, count, [p, q, m], length);
        let count = constant(&mut g, "n", 30);
        let op = looped(
            true,
            false,
            2,
            &[],
            1,
            &[("last", 1, 0, false), ("concat", 0, 0, false), ("concat", 1, 1, false)],
        );
        let names: Vec<String> = (0..3).map(|i| format!("all{i}")).collect();
        g.outputs = g.add_control("outer", op, &[count, p, q, m], vec![outer], &names).unwrap();
    } else {
        let (count, length) = (constant(&mut g, "n", iterations), length.map(|n| constant(&mut g, "l", n)));
        g.outputs = build(&mut g, count, [p, q, m], length);
    }
    let mut rng = Rng::new(4);
    let mut draw = |dims: &[usize]| rng.tensor_in(DType::F32, dims, -0.01, 0.01, 1);
    (g, vec![draw(&[3]), draw(&[3]), draw(&[3, COLUMNS as usize])])
}
