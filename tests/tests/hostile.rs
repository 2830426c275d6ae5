//! Models that mean harm, from file to run: a typed error or a right result, in little memory and time.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

use kiln_backend::Backend;
use kiln_backend_cpu::Cpu;
use kiln_builder::{BuildConfig, Builder};
use kiln_ir::{Attrs, DType, Dim, Tensor, TensorType};
use kiln_network::{Network, TensorId};
use kiln_onnx::proto::*;
use kiln_onnx::{ImportOptions, Model, ModelFile};
use kiln_runtime::{Engine, Profile};
use kiln_tests::backends::{cpu, reference};
use kiln_tests::suite::{Setting, run_graph};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The memory limit of this process: all its tests have the same.
const LIMIT: u64 = 256 << 20;

/// Builds, loads and runs on the CPU backend; the error as text.
fn whole_chain(network: &Network, inputs: &[(&str, Tensor)]) -> Result<Vec<Tensor>, String> {
    chain_on(&cpu(), network, inputs)
}

/// Builds, loads and runs with inputs of ones; the error as text.
fn chain_on(
    backend: &Arc<dyn Backend>,
    network: &Network,
    inputs: &[(&str, Tensor)],
) -> Result<Vec<Tensor>, String> {
    let start = Instant::now();
    kiln_ir::budget::set_limit(LIMIT);
    let mut b = Builder::new(backend.clone(), backend.targets().unwrap().remove(0));
    b.config = BuildConfig { max_tactics: 1, ..BuildConfig::default() };
    let outcome = b.build(network).map_err(|e| e.to_string()).and_then(|built| {
        let e =
            Engine::from_program(built.program, Vec::new(), backend.clone()).map_err(|e| e.to_string())?;
        let mut context = e.create_context().map_err(|e| e.to_string())?;
        let outs = context.run(inputs).map_err(|e| e.to_string())?;
        Ok(outs.into_iter().map(|(_, t)| t).collect())
    });
    // Compilers of kernels take their time.
    let most = if backend.name() == "cpu" { 5 } else { 60 };
    assert!(start.elapsed() < Duration::from_secs(most), "took {:?}", start.elapsed());
    bounded();
    outcome
}

/// Checks that this process has never used more than half a gigabyte.
fn bounded() {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return };
    let Some(line) = status.lines().find(|l| l.starts_with("VmHWM")) else { return };
    let kb: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kb < 512 << 10, "{kb} kB were used");
}

fn input(n: &mut Network, name: &str, dims: &[i64]) -> TensorId {
    n.add_input(name, TensorType::new(DType::F32, dims.iter().map(|&d| Dim::new(d)))).unwrap()
}

fn add(
    n: &mut Network,
    op: &str,
    attrs: Attrs,
    ins: &[TensorId],
) -> Result<TensorId, kiln_network::NetworkError> {
    let ins: Vec<_> = ins.iter().copied().map(Some).collect();
    Ok(n.add_layer("", op, attrs, &ins)?[0])
}

fn ints(n: &mut Network, v: &[i64]) -> TensorId {
    n.add_weights(None, Tensor::i64(&[v.len()], v).unwrap()).unwrap()
}

/// A network of one layer over a constant of one element and a shape.
fn blow_up(op: &str, shape: &[i64]) -> Result<Vec<Tensor>, String> {
    let mut n = Network::new("blow up");
    let one = n.add_weights(Some("one"), Tensor::f32(&[1], &[1.0]).unwrap()).unwrap();
    let shape = ints(&mut n, shape);
    let big = add(&mut n, op, Attrs::new(), &[one, shape]).map_err(|e| e.to_string())?;
    let y = add(&mut n, "neg", Attrs::new(), &[big]).map_err(|e| e.to_string())?;
    n.mark_output(y, "y").unwrap();
    whole_chain(&n, &[])
}

#[test]
fn huge_and_overflowing_shapes_are_refused() {
    for shape in
        [&[1i64 << 46][..], &[1 << 40, 1 << 40], &[i64::MAX, i64::MAX, 2], &[1 << 21, 1 << 21, 1 << 21, 2]]
    {
        let e = blow_up("expand", shape).unwrap_err();
        assert!(!e.is_empty(), "{shape:?}");
    }
    assert!(blow_up("tile", &[i64::MAX]).is_err());
    assert!(blow_up("expand", &[-3]).is_err());
}

#[test]
fn huge_inputs_are_refused() {
    for dims in [&[1i64 << 40, 1 << 30][..], &[i64::MAX], &[1 << 62, 4]] {
        let mut n = Network::new("huge");
        let x = input(&mut n, "x", dims);
        let outcome = add(&mut n, "exp", Attrs::new(), &[x]).map_err(|e| e.to_string()).and_then(|y| {
            n.mark_output(y, "y").map_err(|e| e.to_string())?;
            whole_chain(&n, &[("x", Tensor::f32(&[1], &[1.0]).unwrap())])
        });
        assert!(outcome.is_err(), "{dims:?}");
    }
}

#[test]
fn huge_profiles_are_refused_or_built_without_their_memory() {
    let mut n = Network::new("dynamic");
    let ty = TensorType { dtype: DType::F32, dims: vec![Dim::host("a"), Dim::host("b")] };
    let x = n.add_input("x", ty).unwrap();
    let y = add(&mut n, "matmul", Attrs::new(), &[x, x])
        .or_else(|_| add(&mut n, "exp", Attrs::new(), &[x]))
        .unwrap();
    n.mark_output(y, "y").unwrap();
    for max in [[1i64 << 40, 1 << 40], [i64::MAX, i64::MAX]] {
        let mut p = Profile::new();
        p.set_shape("x", &[1, 1], &[2, 2], &max).unwrap();
        let mut b = Builder::new(cpu(), Cpu::target());
        b.config = BuildConfig { profiles: vec![p], max_tactics: 1, ..BuildConfig::default() };
        let start = Instant::now();
        let outcome = b.build(&n);
        assert!(start.elapsed() < Duration::from_secs(5));
        if let Ok(built) = outcome {
            kiln_plan::verify(&built.program, &Cpu::target().memory).unwrap();
        }
    }
    bounded();
}

#[test]
fn empty_tensors_run() {
    for op in ["exp", "softmax", "transpose", "identity"] {
        let mut n = Network::new("empty");
        let x = input(&mut n, "x", &[0, 3]);
        let attrs = if op == "transpose" { Attrs::new().with("perm", vec![1i64, 0]) } else { Attrs::new() };
        let y = add(&mut n, op, attrs, &[x]).unwrap();
        n.mark_output(y, "y").unwrap();
        let outs = whole_chain(&n, &[("x", Tensor::f32(&[0, 3], &[]).unwrap())]).unwrap();
        assert!(outs[0].is_empty(), "{op}");
    }
    let mut n = Network::new("empty product");
    let (a, b) = (input(&mut n, "a", &[2, 0]), input(&mut n, "b", &[0, 3]));
    let y = add(&mut n, "matmul", Attrs::new(), &[a, b]).unwrap();
    n.mark_output(y, "y").unwrap();
    let empty = |s: &[usize]| Tensor::f32(s, &[]).unwrap();
    let outs = whole_chain(&n, &[("a", empty(&[2, 0])), ("b", empty(&[0, 3]))]).unwrap();
    assert_eq!(outs[0], Tensor::f32(&[2, 3], &[0.0; 6]).unwrap());
}

#[test]
fn nan_weights_travel_through() {
    let mut n = Network::new("nan");
    let x = input(&mut n, "x", &[1, 2]);
    let nan = n.add_weights(Some("w"), Tensor::f32(&[2, 2], &[f32::NAN, 1.0, 2.0, 3.0]).unwrap()).unwrap();
    let w = add(&mut n, "abs", Attrs::new(), &[nan]).unwrap();
    let y = add(&mut n, "matmul", Attrs::new(), &[x, w]).unwrap();
    let top = add(&mut n, "argmax", Attrs::new().with("axis", 1i64), &[y]).unwrap();
    n.mark_output(y, "y").unwrap();
    n.mark_output(top, "top").unwrap();
    let outs = whole_chain(&n, &[("x", Tensor::f32(&[1, 2], &[1.0, 1.0]).unwrap())]).unwrap();
    let y = outs[0].to_f64();
    assert!(y[0].is_nan() && y[1] == 4.0, "{y:?}");
}

fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    let names = |v: &[&str]| v.iter().map(|s| (*s).to_owned()).collect();
    NodeProto { op_type: op.into(), input: names(inputs), output: names(outputs), ..Default::default() }
}

fn import(nodes: Vec<NodeProto>, initializer: Vec<TensorProto>, output: &str) -> Result<Network, String> {
    let info = |name: &str| ValueInfoProto { name: name.into(), ..Default::default() };
    let graph = GraphProto {
        name: "g".into(),
        node: nodes,
        initializer,
        output: vec![info(output)],
        ..Default::default()
    };
    let opset = OperatorSetIdProto { domain: String::new(), version: 17 };
    let model =
        ModelProto { ir_version: 8, opset_import: vec![opset], graph: Some(graph), ..Default::default() };
    let start = Instant::now();
    let done = Model::check(&ModelFile::from_proto(model))
        .and_then(|m| kiln_onnx::import(&m, &ImportOptions::default()))
        .map(|done| done.network)
        .map_err(|e| e.to_string());
    assert!(start.elapsed() < Duration::from_secs(5), "slow");
    bounded();
    done
}

fn shape(name: &str, v: &[i64]) -> TensorProto {
    let data_type = tensor_proto::DataType::Int64 as i32;
    TensorProto {
        name: name.into(),
        data_type,
        dims: vec![v.len() as i64],
        int64_data: v.to_vec(),
        ..Default::default()
    }
}

#[test]
fn models_that_grow_without_bound_are_refused() {
    let outcome =
        import(vec![node("ConstantOfShape", &["s"], &["y"])], vec![shape("s", &[1 << 40, 1 << 40])], "y")
            .and_then(|n| whole_chain(&n, &[]));
    assert!(outcome.is_err());
    // Each layer doubles its input: 2^60 elements.
    let mut nodes = vec![node("ConstantOfShape", &["s"], &["v0"])];
    for i in 0..60 {
        nodes.push(node("Tile", &[&format!("v{i}"), "two"], &[&format!("v{}", i + 1)]));
    }
    let outcome =
        import(nodes, vec![shape("s", &[1]), shape("two", &[2])], "v60").and_then(|n| whole_chain(&n, &[]));
    assert!(outcome.is_err());
}

/// A result of two layers whose inputs are `a` and `b`, both of ones.
fn of_ones(last: NodeProto, dims: &[i64], config: BuildConfig) -> (kiln_builder::Built, Duration) {
    let ones = |to: &str| NodeProto { attribute: vec![one()], ..node("ConstantOfShape", &["s"], &[to]) };
    let network = import(vec![ones("a"), ones("b"), last], vec![shape("s", dims)], "y").unwrap();
    built(network.lower().unwrap(), config)
}

/// The value 1 of a ConstantOfShape.
fn one() -> AttributeProto {
    let data_type = tensor_proto::DataType::Float as i32;
    let t = TensorProto { dims: vec![1], data_type, float_data: vec![1.0], ..Default::default() };
    let r#type = attribute_proto::AttributeType::Tensor as i32;
    AttributeProto { name: "value".into(), r#type, t: Some(Box::new(t)), ..Default::default() }
}

fn einsum(equation: &str) -> NodeProto {
    let attribute = AttributeProto {
        name: "equation".into(),
        r#type: attribute_proto::AttributeType::String as i32,
        s: equation.as_bytes().to_vec().into(),
        ..Default::default()
    };
    NodeProto { name: "wide".into(), attribute: vec![attribute], ..node("Einsum", &["a", "b"], &["y"]) }
}

/// A few hundred bytes ask for 2^42 and for 2^36 multiplications of constants.
#[test]
fn folding_has_a_work_budget() {
    let product = NodeProto { name: "wide".into(), ..node("MatMul", &["a", "b"], &["y"]) };
    let (_, took) = of_ones(product, &[1 << 14, 1 << 14], BuildConfig::default());
    assert!(took < Duration::from_secs(5), "{took:?}");
    // The constants are small enough to be made, and so is the result.
    let (all, took) = of_ones(einsum("a,b->"), &[1 << 18], BuildConfig::default());
    assert!(took < Duration::from_secs(5), "{took:?}");
    let said = all.notes.iter().filter(|n| n.contains("\"wide\" (einsum)") && n.contains("--fold-budget"));
    assert_eq!(said.count(), 1, "{:?}", all.notes);
    assert!(all.program.graph.nodes().any(|(_, n)| n.op.name() == "einsum"));
}

/// Folded and unfolded layers compute the same values.
#[test]
fn the_work_budget_is_the_callers() {
    let n = 64;
    for (budget, stays) in [(BuildConfig::default().fold_budget, false), (4 * n * n - 1, true), (0, true)] {
        let config = BuildConfig { fold_budget: budget, ..BuildConfig::default() };
        let (all, _) = of_ones(einsum("a,b->"), &[n as i64], config);
        assert_eq!(all.program.graph.nodes().any(|(_, n)| n.op.name() == "einsum"), stays, "{budget}");
        assert_eq!(all.notes.is_empty(), !stays, "{:?}", all.notes);
        let e = Engine::from_program(all.program, Vec::new(), cpu()).unwrap();
        let outs = e.create_context().unwrap().run(&[]).unwrap();
        assert_eq!(outs[0].1.to_f64(), [(n * n) as f64]);
    }
}

/// The evaluation of a layer can be stopped from another thread.
#[test]
fn folding_is_interruptible() {
    use kiln_ir::stop::{Stop, StopFlag, scope};
    let flag = StopFlag::new();
    let (other, start) = (flag.clone(), Instant::now());
    let setter = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        other.set(Stop::Now);
    });
    let ones = |to: &str| NodeProto { attribute: vec![one()], ..node("ConstantOfShape", &["s"], &[to]) };
    let network =
        import(vec![ones("a"), ones("b"), einsum("a,b->")], vec![shape("s", &[1 << 18])], "y").unwrap();
    let mut b = Builder::new(cpu(), Cpu::target());
    b.config = BuildConfig { fold_budget: u64::MAX, ..BuildConfig::default() };
    let outcome = scope(&flag, || b.build(&network));
    setter.join().unwrap();
    assert!(matches!(outcome, Err(kiln_builder::BuildError::Cancelled)), "{:?}", outcome.err());
    assert!(start.elapsed() < Duration::from_secs(3));
}

/// Imports a node whose inputs have these types, and runs it on every backend: the errors.
fn on_every_backend(
    node: NodeProto,
    types: &[(&str, i32, &[Option<i64>])],
    inputs: &[Tensor],
) -> Vec<String> {
    use tensor_shape_proto::{Dimension, dimension::Value};
    let info = |&(name, elem_type, dims): &(&str, i32, &[Option<i64>])| {
        let dim = |d: &Option<i64>| Dimension { value: d.map(Value::DimValue), ..Default::default() };
        let shape = Some(TensorShapeProto { dim: dims.iter().map(dim).collect() });
        let value = Some(type_proto::Value::TensorType(type_proto::Tensor { elem_type, shape }));
        let r#type = Some(TypeProto { value, ..Default::default() });
        ValueInfoProto { name: name.into(), r#type, ..Default::default() }
    };
    let output = node.output.iter().map(|name| ValueInfoProto { name: name.clone(), ..Default::default() });
    let graph = GraphProto {
        name: "g".into(),
        output: output.collect(),
        node: vec![node],
        input: types.iter().map(info).collect(),
        ..Default::default()
    };
    let opset_import = vec![OperatorSetIdProto { domain: String::new(), version: 17 }];
    let model = ModelProto { ir_version: 8, opset_import, graph: Some(graph), ..Default::default() };
    let model = Model::check(&ModelFile::from_proto(model)).unwrap();
    let graph = kiln_onnx::import(&model, &ImportOptions::default()).unwrap().network.lower().unwrap();
    let backends = kiln_tests::backends::all().unwrap().into_iter();
    let run = |b| run_graph(&Setting::of(b, true).unwrap(), graph.clone(), inputs);
    backends.map(|b| run(b).err().unwrap_or_else(|| "no error".into())).collect()
}

#[test]
fn sizes_of_a_run_that_do_not_fit_are_refused_before_it_on_every_backend() {
    let (float, int) = (tensor_proto::DataType::Float as i32, tensor_proto::DataType::Int64 as i32);
    let x = |n: usize| Tensor::f32(&[n], &vec![1.0; n]).unwrap();
    let split = || node("Split", &["x", "s"], &["a", "b"]);
    let types: &[(&str, i32, &[Option<i64>])] = &[("x", float, &[None]), ("s", int, &[Some(2)])];
    for (sizes, wanted) in
        [([1, 3], "no error"), ([1, 2], "do not add up to axis 0"), ([-1, 5], "is negative")]
    {
        for e in on_every_backend(split(), types, &[x(4), Tensor::i64(&[2], &sizes).unwrap()]) {
            assert!(e.contains(wanted), "{sizes:?}: {e}");
        }
    }
    let body = GraphProto {
        name: "body".into(),
        node: vec![node("Add", &["p", "q"], &["r"])],
        input: ["p", "q"].map(|n| ValueInfoProto { name: n.into(), ..Default::default() }).to_vec(),
        output: vec![ValueInfoProto { name: "r".into(), ..Default::default() }],
        ..Default::default()
    };
    let mut scan = node("Scan", &["a", "b"], &["y"]);
    let int = attribute_proto::AttributeType::Int as i32;
    let graph = attribute_proto::AttributeType::Graph as i32;
    scan.attribute = vec![
        AttributeProto { name: "num_scan_inputs".into(), i: 2, r#type: int, ..Default::default() },
        AttributeProto { name: "body".into(), g: Some(Box::new(body)), r#type: graph, ..Default::default() },
    ];
    let types: &[(&str, i32, &[Option<i64>])] = &[("a", float, &[None]), ("b", float, &[None])];
    for (lengths, wanted) in
        [([4, 4], "no error"), ([4, 5], "differ in length"), ([5, 4], "differ in length")]
    {
        for e in on_every_backend(scan.clone(), types, &lengths.map(x)) {
            assert!(e.contains(wanted), "{lengths:?}: {e}");
        }
    }
}

#[test]
fn sizes_that_the_device_finds_and_no_result_can_have_are_errors_of_the_layer() {
    let x = Tensor::f32(&[1, 1, 4], &[1.0; 4]).unwrap();
    let keep = Tensor::from_bytes(DType::Bool, &[4], vec![1, 0, 0, 0]).unwrap();
    for layer in [
        "conv_transpose(%r, %w) {pads=[2, 2]}",
        "conv(%r, %long)",
        "pool(%r) {kernel=[3]}",
        "pad(%r, %cut)",
        "resize(%r, _, _, %less)",
        "expand(%w, %less)",
        "tile(%r, %less)",
        "expand(%one, %more)",
    ] {
        let text = format!(
            "graph \"g\" {{ input %x: f32[1,1,4] input %k: bool[4]
             weight %w: f32[1,1,1] = [1.0] weight %long: f32[1,1,3] = [1.0, 1.0, 1.0]
             weight %cut: i64[6] = [0, 0, -2, 0, 0, -2] weight %three: i64[3] = [0, 0, 3]
             weight %one: f32[1] = [1.0] weight %huge: i64[3] = [1, 1, 1152921504606846976]
             %r = compress(%x, %k) {{axis=2}} %s = shape(%r) %less = sub(%s, %three) %more = mul(%s, %huge)
             %y0 = {layer} output %y0 }}"
        );
        let graph = kiln_ir::Graph::from_text(&text).unwrap();
        for b in kiln_tests::backends::all().unwrap() {
            let name = b.name().to_owned();
            let run = run_graph(&Setting::of(b, true).unwrap(), graph.clone(), &[x.clone(), keep.clone()]);
            let e = run.err().unwrap_or_else(|| "no error".into());
            assert!(e.contains("y0") && !e.contains("internal"), "{name} {layer}: {e}");
            println!("{name}: {e}");
        }
    }
}

#[test]
fn cycles_are_refused() {
    let nodes =
        vec![node("Add", &["a", "b"], &["c"]), node("Neg", &["c"], &["b"]), node("Abs", &["b"], &["a"])];
    let e = import(nodes, vec![], "c").unwrap_err();
    assert!(e.contains("cycle"), "{e}");
}

/// A Loop of so many iterations that passes `v` through `body`, whose result is `v2`, and stacks it if `stacked`.
fn loop_over(
    on: &Arc<dyn Backend>,
    body: Vec<NodeProto>,
    stacked: bool,
    iterations: i64,
) -> Result<Vec<Tensor>, String> {
    let typed = |name: &str, elem_type: tensor_proto::DataType, rank: usize| {
        let dim = tensor_shape_proto::Dimension::default();
        let shape = Some(TensorShapeProto { dim: vec![dim; rank] });
        let tensor = type_proto::Tensor { elem_type: elem_type as i32, shape };
        let value = Some(type_proto::Value::TensorType(tensor));
        let r#type = Some(TypeProto { value, ..Default::default() });
        ValueInfoProto { name: name.into(), r#type, ..Default::default() }
    };
    use tensor_proto::DataType as T;
    let mut nodes = vec![node("Identity", &["c"], &["c2"])];
    nodes.extend(body);
    let mut output = vec![typed("c2", T::Bool, 0), typed("v2", T::Float, 1)];
    if stacked {
        nodes.push(node("Identity", &["v2"], &["s"]));
        output.push(typed("s", T::Float, 1));
    }
    let inner = GraphProto {
        name: "body".into(),
        node: nodes,
        input: vec![typed("i", T::Int64, 0), typed("c", T::Bool, 0), typed("v", T::Float, 1)],
        output,
        ..Default::default()
    };
    let mut looping = node("Loop", &["n", "", "x"], if stacked { &["last", "y"] } else { &["y"] });
    looping.name = "grows".into();
    looping.attribute = vec![AttributeProto {
        name: "body".into(),
        r#type: attribute_proto::AttributeType::Graph as i32,
        g: Some(Box::new(inner)),
        ..Default::default()
    }];
    let count = TensorProto { dims: vec![], ..shape("n", &[iterations]) };
    let x = TensorProto {
        name: "x".into(),
        data_type: T::Float as i32,
        dims: vec![1024],
        float_data: vec![1.0; 1024],
        ..Default::default()
    };
    import(vec![looping], vec![count, x], "y").and_then(|n| chain_on(on, &n, &[]))
}

/// Loops that grow or stack values are bounded by the memory limit, not by a number of their own.
fn check_growing_loops(on: &Arc<dyn Backend>, limit: u64) {
    let axis = AttributeProto {
        name: "axis".into(),
        r#type: attribute_proto::AttributeType::Int as i32,
        ..Default::default()
    };
    let double = NodeProto { attribute: vec![axis], ..node("Concat", &["v", "v"], &["v2"]) };
    assert!(loop_over(on, vec![double.clone()], false, 3).is_ok_and(|y| y[0].len() == 8192));
    let e = loop_over(on, vec![double], false, 40).unwrap_err();
    assert!(e.contains("memory") && e.contains(&limit.to_string()), "{e}");
    let same = node("Neg", &["v"], &["v2"]);
    assert!(loop_over(on, vec![same.clone()], true, 3).is_ok_and(|y| y[0].len() == 3 * 1024));
    let e = loop_over(on, vec![same], true, 1 << 20).unwrap_err();
    // A backend that plans memory for all iterations refuses that before the first one.
    assert!(e.contains("memory") && (e.contains(&limit.to_string()) || e.contains("arena wants")), "{e}");
}

#[test]
fn loops_that_grow_are_refused_at_the_memory_limit() {
    check_growing_loops(&cpu(), LIMIT);
}

/// A scan over 2^40 slices without elements makes nothing, at once.
#[test]
fn loops_that_stack_nothing_end_at_once() {
    let text = "graph \"g\" { weight %n: i64[] = [1099511627776] input %x: f32[1099511627776,0]
        %y: f32[1099511627776,0] = loop(%n, %x)
        {body_captures=0, carried=0, count=true, iter_axes=[0], iter_reverse=[0], out_axes=[0], out_index=[0],
        out_kinds=s[\"concat\"], out_length=[0]} graph \"body\" { input %v: f32[0] %w = neg(%v) output %w } output %y }";
    for backend in kiln_tests::backends::all().unwrap() {
        let name = backend.name().to_owned();
        let mut b = Builder::new(backend.clone(), backend.targets().unwrap().remove(0));
        b.config = BuildConfig { estimates: true, ..BuildConfig::default() };
        let start = Instant::now();
        let program =
            b.build_graph(kiln_ir::Graph::from_text(text).unwrap(), &mut |_, _, _| true).unwrap().program;
        let target = backend.targets().unwrap().remove(0);
        let engine = kiln_runtime::Engine::on_target(program, Vec::new(), backend.as_ref(), target).unwrap();
        let x = Tensor::zeros(DType::F32, &[1 << 40, 0]).unwrap();
        let y = engine.create_context().unwrap().run(&[("x", x)]).unwrap().remove(0).1;
        assert_eq!(y.shape(), [1 << 40, 0], "{name}");
        assert!(start.elapsed() < Duration::from_secs(10), "{name}: {:?}", start.elapsed());
    }
}

/// The limit of plug-ins, which have a budget of their own; less than one binding spans.
const PLUGIN_LIMIT: u64 = 48 << 20;

fn limit_plugins() {
    static SET: std::sync::Once = std::sync::Once::new();
    // SAFETY: before the plug-ins of this process, which read it, are loaded.
    SET.call_once(|| unsafe { std::env::set_var("KILN_MEMORY_LIMIT", PLUGIN_LIMIT.to_string()) });
}

#[test]
fn loops_that_grow_are_refused_at_the_memory_limit_on_wgpu() {
    limit_plugins();
    let Some(wgpu) = kiln_tests::backends::wgpu().unwrap() else { return };
    check_growing_loops(&wgpu, PLUGIN_LIMIT);
}

#[test]
fn loops_that_grow_are_refused_at_the_memory_limit_on_cuda() {
    limit_plugins();
    let Some(cuda) = kiln_tests::backends::cuda().unwrap() else { return };
    check_growing_loops(&cuda, PLUGIN_LIMIT);
}

#[test]
fn a_tensor_beyond_the_limit_is_refused_with_its_layer() {
    let mut n = Network::new("wide");
    let x = input(&mut n, "x", &[16 << 20]);
    let axis = ints(&mut n, &[0]);
    let wide = n.add_layer("too wide", "cumulative", Attrs::new(), &[Some(x), Some(axis)]).unwrap()[0];
    n.mark_output(wide, "y").unwrap();
    // 64 MiB are given; the oracle wants 128 MiB to read them and 192 MiB for the result.
    let given = [("x", Tensor::zeros(DType::F32, &[16 << 20]).unwrap())];
    let e = chain_on(&reference(), &n, &given).unwrap_err();
    assert!(e.contains("too wide") && e.contains("memory") && e.contains(&LIMIT.to_string()), "{e}");
}

/// A graph built without timing on the CPU backend, and how long that took.
fn built(g: kiln_ir::Graph, config: BuildConfig) -> (kiln_builder::Built, Duration) {
    let start = Instant::now();
    let mut b = Builder::new(cpu(), Cpu::target());
    b.config = BuildConfig { estimates: true, ..config };
    let built = b.build_graph(g, &mut |_, _, _| true).unwrap();
    (built, start.elapsed())
}

fn chain(n: usize) -> kiln_ir::Graph {
    let mut g = kiln_ir::Graph::new("chain");
    let mut x = g.add_input("x", kiln_ir::Fact::of(TensorType::new(DType::F32, [4])));
    for i in 0..n {
        x = g.add(&format!("l{i}"), kiln_ir::Op::new("tanh", Attrs::new()).unwrap(), &[x]).unwrap();
    }
    g.outputs = vec![x];
    g
}

fn sum(n: usize) -> kiln_ir::Graph {
    let mut g = kiln_ir::Graph::new("sum");
    let fact = kiln_ir::Fact::of(TensorType::new(DType::F32, [4]));
    let inputs: Vec<_> = (0..n).map(|i| g.add_input(&format!("x{i}"), fact.clone())).collect();
    let add = kiln_ir::Op::new("add", Attrs::new()).unwrap();
    let mut at = 0;
    let total = inputs.into_iter().reduce(|a, b| {
        at += 1;
        g.add(&format!("l{at}"), add.clone(), &[a, b]).unwrap()
    });
    g.outputs = total.into_iter().collect();
    g
}

/// Ten times the layers take some ten times as long, not a hundred times. `KILN_LARGE` layers (20,000).
#[test]
fn builds_take_time_in_proportion_to_layers() {
    let large = std::env::var("KILN_LARGE").ok().and_then(|v| v.parse().ok()).unwrap_or(20_000usize);
    for make in [chain, sum] {
        let (_, little) = built(make(large / 10), BuildConfig::default());
        let (_, much) = built(make(large), BuildConfig::default());
        println!("{} layers {little:.2?}, {large} layers {much:.2?}", large / 10);
        assert!(much < little * 30 + Duration::from_secs(1), "{little:?} and {much:?}");
    }
}

/// Ten symbolic lengths, whose sum is squared again and again: what expanded has more terms than memory.
#[test]
fn shape_arithmetic_is_bounded() {
    let start = Instant::now();
    let mut g = kiln_ir::Graph::new("g");
    let op = |name: &str| kiln_ir::Op::new(name, Attrs::new()).unwrap();
    let mut total = None;
    for i in 0..10 {
        let ty = TensorType { dtype: DType::F32, dims: vec![Dim::host(format!("n{i}"))] };
        let x = g.add_input(&format!("x{i}"), kiln_ir::Fact::of(ty));
        let n = g.add(&format!("s{i}"), op("shape"), &[x]).unwrap();
        total = Some(total.map_or(n, |t| g.add(&format!("t{i}"), op("add"), &[t, n]).unwrap()));
    }
    let mut n = total.unwrap();
    let k = g.add_constant("k", Tensor::i64(&[1], &[7]).unwrap());
    for i in 0..60 {
        let square = g.add(&format!("q{i}"), op("mul"), &[n, n]).unwrap();
        let quotient = g.add(&format!("d{i}"), op("floor_div"), &[square, n]).unwrap();
        let rest = g.add(&format!("m{i}"), op("mod"), &[square, quotient]).unwrap();
        let sum = g.add(&format!("a{i}"), op("add"), &[square, rest]).unwrap();
        n = g.add(&format!("x_{i}"), op("max"), &[sum, quotient]).unwrap();
    }
    let size = g.add("size", op("mod"), &[n, k]).unwrap();
    let one = g.add_constant("one", Tensor::f32(&[1], &[1.0]).unwrap());
    g.outputs = vec![g.add("y", op("expand"), &[one, size]).unwrap()];
    let mut profile = Profile::new();
    for i in 0..10 {
        profile.set_shape(&format!("x{i}"), &[1], &[2], &[3]).unwrap();
    }
    built(g, BuildConfig { profiles: vec![profile], ..BuildConfig::default() });
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    bounded();
}
