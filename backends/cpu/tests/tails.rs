//! Pointwise layers that kernels compute on parts of their results, against the oracle.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests stop at the first surprise")]

mod common;

use common::{assert_close, run};
use kiln_ir::problem::Rng;
use kiln_ir::{Attrs, DType, Fact, Graph, Op, Tensor};
use kiln_ops::layout::Layout;

/// A kernel of the first input and of weights, with what follows it.
struct Case {
    op: Op,
    x: Tensor,
    w: Tensor,
    /// Dimensions of the result, and the one that has a number for each channel.
    shape: Vec<usize>,
    channel: usize,
}

fn op(name: &str, attrs: Attrs) -> Op {
    Op::new(name, attrs).unwrap()
}

/// relu(result · a number a channel + another tensor), or the same of a cast sum, rounded to i8.
fn graph(case: &Case, rng: &mut Rng, narrow: bool) -> (Graph, Vec<Tensor>) {
    let mut g = Graph::new("tail");
    let line: Vec<usize> =
        (0..case.shape.len()).map(|d| if d == case.channel { case.shape[d] } else { 1 }).collect();
    let scale = rng.tensor(DType::F32, &line);
    let other = rng.tensor(DType::F32, &case.shape);
    let x = g.add_input("x", Fact::of(case.x.ty()));
    let w = g.add_constant("w", case.w.clone());
    let s = g.add_constant("s", scale);
    let o = g.add_input("o", Fact::of(other.ty()));
    let mut y = g.add_node("kernel", case.op.clone(), &[Some(x), Some(w)]).unwrap()[0];
    let mut add = |name: &str, attrs: Attrs, ins: &[kiln_ir::ValueId]| {
        let ins: Vec<_> = ins.iter().copied().map(Some).collect();
        g.add_node(name, op(name, attrs), &ins).unwrap()[0]
    };
    if narrow {
        y = add("cast", Attrs::new().with("to", DType::F32), &[y]);
    }
    y = add("mul", Attrs::new(), &[y, s]);
    y = add("add", Attrs::new(), &[y, o]);
    y = add("relu", Attrs::new(), &[y]);
    if narrow {
        y = add("tanh", Attrs::new(), &[y]);
        let wide = add("exp", Attrs::new(), &[y]);
        y = add("cast", Attrs::new().with("to", DType::I8), &[wide]);
    }
    g.outputs = vec![y];
    (g, vec![case.x.clone(), other])
}

fn conv(rng: &mut Rng, layout: Layout, (c, m, groups): (usize, usize, usize), types: [DType; 2]) -> Case {
    let attrs = Attrs::new().with("layout", layout.name()).with("groups", groups as i64);
    let attrs = attrs.with("pads", vec![1i64; 4]).with("strides", vec![2i64, 1]);
    let x = rng.tensor(types[0], &layout.from_linear(&[2, c, 9, 21]));
    let w = rng.tensor(types[1], &layout.from_linear(&[m, c / groups, 3, 3]));
    let shape = layout.from_linear(&[2, m, 5, 21]);
    let channel = layout.channel_axis(4);
    Case { op: op("conv", attrs), x, w, shape, channel }
}

#[test]
fn layers_after_products_and_convolutions() {
    let mut rng = Rng::new(31);
    let mut cases = Vec::new();
    for layout in [Layout::Linear, Layout::ChannelsLast] {
        for sizes in [(3, 20, 1), (24, 70, 1), (12, 24, 4), (40, 40, 40)] {
            cases.push(conv(&mut rng, layout, sizes, [DType::F32; 2]));
        }
    }
    for (x, w, shape) in [
        (vec![1, 50], vec![50, 300], vec![1, 300]),
        (vec![2, 37, 600], vec![600, 40], vec![2, 37, 40]),
        (vec![3, 7, 30], vec![3, 30, 20], vec![3, 7, 20]),
    ] {
        let channel = shape.len() - 1;
        let (x, w) = (rng.tensor(DType::F32, &x), rng.tensor(DType::F32, &w));
        cases.push(Case { op: op("matmul", Attrs::new()), x, w, shape, channel });
    }
    for case in &cases {
        let (g, inputs) = graph(case, &mut rng, false);
        let wanted = run(&g, "oracle", &inputs, false).unwrap();
        for whole in [true, false] {
            let what = format!("{:?} of {:?}, one step: {whole}", case.op, case.x.shape());
            assert_close(&what, &run(&g, "fast", &inputs, whole).unwrap(), &wanted, 2e-6);
        }
    }
}

#[test]
fn layers_after_sums_of_integers() {
    let mut rng = Rng::new(32);
    let mut cases = Vec::new();
    for layout in [Layout::Linear, Layout::ChannelsLast] {
        for sizes in [(3, 20, 1), (24, 70, 1), (12, 24, 4)] {
            cases.push(conv(&mut rng, layout, sizes, [DType::U8, DType::I8]));
        }
    }
    let (x, w) = (rng.tensor(DType::U8, &[37, 300]), rng.tensor(DType::I8, &[300, 50]));
    cases.push(Case { op: op("matmul", Attrs::new()), x, w, shape: vec![37, 50], channel: 1 });
    for mut case in cases {
        let (g, inputs) = graph(&case, &mut rng, true);
        let what = |kind: &str| format!("{:?} of {:?}, {kind} weights", case.op, case.x.shape());
        assert_eq!(
            run(&g, "fast", &inputs, true).unwrap(),
            run(&g, "fast", &inputs, false).unwrap(),
            "{}",
            what("any")
        );
        // Sums of two products by weights of seven bits fit words, and sums of all are exact.
        let small = |b: &u8| (i16::from(*b as i8) / 2) as i8 as u8;
        let bytes: Vec<u8> = case.w.bytes().iter().map(small).collect();
        let most = vec![255u8; case.x.bytes().len()];
        let w = Tensor::from_bytes(DType::I8, case.w.shape(), bytes).unwrap();
        let what = what("small");
        case.w = w;
        case.x = Tensor::from_bytes(DType::U8, case.x.shape(), most).unwrap();
        let mut g = Graph::new("sums");
        let x = g.add_input("x", Fact::of(case.x.ty()));
        let w = g.add_constant("w", case.w.clone());
        g.outputs = g.add_node("kernel", case.op.clone(), &[Some(x), Some(w)]).unwrap();
        let inputs = [case.x.clone()];
        assert_eq!(
            run(&g, "fast", &inputs, false).unwrap(),
            run(&g, "oracle", &inputs, false).unwrap(),
            "{what}"
        );
    }
}

/// A result that others read too, or that is an output, is made before the layers after it.
#[test]
fn results_that_others_read_are_kept() {
    let mut rng = Rng::new(33);
    for marked in [false, true] {
        let (x, w) = (rng.tensor(DType::F32, &[9, 30]), rng.tensor(DType::F32, &[30, 20]));
        let mut g = Graph::new("shared");
        let a = g.add_input("x", Fact::of(x.ty()));
        let b = g.add_constant("w", w);
        let product = g.add_node("product", op("matmul", Attrs::new()), &[Some(a), Some(b)]).unwrap()[0];
        let relu = g.add_node("relu", op("relu", Attrs::new()), &[Some(product)]).unwrap()[0];
        let soft = Attrs::new().with("axis", 1i64);
        let other = g.add_node("softmax", op("softmax", soft), &[Some(product)]).unwrap()[0];
        g.outputs = if marked { vec![relu, other, product] } else { vec![relu, other] };
        let wanted = run(&g, "oracle", std::slice::from_ref(&x), false).unwrap();
        for whole in [true, false] {
            let found = run(&g, "fast", std::slice::from_ref(&x), whole).unwrap();
            assert_close("shared", &found, &wanted, 2e-6);
        }
    }
}
