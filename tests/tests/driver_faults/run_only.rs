//! The run-only form of the CUDA backend: it runs the plans of the full one, as far as their launches are data.

use super::{cases, loaded, open, with_driver};
use crate::cases::{Case, Cx, of_varying_shapes};
use crate::fake::library;
use crate::faults::Faults;
use kiln_backend::launch::LaunchProgram;
use kiln_backend::{BackendError, CompiledKernel, Program, Region, Tactic};
use kiln_backend_cuda::RunOnly;
use kiln_ir::Graph;
use kiln_runtime::Engine;
use std::sync::Arc;

/// The run-only form for the same device.
fn run_only(cx: Cx) -> Cx {
    Cx { backend: Arc::new(RunOnly::new().unwrap()), ..cx }
}

#[test]
fn plans_run_without_code_generation() {
    with_driver("run_only::plans", &library(), &[]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn plans() {
    let Some(full) = open() else { return };
    let cases = cases(&full);
    // The driver computes nothing: results are those of copies, which are the same by either form.
    let expected: Vec<_> = cases.iter().map(|c| c.session(&full, &mut Faults::default())).collect();
    let cx = run_only(full);
    let mut ran = Vec::new();
    for (case, expected) in cases.iter().zip(expected) {
        cx.fake.start(-1, 0);
        let refused = case.load(&cx).err().map(|e| e.to_string());
        match (case.name, refused) {
            // Of varying batch size, and a layer that gives as much as it finds.
            ("images" | "profiles" | "walked", Some(why)) => {
                let wanted = ["layer \"", "only a run knows", "feature \"compile\"", "version-compatible"];
                assert!(wanted.iter().all(|w| why.contains(w)), "{}: {why}", case.name);
            }
            (
                "products" | "control" | "on_device" | "moved" | "shared_memory" | "timed" | "plugins"
                | "branches",
                None,
            ) => {
                let found = case.session(&cx, &mut Faults::default());
                assert!(found.is_some() && found == expected, "{}", case.name);
                ran.push(case.name);
            }
            (name, refused) => panic!("{name}: {refused:?}"),
        }
        assert_eq!((cx.fake.misuse(), cx.fake.alive()), (String::new(), String::new()), "{}", case.name);
    }
    assert!(cases.is_empty() || ran.len() == 8, "{ran:?}");
}

#[test]
fn version_compatible_plans_of_varying_shapes_run_without_code_generation() {
    with_driver("run_only::varying_shapes", &library(), &[]);
}

/// The run-only form launches what the full one launches, at every shape.
#[test]
#[ignore = "runs in a process of its own"]
fn varying_shapes() {
    let Some(full) = open().map(|cx| Cx { version_compatible: true, ..cx }) else { return };
    let cases = match of_varying_shapes(&full) {
        Ok(cases) => cases,
        Err(e) => return assert!(std::env::var_os("KILN_REQUIRE_NVRTC").is_none(), "{e}"),
    };
    let launched = |cx: &Cx| -> Vec<_> {
        let run = |case: &Case| {
            cx.fake.start(-1, 0);
            let outputs = case.session(cx, &mut Faults::default());
            assert!(outputs.is_some(), "{}", case.name);
            assert_eq!((cx.fake.misuse(), cx.fake.alive()), (String::new(), String::new()), "{}", case.name);
            outputs
        };
        cases.iter().map(run).collect()
    };
    let expected = launched(&full);
    assert_eq!(launched(&run_only(full)), expected);
}

#[test]
fn what_needs_code_generation_is_refused() {
    with_driver("run_only::refusals", &library(), &[]);
}

#[test]
#[ignore = "runs in a process of its own"]
fn refusals() {
    if loaded().is_none() {
        return;
    }
    let Some(full) = open() else { return };
    let g = Graph::from_text("graph \"g\" { input %x: f32[8] %y = relu(%x) output %y }").unwrap();
    let mut program = Program::step_per_node(g.clone(), &Tactic::plain(""));
    if let Err(e) = program.choose(full.backend.as_ref(), &full.target) {
        assert!(std::env::var_os("KILN_REQUIRE_NVRTC").is_none(), "{e}");
        return;
    }
    let cx = run_only(full);
    let load = |program: Program| {
        let made = Engine::on_target(program, Vec::new(), cx.backend.as_ref(), cx.target.clone());
        made.err().map(|e| e.to_string()).unwrap_or_default()
    };
    let with = |change: &dyn Fn(&mut CompiledKernel)| {
        let mut changed = program.clone();
        let mut kernel = CompiledKernel::from_blob(changed.steps[0].blob.as_slice()).unwrap();
        change(&mut kernel);
        changed.steps[0].blob = kernel.to_blob().unwrap().into();
        load(changed)
    };
    assert_eq!(with(&|_| ()), "");
    let bare = with(&|k| k.operands = None);
    assert!(bare.contains("\"y\"") && bare.contains("build the plan again"), "{bare}");
    // Launches that are data need no code, of whatever build.
    assert_eq!(with(&|k| k.launch_code = Some("other".into())), "");
    assert_eq!(with(&|k| k.launch_code = None), "");
    let later = with(&|k| k.launches = k.launches.take().map(|p| LaunchProgram { form: 99, ..p }));
    assert!(later.contains("only a run knows"), "{later}");
    let mut library = program.clone();
    library.steps[0].tactic = Tactic::plain("cublaslt.matmul");
    let library = load(library);
    assert!(library.contains("the library cublaslt") && library.contains("tactic source"), "{library}");

    let region = Region::extract(&g, g.order()).unwrap();
    let built = cx.backend.compile(&region, &program.steps[0].tactic, &cx.target);
    let offered = cx.backend.tactics(&region, &cx.target);
    let supported = cx.backend.supports(&region, &cx.target);
    for e in [built.err(), offered.err(), supported.err()] {
        assert!(
            matches!(&e, Some(BackendError::Unsupported(m)) if m.contains("feature \"compile\"")),
            "{e:?}"
        );
    }
}
