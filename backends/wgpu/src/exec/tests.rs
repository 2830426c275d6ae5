//! Transfers between host and device while a loop runs.

use super::WgpuDevice;
use super::context::WgpuContext;
use super::queue::WgpuQueue;
use crate::adapter::probe;
use crate::backend::Wgpu;
use crate::gpu::Gpu;
use kiln_backend::{BackendError, Context, Device, Program, Tactic};
use kiln_gpu::{Loaded, Residency};
use kiln_ir::{Attrs, DType, Elems, Fact, Graph, Op, Tensor, TensorType};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Adds rows of a table to a vector, of which each iteration yields a part; in the second form as long as a
/// sum is small.
const COUNTED: &str = r#"graph "counted" {
  input %n: i64[]
  input %x: f32[5]
  input %rows: f32[5,1000]
  weight %half: f32[] = [0.5]
  %y: f32[5], %all: f32[5,loop.concat0] = loop(%n, %x, %rows, %half) {body_captures=1, carried=1, count=true, iter_axes=[1], iter_reverse=[0], out_axes=[0, 1], out_index=[0, 0], out_kinds=s["last", "reverse"], out_length=[0, 0]} @loop graph "body" {
    input %c: f32[5]
    input %row: f32[5]
    input %h: f32[]
    %sum: f32[5] = add(%c, %row) @sum
    %next: f32[5] = mul(%sum, %h) @next
    output %next, %sum
  }
  output %y, %all
}
"#;

const ASKED: &str = r#"graph "asked" {
  input %x: f32[5]
  input %i: i64[]
  input %n: i64[]
  weight %one: i64[] = [1]
  weight %half: f32[] = [0.5]
  %y: f32[5], %k: i64[] = loop(%x, %i, %half, %one, %n) {body_captures=2, carried=2, out_axes=[0, 0], out_index=[0, 1], out_kinds=s["last", "last"], out_length=[0, 0], while=true} @loop graph "body" {
    input %c: f32[5]
    input %j: i64[]
    input %h: f32[]
    input %o: i64[]
    %next: f32[5] = mul(%c, %h) @next
    %more: i64[] = add(%j, %o) @more
    output %next, %more
  } graph "condition" {
    input %c: f32[5]
    input %j: i64[]
    input %n: i64[]
    %go: bool[] = less(%j, %n) @go
    output %go
  }
  output %y, %k
}
"#;

/// Carries each element on to the next iteration, which stacks it.
const SHIFTED: &str = r#"graph "shifted" {
  input %n: i64[]
  input %x: f32[5]
  input %rows: f32[5,1000]
  %y: f32[5], %all: f32[loop.concat0,5] = loop(%n, %x, %rows) {body_captures=0, carried=1, count=true, iter_axes=[1], iter_reverse=[0], out_axes=[0, 0], out_index=[0, 0], out_kinds=s["last", "concat"], out_length=[0, 0]} @loop graph "body" {
    input %c: f32[5]
    input %row: f32[5]
    output %row, %c
  }
  output %y, %all
}
"#;

/// Numbers that a device counts.
fn counted(gpu: &Gpu) -> [u64; 3] {
    [gpu.uploads.load(Ordering::Relaxed), gpu.downloads.load(Ordering::Relaxed), gpu.compilations()]
}

struct Ready {
    gpu: Arc<Gpu>,
    graph: Graph,
    program: Arc<Program>,
    context: Box<dyn Context>,
}

impl Ready {
    fn new(text: &str) -> Option<Ready> {
        let Ok(found) = probe() else { return None };
        let (adapter, target) = found.into_iter().next()?;
        let gpu = Gpu::open(&adapter, target.clone()).expect("a device");
        let graph = Graph::from_text(text).expect("a graph");
        let mut program = Program::step_per_node(graph.clone(), &Tactic::plain(""));
        program.choose(&Wgpu, &target).expect("tactics");
        let program = Arc::new(program);
        let context = WgpuDevice::new(gpu.clone()).load(program.clone()).expect("loads").context();
        Some(Ready { gpu, graph, program, context: context.expect("a context") })
    }

    /// Runs and compares with the oracle; uploads, downloads and kernels made meanwhile.
    fn run(&mut self, inputs: &[Tensor]) -> [u64; 3] {
        let before = counted(&self.gpu);
        let shapes = Arc::new(self.program.shapes(inputs).expect("shapes"));
        self.context.enqueue(inputs, &shapes).expect("runs");
        let found = self.context.outputs().expect("outputs");
        let after = counted(&self.gpu);
        let wanted = self.graph.eval(inputs).expect("the oracle");
        for (f, w) in found.iter().zip(&wanted) {
            assert_eq!(f.ty(), w.ty());
            let near = |(a, b): (f64, f64)| (a - b).abs() <= 1e-4 * b.abs().max(1.0);
            assert!(f.to_f64().into_iter().zip(w.to_f64()).all(near), "{found:?} for {wanted:?}");
        }
        std::array::from_fn(|i| after[i] - before[i])
    }
}

fn number(n: i64) -> Tensor {
    Tensor::from_elems(DType::I64, &[], &Elems::I(vec![n])).expect("a number")
}

fn values(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    let v: Vec<f32> = (0..n).map(|i| (i % 17) as f32 / 16.0 - 0.5).collect();
    Tensor::f32(shape, &v).expect("values")
}

/// A product by a weight that has a buffer of its own, and a sum with a small one.
fn weighted(product: f32, sum: f32) -> Graph {
    let mut g = Graph::new("weighted");
    let x = g.add_input("x", Fact::of(TensorType::new(DType::F32, [2, 200])));
    let w = g.add_constant("w", Tensor::f32(&[200, 200], &[product; 40_000]).expect("a weight"));
    let b = g.add_constant("b", Tensor::f32(&[200], &[sum; 200]).expect("a weight"));
    let op = |name: &str| Op::new(name, Attrs::new()).expect("an operator");
    let y = g.add_node("product", op("matmul"), &[Some(x), Some(w)]).expect("a product")[0];
    g.outputs = g.add_node("sum", op("add"), &[Some(y), Some(b)]).expect("a sum");
    g
}

#[test]
fn programs_on_one_device_share_equal_weights() {
    let Ok(found) = probe() else { return };
    let Some((adapter, target)) = found.into_iter().next() else { return };
    let gpu = Gpu::open(&adapter, target.clone()).expect("a device");
    let load = |product: f32, sum: f32, residency: Residency| {
        let mut program = Program::step_per_node(weighted(product, sum), &Tactic::plain(""));
        program.choose(&Wgpu, &target).expect("tactics");
        Loaded::new(&gpu, &mut WgpuQueue::new(&gpu), Arc::new(program), residency).expect("loads")
    };
    // The memory of the large weight, then that of the small one.
    let memory = |l: &Loaded<Gpu>| {
        let mut all: Vec<_> =
            l.program.weights().map(|(v, t)| (t.bytes().len(), l.weights.range(v).cloned())).collect();
        all.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        all.into_iter().map(|(_, range)| range.expect("memory")).collect::<Vec<_>>()
    };
    let first = load(1.0, 2.0, Residency::Shared);
    let (same, other) = (load(1.0, 2.0, Residency::Shared), load(1.0, 3.0, Residency::Shared));
    let own = load(1.0, 2.0, Residency::Own);
    let before = memory(&first);
    assert_eq!(before.len(), 2);
    assert_eq!(memory(&same), before);
    let (other, own) = (memory(&other), memory(&own));
    assert_eq!([other[0] == before[0], other[1] == before[1]], [true, false], "one weight differs");
    assert!(own.iter().all(|r| !before.contains(r)), "memory of its own");
}

#[test]
fn trips_of_a_counted_loop_move_nothing_between_host_and_device() {
    let Some(mut r) = Ready::new(COUNTED) else { return };
    let mut of = |n: i64| {
        let inputs = [number(n), values(&[5]), values(&[5, 1000])];
        r.run(&inputs);
        r.run(&inputs)
    };
    let (few, many) = (of(3), of(1000));
    assert_eq!(few, many, "uploads, downloads and kernels of 3 iterations and of 1,000");
    // The count of iterations is planned for.
    assert_eq!(many[1], 1, "the outputs are waited for");
    assert_eq!(many[2], 0, "kernels are made when the program is loaded");
    let before = r.context.counters();
    r.run(&[number(1000), values(&[5]), values(&[5, 1000])]);
    let after = r.context.counters();
    assert_eq!(before.allocations, after.allocations);
    assert_eq!(before.host_syncs, after.host_syncs, "nothing is waited for before the outputs");
}

#[test]
fn trips_of_a_loop_with_a_condition_only_tell_the_host_to_go_on() {
    let Some(mut r) = Ready::new(ASKED) else { return };
    let mut of = |n: i64| {
        let inputs = [values(&[5]), number(0), number(n)];
        r.run(&inputs);
        r.run(&inputs)
    };
    let (few, many) = (of(3), of(100));
    assert_eq!(few[0], many[0], "uploads");
    assert_eq!(many[1] - few[1], 97, "one answer an iteration");
    assert_eq!(many[2], 0);
}

#[test]
fn repeated_runs_are_timed_without_transfers() {
    let Ok(found) = probe() else { return };
    let Some((adapter, target)) = found.into_iter().next() else { return };
    let gpu = Gpu::open(&adapter, target.clone()).expect("a device");
    let mut program = Program::step_per_node(weighted(1.0, 2.0), &Tactic::plain(""));
    program.choose(&Wgpu, &target).expect("tactics");
    let program = Arc::new(program);
    let loaded =
        Loaded::new(&gpu, &mut WgpuQueue::new(&gpu), program.clone(), Residency::Own).expect("loads");
    let loaded = Arc::new(loaded);
    let mut context = WgpuContext::new(&loaded).expect("a context");
    let inputs: Vec<Tensor> = program
        .graph
        .inputs
        .iter()
        .map(|&v| values(&program.graph.ty(v).static_dims().expect("a shape")))
        .collect();
    let shapes = Arc::new(program.shapes(&inputs).expect("shapes"));
    context.enqueue(&inputs, &shapes).expect("runs");
    context.outputs().expect("outputs");
    let before = counted(&gpu);
    match context.repeated(3) {
        Ok(times) => assert!(times.len() == 3 && times.iter().all(|ns| *ns > 0.0), "{times:?}"),
        Err(e) => assert!(!gpu.timestamps, "{e}"),
    }
    let after = counted(&gpu);
    assert_eq!([before[0], before[2]], [after[0], after[2]], "uploads and kernels made");
    // A device of software has no times of its own: runs are not timed on it, so that no build depends on them.
    assert_eq!(context.time_runs(1).is_ok(), gpu.timestamps && !target.has("software"));
}

#[test]
fn no_trip_and_too_many_trips() {
    let Some(mut r) = Ready::new(COUNTED) else { return };
    r.run(&[number(0), values(&[5]), values(&[5, 1000])]);
    let inputs = [number(1001), values(&[5]), values(&[5, 1000])];
    let shapes = Arc::new(r.program.shapes(&inputs).expect("shapes"));
    let e = r.context.enqueue(&inputs, &shapes).expect_err("there are 1,000 rows");
    assert!(
        matches!(&e, BackendError::Execution { layer, message }
            if layer == "loop" && message.contains("element 1000") && message.contains("has 1000")),
        "{e}"
    );
    r.run(&[number(7), values(&[5]), values(&[5, 1000])]);
}

#[test]
fn an_element_that_is_carried_on_outlives_the_next_one() {
    let Some(mut r) = Ready::new(SHIFTED) else { return };
    for n in [0, 1, 4, 4] {
        r.run(&[number(n), values(&[5]), values(&[5, 1000])]);
    }
}
