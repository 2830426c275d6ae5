//! Tensors with more elements than kernels count: gathers read from them on CUDA, everything else
//! is refused by the build, with the layer. Needs no device: CUDA builds for a GPU that is not here, by NVRTC.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]

use kiln_backend::{Backend, Target};
use kiln_builder::{BuildConfig, BuildError, Builder, Built};
use kiln_ir::{Attrs, DType, Dim, Fact, Graph, Op, TensorType, ValueId};
use kiln_runtime::Profile;
use kiln_tests::backends;
use kiln_tests::suite::root;
use std::sync::{Arc, Once};

/// An embedding table of 9.2 GB, which no test allocates.
const TABLE: [i64; 2] = [140_000, 32_768];

/// The CUDA backend for an H200, wherever the test runs.
fn cuda() -> Option<(Arc<dyn Backend>, Target)> {
    static SET: Once = Once::new();
    SET.call_once(|| {
        let folder = root().join(".cache/nvrtc");
        // SAFETY: before this test's threads read the environment.
        unsafe { std::env::set_var("KILN_CUDA_TARGET", "h200") };
        if std::env::var_os("KILN_NVRTC").is_none() && folder.is_dir() {
            // SAFETY: as above.
            unsafe { std::env::set_var("KILN_NVRTC", &folder) };
        }
    });
    if std::env::var_os("KILN_NVRTC").is_none() {
        println!("skipped: NVRTC is missing");
        return None;
    }
    let backend = backends::cuda().unwrap()?;
    let target = backend.targets().unwrap().remove(0);
    Some((backend, target))
}

fn wgpu() -> Option<(Arc<dyn Backend>, Target)> {
    let backend = backends::wgpu().unwrap()?;
    let target = backend.targets().unwrap().remove(0);
    Some((backend, target))
}

fn build(on: &(Arc<dyn Backend>, Target), g: Graph, most: Option<&[i64]>) -> Result<Built, BuildError> {
    let mut b = Builder::new(on.0.clone(), on.1.clone());
    let profiles = most.map(|most| {
        let mut p = Profile::new();
        let mut usual = most.to_vec();
        usual[0] = usual[0].min(1000);
        p.set_shape("table", &usual, &usual, most).unwrap();
        p
    });
    b.config =
        BuildConfig { estimates: true, profiles: profiles.into_iter().collect(), ..BuildConfig::default() };
    b.build_graph(g, &mut |_, _, _| true)
}

fn op(name: &str, attrs: Attrs) -> Op {
    Op::new(name, attrs).unwrap()
}

/// A graph of one layer called "wide", of a table and of indices.
fn layer(name: &str, attrs: Attrs, dims: &[Dim], at: Option<&[i64]>, more: &[&[i64]]) -> Graph {
    let mut g = Graph::new("large");
    let mut inputs: Vec<ValueId> = Vec::new();
    let ty = TensorType { dtype: DType::F16, dims: dims.to_vec() };
    inputs.push(g.add_input("table", Fact::of(ty)));
    if let Some(at) = at {
        let ty = TensorType::new(DType::I64, at.iter().copied());
        inputs.push(g.add_input("at", Fact::of(ty)));
    }
    for (i, d) in more.iter().enumerate() {
        let ty = TensorType::new(DType::F16, d.iter().copied());
        inputs.push(g.add_input(&format!("x{i}"), Fact::of(ty)));
    }
    let y = g.add("wide", op(name, attrs), &inputs).unwrap();
    let y = g.add("behind", op("neg", Attrs::new()), &[y]).unwrap();
    g.outputs = vec![y];
    g
}

fn dims(d: &[i64]) -> Vec<Dim> {
    d.iter().map(|&n| Dim::new(n)).collect()
}

/// Rows are static, or up to a profile.
fn tables() -> [(Vec<Dim>, Option<&'static [i64]>); 2] {
    [(dims(&TABLE), None), (vec![Dim::host("rows"), Dim::new(TABLE[1])], Some(&TABLE))]
}

fn refused(e: Result<Built, BuildError>, words: &[&str]) {
    let text =
        e.map(|b| b.steps.iter().map(|s| s.tactic.clone()).collect::<Vec<_>>()).unwrap_err().to_string();
    for w in words {
        assert!(text.contains(w), "\"{w}\" is not in: {text}");
    }
}

#[test]
fn gathers_from_large_tables_build_on_cuda() {
    let Some(on) = cuda() else { return };
    let gathers: [(&str, Attrs, &[i64]); 3] = [
        ("gather", Attrs::new(), &[7]),
        ("gather_elements", Attrs::new(), &[3, TABLE[1]]),
        ("gather_nd", Attrs::new(), &[5, 1]),
    ];
    for (name, attrs, at) in gathers {
        for (table, most) in tables() {
            let built = build(&on, layer(name, attrs.clone(), &table, Some(at), &[]), most).unwrap();
            let tactic = &built.steps[0].tactic;
            assert!(tactic.contains("far=1"), "{name}: {tactic}");
        }
        // Tables that 32 bits count are read with 32 bits.
        for rows in [dims(&[1000, TABLE[1]]), vec![Dim::host("rows"), Dim::new(TABLE[1])]] {
            let most = rows[0].as_const().is_none().then_some(&[1000, TABLE[1]][..]);
            let built = build(&on, layer(name, attrs.clone(), &rows, Some(at), &[]), most).unwrap();
            assert!(!built.steps[0].tactic.contains("far"), "{name}: {}", built.steps[0].tactic);
        }
    }
}

#[test]
fn what_kernels_cannot_count_is_refused_by_the_build() {
    for on in [cuda(), wgpu()].into_iter().flatten() {
        for (table, most) in tables() {
            let words = ["layer \"wide", "\"table\"", "4587520000 elements", "4294967295", "split it"];
            let f = |name: &str, at: Option<&[i64]>, more: &[&[i64]]| {
                refused(build(&on, layer(name, Attrs::new(), &table, at, more), most), &words);
            };
            f("exp", None, &[]);
            f("matmul", None, &[&[TABLE[1], 8]]);
            f("softmax", None, &[]);
            f("scatter_elements", Some(&[2, 2]), &[&[2, 2]]);
            if on.1.backend == "wgpu" {
                f("gather", Some(&[7]), &[]);
            }
        }
    }
}

/// A profile whose greatest shapes fit builds; where a size has no bound, the run decides.
#[test]
fn profiles_that_fit_build() {
    let Some(on) = cuda() else { return };
    let rows = vec![Dim::host("rows"), Dim::new(TABLE[1])];
    build(&on, layer("exp", Attrs::new(), &rows, None, &[]), Some(&[131_071, TABLE[1]])).unwrap();
    refused(
        build(&on, layer("exp", Attrs::new(), &rows, None, &[]), Some(&[131_072, TABLE[1]])),
        &["largest shapes of the profile", "4294967296 elements"],
    );
}

/// One binding of the device spans less than a tensor of varying size may come to: the build says so, not the run.
#[test]
fn tensors_beyond_a_binding_are_refused_by_the_build() {
    let Some(on) = wgpu() else { return };
    let limit = on.1.memory.max_binding;
    let columns = 32_768i64;
    // Two bytes an element.
    let most = (limit / 2 / columns as u64) as i64;
    let rows = || vec![Dim::host("rows"), Dim::new(columns)];
    let exp = || layer("exp", Attrs::new(), &rows(), None, &[]);
    build(&on, exp(), Some(&[most, columns])).unwrap();
    let bytes = format!("{} bytes", (most + 1) * columns * 2);
    let words =
        ["layer \"wide", "tensor \"table\"", &bytes, &format!("spans {limit} bytes"), "greatest shapes"];
    refused(build(&on, exp(), Some(&[most + 1, columns])), &words);
    let fixed = layer("exp", Attrs::new(), &dims(&[most + 1, columns]), None, &[]);
    build(&on, fixed, None).unwrap();
    // What only its shape is read of is bound by no kernel.
    let mut g = Graph::new("shape");
    let x = g.add_input("table", Fact::of(TensorType { dtype: DType::F16, dims: rows() }));
    g.outputs = vec![g.add("wide", op("shape", Attrs::new()), &[x]).unwrap()];
    build(&on, g, Some(&[most + 1, columns])).unwrap();
}
