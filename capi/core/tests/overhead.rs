//! Time of a run by the functions of C beside that by Rust: `cargo test --workspace --test overhead -- --nocapture` prints both.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that reports")]

use kiln::{DType, Engine, Plan, Tensor};
use kiln_c_core::context::{kiln_context_create, kiln_context_destroy};
use kiln_c_core::dlpack::{CPU, DLDataType, DLDevice, DLTensor};
use kiln_c_core::engine::{kiln_engine_destroy, kiln_engine_from_bytes};
use kiln_c_core::output::kiln_context_output;
use kiln_c_core::run::{kiln_context_run, kiln_context_set_input};
use kiln_c_core::tensor::kiln_tensor_destroy;
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

const RUNS: usize = 600;
const ROUNDS: usize = 5;

fn median(mut run: impl FnMut()) -> Duration {
    let mut times: Vec<Duration> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed()
        })
        .collect();
    times.sort();
    times[RUNS / 2]
}

#[test]
fn a_run_by_c_gives_what_rust_gives_and_takes_little_more() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/digits/lenet_a.onnx");
    let plan = Engine::builder().backend("cpu").build_plan(file).unwrap().plan.write().unwrap();
    let engine = Engine::builder().build(Plan::read(plan.clone()).unwrap()).unwrap();
    let mut context = engine.create_context().unwrap();
    let mut image: Vec<f32> = (0..784).map(|i| i as f32 / 784.0).collect();
    let tensor = Tensor::from_slice(&[1, 1, 28, 28], &image).unwrap();
    let outputs = context.run(&[("input", tensor.clone())]).unwrap();
    let wanted = outputs.get("logits").unwrap().to_vec::<f32>().unwrap();

    let mut shape = [1i64, 1, 28, 28];
    let input = DLTensor {
        data: image.as_mut_ptr().cast(),
        device: DLDevice { device_type: CPU, device_id: 0 },
        ndim: 4,
        dtype: DLDataType::of(DType::F32),
        shape: shape.as_mut_ptr(),
        strides: null_mut(),
        byte_offset: 0,
    };
    let (mut of_c, mut made) = (null_mut(), null_mut());
    // SAFETY: the plan's bytes, places for objects, and objects that were made.
    unsafe {
        assert!(kiln_engine_from_bytes(plan.as_ptr().cast(), plan.len(), null(), &raw mut of_c).is_null());
        assert!(kiln_context_create(of_c, &raw mut made).is_null());
    }
    let by_c = |check: bool| {
        let mut out = null_mut();
        // SAFETY: objects that were made, names with their lengths, a tensor that describes the image.
        unsafe {
            assert!(kiln_context_set_input(made, c"input".as_ptr(), 5, &raw const input).is_null());
            assert!(kiln_context_run(made).is_null());
            assert!(kiln_context_output(made, c"logits".as_ptr(), 6, &raw mut out).is_null());
            if check {
                let found = std::slice::from_raw_parts((*out).dl_tensor.data.cast::<f32>(), 10);
                assert_eq!(found, wanted);
            }
            kiln_tensor_destroy(out);
        }
    };
    by_c(true);
    let mut least = [Duration::MAX; 2];
    for _ in 0..ROUNDS {
        least[0] = least[0].min(median(|| drop(context.run(&[("input", tensor.clone())]).unwrap())));
        least[1] = least[1].min(median(|| by_c(false)));
    }
    println!("LeNet on cpu: {:?} by Rust, {:?} by C", least[0], least[1]);
    // Far above what the functions take, so that a busy machine does not matter.
    assert!(least[1] < least[0] * 2 + Duration::from_micros(100), "{least:?}");
    // SAFETY: nobody uses them any more.
    unsafe {
        kiln_context_destroy(made);
        kiln_engine_destroy(of_c);
    }
}
