//! The example program that only runs engines.
#![allow(clippy::unwrap_used, reason = "tests stop at the first surprise")]

mod common;
#[allow(dead_code, reason = "its main is what cargo runs")]
#[path = "../examples/run_engine.rs"]
mod run_engine;

use common::{f32_ty, linear, program, rows, t};
use kiln_backend_cpu::Cpu;
use kiln_ir::Attrs;
use kiln_network::Network;
use kiln_plan::Plan;

fn plan_file(
    folder: &tempfile::TempDir,
    n: &Network,
    profiles: Vec<kiln_runtime::Profile>,
) -> std::path::PathBuf {
    let path = folder.path().join("e.kiln");
    Plan::new(program(n), profiles, Cpu::target()).write_file(&path).unwrap();
    path
}

#[test]
fn it_reads_inputs_from_files_and_takes_zeros_for_others() {
    let folder = tempfile::tempdir().unwrap();
    let engine = run_engine::open(&plan_file(&folder, &linear(), vec![rows(4)])).unwrap();
    let a = folder.path().join("a.bin");
    std::fs::write(&a, [3f32, 4.0].map(f32::to_le_bytes).concat()).unwrap();
    let given = [("a".to_owned(), a.clone())];
    assert_eq!(run_engine::run(&engine, &given).unwrap(), [("y".to_owned(), t(&[1, 2], &[30.0, 400.0]))]);
    std::fs::write(&a, [0; 7]).unwrap();
    assert!(run_engine::run(&engine, &given).unwrap_err().to_string().contains("is not f32[1, 2]"));
    let other = [("c".to_owned(), a)];
    assert!(run_engine::run(&engine, &other).unwrap_err().to_string().contains("no input c"));
}

#[test]
fn inputs_of_fixed_shape_need_no_profile() {
    let folder = tempfile::tempdir().unwrap();
    let mut n = Network::new("fixed");
    let x = n.add_input("x", f32_ty(&[2.into()])).unwrap();
    let y = n.add_layer("e", "exp", Attrs::new(), &[Some(x)]).unwrap()[0];
    n.mark_output(y, "y").unwrap();
    let engine = run_engine::open(&plan_file(&folder, &n, Vec::new())).unwrap();
    assert_eq!(run_engine::run(&engine, &[]).unwrap(), [("y".to_owned(), t(&[2], &[1.0, 1.0]))]);
}
