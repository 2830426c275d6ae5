//! Plans hold their kernels whole: loading and running one writes no kernel's text.

use kiln_backend::{Backend, Program, Region};
use kiln_backend_wgpu::Wgpu;
use kiln_codegen::offer::texts;
use kiln_ir::problem::Rng;
use kiln_ir::{DType, Graph};
use std::sync::Arc;

const GRAPH: &str = "graph \"g\" { input %x: f32[5,40] input %w: f32[40,24] input %at: i64[3]
    %p = matmul(%x, %w) %r = relu(%p) %g = gather(%r, %at) {axis=0} %s = softmax(%g) output %s }";

#[test]
fn loading_and_running_write_no_text() {
    let targets = match Wgpu.targets() {
        Ok(t) if !t.is_empty() => t,
        _ if std::env::var_os("KILN_REQUIRE_WGPU").is_some() => panic!("no adapter"),
        _ => return,
    };
    let target = targets.into_iter().next().expect("a target");
    let g = Graph::from_text(GRAPH).expect("a graph");
    let mut program = Program::step_per_node(g.clone(), &kiln_backend::Tactic::plain(""));
    program.choose(&Wgpu, &target).expect("tactics");
    for step in &mut program.steps {
        let region = Region::extract(&program.graph, &step.nodes).expect("a region");
        step.blob = Wgpu.compile(&region, &step.tactic, &target).expect("a blob").into();
    }
    let written = texts();
    assert!(written >= 4, "{written}");
    let program = Arc::new(program);
    let device = Wgpu.open(&target).expect("a device");
    let mut context = device.load(program.clone()).expect("loads").context().expect("a context");
    let mut rng = Rng::new(2);
    let inputs = [
        rng.tensor(DType::F32, &[5, 40]),
        rng.tensor(DType::F32, &[40, 24]),
        kiln_ir::Tensor::i64(&[3], &[4, 0, 2]).expect("a tensor"),
    ];
    let shapes = Arc::new(program.shapes(&inputs).expect("shapes"));
    context.enqueue(&inputs, &shapes).expect("runs");
    let found = context.outputs().expect("outputs").remove(0).to_f64();
    let wanted = g.eval(&inputs).expect("the oracle").remove(0).to_f64();
    assert!(found.iter().zip(&wanted).all(|(a, b)| (a - b).abs() < 1e-5), "{found:?} is not {wanted:?}");
    assert_eq!(texts(), written);
}
