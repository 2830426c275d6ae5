//! Plans hold their kernels whole: loading and running one writes no kernel's text, and launches what is stored.

#![allow(clippy::panic, reason = "a test")]

use kiln_backend::launch::LaunchCase;
use kiln_backend::{Backend, BackendError, CompiledKernel, Program, Region, Target};
use kiln_backend_wgpu::Wgpu;
use kiln_codegen::offer::texts;
use kiln_ir::problem::Rng;
use kiln_ir::{DType, Graph, Tensor};
use std::sync::Arc;

const GRAPH: &str = "graph \"g\" { input %x: f32[5,40] input %w: f32[40,24] input %at: i64[3]
    %p = matmul(%x, %w) %r = relu(%p) %g = gather(%r, %at) {axis=0} %s = softmax(%g) output %s }";

/// The first device here; none where there is no adapter, which is an error where there must be one.
fn target() -> Option<Target> {
    match Wgpu.targets() {
        Ok(t) if !t.is_empty() => t.into_iter().next(),
        _ if std::env::var_os("KILN_REQUIRE_WGPU").is_some() => panic!("no adapter"),
        _ => None,
    }
}

/// The program with its kernels, each changed.
fn built(target: &Target, change: impl Fn(&mut CompiledKernel)) -> Program {
    let g = Graph::from_text(GRAPH).expect("a graph");
    let mut program = Program::step_per_node(g, &kiln_backend::Tactic::plain(""));
    program.choose(&Wgpu, target).expect("tactics");
    for step in &mut program.steps {
        let region = Region::extract(&program.graph, &step.nodes).expect("a region");
        let blob = Wgpu.compile(&region, &step.tactic, target).expect("a blob");
        let mut kernel = CompiledKernel::from_blob(&blob).expect("a kernel");
        change(&mut kernel);
        step.blob = kernel.to_blob().expect("a blob").into();
    }
    program
}

fn inputs() -> [Tensor; 3] {
    let mut rng = Rng::new(2);
    [
        rng.tensor(DType::F32, &[5, 40]),
        rng.tensor(DType::F32, &[40, 24]),
        Tensor::i64(&[3], &[4, 0, 2]).expect("a tensor"),
    ]
}

/// Whether a run has the oracle's results.
fn is_right(program: Program, target: &Target) -> Result<bool, BackendError> {
    let program = Arc::new(program);
    let mut context = Wgpu.open(target)?.load(program.clone())?.context()?;
    let shapes = Arc::new(program.shapes(&inputs())?);
    context.enqueue(&inputs(), &shapes)?;
    let found = context.outputs()?.remove(0).to_f64();
    let wanted = program.graph.eval(&inputs()).expect("the oracle").remove(0).to_f64();
    Ok(found.iter().zip(&wanted).all(|(a, b)| (a - b).abs() < 1e-5))
}

#[test]
fn loading_and_running_write_no_text() {
    let Some(target) = target() else { return };
    let program = built(&target, |_| ());
    let written = texts();
    assert!(written >= 4, "{written}");
    assert_eq!(is_right(program, &target), Ok(true));
    assert_eq!(texts(), written);
}

/// Launches that are not data are planned by the code of the build that compiled the kernels, and by no other.
#[test]
fn launches_that_are_not_data_are_planned_by_the_same_build() {
    let Some(target) = target() else { return };
    let unplanned = built(&target, |k| k.launches = None);
    assert_eq!(is_right(unplanned, &target), Ok(true));
    let later = built(&target, |k| k.launches.iter_mut().for_each(|p| p.form += 1));
    assert_eq!(is_right(later, &target), Ok(true));
    for other in [None, Some("0123456789abcdef".to_owned())] {
        let unplanned = built(&target, |k| (k.launches, k.launch_code) = (None, other.clone()));
        let Err(BackendError::Incompatible(why)) = is_right(unplanned, &target) else { panic!("{other:?}") };
        assert!(why.contains("layer \"") && why.contains("build the plan again"), "{why}");
    }
}

#[test]
fn launches_that_are_data_need_no_code_of_their_build() {
    let Some(target) = target() else { return };
    let other = built(&target, |k| k.launch_code = Some("0123456789abcdef".into()));
    assert_eq!(is_right(other, &target), Ok(true));
    let earlier = built(&target, |k| k.launch_code = None);
    assert_eq!(is_right(earlier, &target), Ok(true));
}

/// A run launches what its plan holds, right or wrong.
#[test]
fn stored_launches_are_launched() {
    let Some(target) = target() else { return };
    fn each(k: &mut CompiledKernel, change: impl Fn(&mut LaunchCase)) {
        let program = k.launches.as_mut().expect("all shapes are known in the build");
        program.cases.iter_mut().for_each(change);
    }
    let none = built(&target, |k| each(k, |c| c.launches.clear()));
    assert_eq!(is_right(none, &target), Ok(false));
    let others = built(&target, |k| {
        each(k, |c| c.launches.iter_mut().flat_map(|l| &mut l.words).for_each(|w| *w = 1));
    });
    assert_eq!(is_right(others, &target), Ok(false));
}

/// Launches that were made for other shapes are not launched: they would reach beyond the tensors.
#[test]
fn shapes_that_the_build_did_not_know_are_refused() {
    let Some(target) = target() else { return };
    let program = Arc::new(built(&target, |_| ()));
    let loaded = Wgpu.open(&target).expect("a device").load(program.clone()).expect("loads");
    let mut others = inputs();
    others[0] = Rng::new(2).tensor(DType::F32, &[6, 40]);
    let shapes = Arc::new(program.shapes(&others).expect("shapes"));
    let e =
        loaded.context().expect("a context").enqueue(&others, &shapes).expect_err("other shapes").to_string();
    assert!(e.contains("is f32[6,40] in this run") && e.contains("was built for f32[5,40]"), "{e}");
}

#[test]
fn operands_that_the_step_lacks_are_refused() {
    let Some(target) = target() else { return };
    let damaged = built(&target, |k| {
        k.operands.iter_mut().filter(|o| o.anchor.is_some()).for_each(|o| o.anchor = Some(7));
    });
    let e = is_right(damaged, &target).expect_err("no node 7").to_string();
    assert!(e.contains("build the plan again"), "{e}");
}
