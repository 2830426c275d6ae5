//! Loops and conditionals on the oracle.

use kiln_ir::{Attr, Attrs, DType, Dim, Fact, Graph, Op, Tensor, TensorType};

fn op(name: &str, attrs: Attrs) -> Op {
    Op::new(name, attrs).unwrap()
}

fn scalar(dtype: DType) -> Fact {
    Fact::of(TensorType::scalar(dtype))
}

/// s ← s·2 + x[i], giving out the last s and every s before it.
fn body() -> Graph {
    let mut g = Graph::new("body");
    let s = g.add_input("s", scalar(DType::F32));
    let x = g.add_input("x", scalar(DType::F32));
    let two = g.add_constant("two", Tensor::f32(&[], &[2.0]).unwrap());
    let d = g.add("double", op("mul", Attrs::new()), &[s, two]).unwrap();
    let n = g.add("next", op("add", Attrs::new()), &[d, x]).unwrap();
    g.outputs = vec![n, s];
    g
}

fn attrs(kind: &str, reverse: i64, length: i64) -> Attrs {
    Attrs::new()
        .with("count", true)
        .with("carried", 1i64)
        .with("iter_axes", vec![0i64])
        .with("iter_reverse", vec![reverse])
        .with("out_kinds", vec!["last".to_owned(), kind.to_owned()])
        .with("out_index", vec![0i64, 0])
        .with("out_axes", vec![0i64, 0])
        .with("out_length", vec![0i64, length])
}

fn looping(attrs: Attrs, lengths: usize, len: Dim) -> Graph {
    let mut g = Graph::new("g");
    let n = g.add_input("n", scalar(DType::I64));
    let s = g.add_input("s", scalar(DType::F32));
    let x = g.add_input("x", Fact::of(TensorType::new(DType::F32, [len])));
    let mut ins = vec![n, s, x];
    ins.extend((0..lengths).map(|i| g.add_input(&format!("len{i}"), scalar(DType::I32))));
    let names = ["last".to_owned(), "all".to_owned()];
    g.outputs = g.add_control("loop", op("loop", attrs), &ins, vec![body()], &names).unwrap();
    g
}

fn run(g: &Graph, n: i64, x: &[f32], lengths: &[i32]) -> Result<Vec<Tensor>, kiln_ir::IrError> {
    let mut ins = vec![
        Tensor::i64(&[], &[n]).unwrap(),
        Tensor::f32(&[], &[1.0]).unwrap(),
        Tensor::f32(&[x.len()], x).unwrap(),
    ];
    ins.extend(
        lengths.iter().map(|l| Tensor::from_bytes(DType::I32, &[], l.to_le_bytes().to_vec()).unwrap()),
    );
    g.eval(&ins)
}

#[test]
fn trips_carry_iterate_and_stack() {
    let g = looping(attrs("concat", 0, 0), 0, 3.into());
    g.verify().unwrap();
    let out = run(&g, 3, &[10.0, 20.0, 30.0], &[]).unwrap();
    // 1 → 12 → 44 → 118
    assert_eq!(out[0].to_f64(), [118.0]);
    assert_eq!(out[1].to_f64(), [1.0, 12.0, 44.0]);
    let out = run(&g, 2, &[10.0, 20.0, 30.0], &[]).unwrap();
    assert_eq!(out[1].to_f64(), [1.0, 12.0]);
    for none in [0, -4] {
        let out = run(&g, none, &[1.0], &[]).unwrap();
        assert_eq!((out[0].to_f64(), out[1].shape()), (vec![1.0], &[0][..]));
    }
    let e = run(&g, 4, &[1.0, 2.0, 3.0], &[]).unwrap_err().to_string();
    assert!(e.contains("element 3 of axis 0, which has 3"), "{e}");
}

#[test]
fn reversed_elements_count_down_from_the_trip_count() {
    let g = looping(attrs("reverse", 1, 1), 1, Dim::host("n"));
    g.verify().unwrap();
    let out = run(&g, 2, &[10.0, 20.0, 30.0], &[4]).unwrap();
    // Elements 1 then 0: 1 → 22 → 54.
    assert_eq!(out[0].to_f64(), [54.0]);
    assert_eq!(out[1].to_f64(), [22.0, 1.0, 0.0, 0.0]);
    let e = run(&g, 2, &[1.0, 2.0], &[1]).unwrap_err().to_string();
    assert!(e.contains("length 1") && e.contains("2 iterations"), "{e}");
}

/// Doubles a vector's length in every iteration while it is shorter than the limit.
#[test]
fn carried_dimensions_may_grow() {
    let mut body = Graph::new("body");
    let x = body.add_input("x", Fact::of(TensorType::new(DType::F32, [1])));
    let y = body.add("twice", op("concat", Attrs::new().with("axis", 0i64)), &[x, x]).unwrap();
    body.outputs = vec![y];
    let mut ask = Graph::new("condition");
    let x = ask.add_input("x", Fact::of(TensorType::new(DType::F32, [1])));
    let limit = ask.add_input("limit", Fact::of(TensorType::new(DType::I64, [1])));
    let s = ask.add("shape", op("shape", Attrs::new()), &[x]).unwrap();
    let less = ask.add("less", op("less", Attrs::new()), &[s, limit]).unwrap();
    ask.outputs = vec![less];
    let mut g = Graph::new("g");
    let x = g.add_input("x", Fact::of(TensorType::new(DType::F32, [1])));
    let limit = g.add_input("limit", Fact::of(TensorType::new(DType::I64, [1])));
    let attrs = Attrs::new()
        .with("while", true)
        .with("carried", 1i64)
        .with("out_kinds", vec!["last".to_owned()])
        .with("out_index", vec![0i64])
        .with("out_axes", vec![0i64])
        .with("out_length", vec![0i64]);
    g.outputs = g.add_control("grow", op("loop", attrs), &[x, limit], vec![body, ask], &[]).unwrap();
    g.refresh().unwrap();
    g.verify().unwrap();
    assert_eq!(g.ty(g.outputs[0]).kind(), kiln_ir::DimKind::Device);
    let out = g.eval(&[Tensor::f32(&[1], &[7.0]).unwrap(), Tensor::i64(&[1], &[5]).unwrap()]).unwrap();
    assert_eq!((out[0].shape(), out[0].to_f64()[7]), (&[8][..], 7.0));
}

fn branches(a: Vec<i64>, b: Vec<i64>) -> Result<Graph, kiln_ir::IrError> {
    let region = |dims: &[i64], name: &str| {
        let mut r = Graph::new(name);
        let x = r.add_input("x", Fact::of(TensorType::new(DType::F32, dims.to_vec())));
        let y = r.add("neg", op("neg", Attrs::new()), &[x]).unwrap();
        r.outputs = vec![y];
        r
    };
    let regions = vec![region(&a, "then"), region(&b, "else")];
    let mut g = Graph::new("g");
    let c = g.add_input("c", scalar(DType::Bool));
    let x = g.add_input("x", Fact::of(TensorType::new(DType::F32, a)));
    let y = g.add_input("y", Fact::of(TensorType::new(DType::F32, b)));
    let op = op("if", Attrs::new().with("then_captures", Attr::Int(1)));
    g.outputs = g.add_control("pick", op, &[c, x, y], regions, &["z".into()])?;
    Ok(g)
}

#[test]
fn one_branch_runs_and_shapes_may_differ() {
    let g = branches(vec![2], vec![3]).unwrap();
    g.verify().unwrap();
    assert_eq!(g.ty(g.outputs[0]).dims[0].upper_bound(), Some(3.into()));
    let (x, y) = (Tensor::f32(&[2], &[1.0, 2.0]).unwrap(), Tensor::f32(&[3], &[3.0; 3]).unwrap());
    for (c, want) in [(1u8, vec![-1.0, -2.0]), (0, vec![-3.0; 3])] {
        let c = Tensor::from_bytes(DType::Bool, &[], vec![c]).unwrap();
        assert_eq!(g.eval(&[c, x.clone(), y.clone()]).unwrap()[0].to_f64(), want);
    }
    let e = branches(vec![2], vec![2, 1]).unwrap_err().to_string();
    assert!(e.contains("same rank"), "{e}");
}

#[test]
fn regions_of_the_wrong_form_are_refused() {
    let mut g = looping(attrs("concat", 0, 0), 0, 3.into());
    let id = g.order()[0];
    g.get_mut(id).unwrap().regions[0].outputs.pop();
    let e = g.verify().unwrap_err().to_string();
    assert!(e.contains("2 inputs and 1 outputs, wants 2 and 2"), "{e}");
    g.get_mut(id).unwrap().regions.clear();
    assert!(g.verify().unwrap_err().to_string().contains("0 regions, wants 1"));
}
