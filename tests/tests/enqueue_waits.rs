//! Starting a run does not wait for the device. The stream is held up by work in front of the run, and
//! `enqueue` returns. This holds for all models available but those with sizes that have no bound.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

use kiln_backend::Backend;
use kiln_builder::BuildConfig;
use kiln_ir::Tensor;
use kiln_runtime::ExecutionContext;
use kiln_tests::backends::cuda;
use kiln_tests::gate::HeldStream;
use kiln_tests::models::{Shapes, archive, engine};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// One test at a time: a thread that waits for the device may keep others out of the driver.
static ALONE: Mutex<()> = Mutex::new(());

/// A model that waits for its own results fails after this time.
const MOST: Duration = Duration::from_millis(800);

/// A model's path without its suffix, an archive with its inputs, and what their names begin with there.
struct Model {
    path: &'static str,
    inputs: &'static str,
    prefix: &'static str,
    shapes: Shapes<'static>,
}

const fn model(
    path: &'static str,
    inputs: &'static str,
    prefix: &'static str,
    shapes: Shapes<'static>,
) -> Model {
    Model { path, inputs, prefix, shapes }
}

const IMAGES: Shapes<'static> = &[("input", [&[1, 1, 28, 28], &[50, 1, 28, 28], &[100, 1, 28, 28]])];
const TEXTS: Shapes<'static> =
    &[("input_ids", [&[1, 1], &[4, 65], &[16, 128]]), ("attention_mask", [&[1, 1], &[4, 65], &[16, 128]])];
const STATE: [&[i64]; 3] = [&[1, 1, 128], &[1, 3, 128], &[1, 4, 128]];
const LETTERS: Shapes<'static> = &[("ids", [&[1, 1], &[48, 3], &[64, 4]]), ("h0", STATE), ("c0", STATE)];
const STATES: [&[i64]; 3] = [&[2, 1, 96], &[2, 3, 96], &[2, 4, 96]];
const LETTERS_OF_TWO: Shapes<'static> =
    &[("ids", [&[1, 1], &[48, 3], &[64, 4]]), ("h0", STATES), ("c0", STATES)];

/// Models whose sizes are known before the run, or bounded.
const MODELS: &[Model] = &[
    model("digits/lenet_a", "digits/digits_test", "", IMAGES),
    model("digits/lenet_a_bn", "digits/digits_test", "", IMAGES),
    model("digits/lenet_a_qdq", "digits/digits_test", "", IMAGES),
    model("nlp/bert_tiny", "nlp/logits_bert_tiny", "padded_", TEXTS),
    model("nlp/bert_tiny_fp16", "nlp/logits_bert_tiny_fp16", "padded_", TEXTS),
    model("charrnn/h128_lstm", "charrnn/h128_logits", "batch3_", LETTERS),
    model("charrnn/h128_scan", "charrnn/h128_logits", "batch3_", LETTERS),
    model("charrnn/h96x2_lstm", "charrnn/h96x2_logits", "batch3_", LETTERS_OF_TWO),
    model("charrnn/h96x2_scan", "charrnn/h96x2_logits", "batch3_", LETTERS_OF_TWO),
    model("exports/bert", "exports/bert", "", &[]),
    model("exports/convnext", "exports/convnext", "", &[]),
    model("exports/decoder", "exports/decoder", "", &[]),
    model("exports/efficientnet", "exports/efficientnet", "", &[]),
    model("exports/mobilenet", "exports/mobilenet", "", &[]),
    model("exports/swin", "exports/swin", "", &[]),
    model("exports/unet", "exports/unet", "", &[]),
    model("exports/vit", "exports/vit", "", &[]),
];

/// Loops, conditionals and scans.
const CONTROL_FLOW: &[&str] = &[
    "counted_loop_scan_outputs",
    "counted_loop_then_reverse",
    "if_different_dims",
    "if_different_ranks",
    "if_empty_else",
    "if_inside_loop",
    "if_two_outputs_constants",
    "loop_inside_if",
    "loop_invariant_capture",
    "loop_swap",
    "nested_loops",
    "scan_axis1_reverse_output",
    "scan_forward",
    "scan_reverse",
    "scan_reverse_input",
    "sum_even",
    "while_collatz",
    "while_newton_bounded",
    "zero_trip_loop",
];

/// Models with sizes that nothing bounds before the run: the host reads them. `while_collatz` stacks the
/// values of as many iterations as its condition makes, without a count. (A count that is an input is given
/// to the host with it, and bounds the iterations. Where it is stored in the caller's memory on the device,
/// it does not, and the host reads it.)
const UNBOUNDED: &[&str] = &["while_collatz"];

/// Runs three times, then with the stream held up; an error says what went wrong.
fn held(context: &mut ExecutionContext, inputs: &[(String, Tensor)]) -> Result<(), String> {
    let text = |e: kiln_runtime::RuntimeError| e.to_string();
    let mut stream = HeldStream::new()?;
    // SAFETY: the stream outlives its use: null is set below.
    unsafe { context.set_stream(stream.handle()) }.map_err(text)?;
    for (name, t) in inputs {
        context.set_input(name, t.clone()).map_err(text)?;
    }
    let mut wanted = kiln_runtime::Outputs::default();
    for _ in 0..3 {
        context.enqueue().map_err(text)?;
        wanted = context.outputs().map_err(text)?;
    }
    let gate = stream.hold(MOST)?;
    context.enqueue().map_err(text)?;
    let waited = gate.passed();
    gate.open();
    let found = context.outputs().map_err(text)?;
    let overtook = !gate.passed();
    // SAFETY: null is always allowed.
    unsafe { context.set_stream(std::ptr::null_mut()) }.map_err(text)?;
    match (waited, overtook, found == wanted) {
        (true, ..) => Err("enqueue waited for the stream".into()),
        (_, true, _) => Err("the run overtook what was in the stream".into()),
        (.., false) => Err("other results than before".into()),
        _ => Ok(()),
    }
}

/// The inputs of an engine among arrays, the first 100 rows of data sets.
fn inputs_of(
    e: &kiln_runtime::Engine,
    all: &BTreeMap<String, Tensor>,
    prefix: &str,
) -> Vec<(String, Tensor)> {
    let names = e.io_tensors().iter().filter(|t| t.mode == kiln_runtime::IoMode::Input);
    let given = |name: &str| {
        let t = all.get(&format!("{prefix}{name}")).or_else(|| all.get("images")).cloned();
        let t = t.unwrap_or_else(|| panic!("no array {prefix}{name} in {:?}", all.keys()));
        if t.shape()[..1] == [500] { kiln_tests::models::rows(&t, 0, 100).unwrap() } else { t }
    };
    names.map(|t| (t.name.clone(), given(&t.name))).collect()
}

/// One candidate a region is compiled, none is timed.
fn config() -> BuildConfig {
    BuildConfig { estimates: true, search: false, ..BuildConfig::default() }
}

fn check(backend: &Arc<dyn Backend>, m: &Model) -> Result<(), String> {
    let e = engine(&format!("{}.onnx", m.path), backend, m.shapes, config())?;
    let all = archive(&format!("{}.npz", m.inputs))?;
    held(&mut e.create_context().map_err(|e| e.to_string())?, &inputs_of(&e, &all, m.prefix))
}

#[test]
fn enqueue_returns_while_the_stream_is_held_up() {
    let Some(backend) = cuda().unwrap() else { return };
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let failed = |m: &Model| check(&backend, m).err().map(|e| format!("{}: {e}", m.path));
    let wrong: Vec<String> = MODELS.iter().filter_map(failed).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The first case of a model of control flow, with its inputs' own shapes.
fn flow(backend: &Arc<dyn Backend>, name: &str) -> Result<(), String> {
    let all = archive(&format!("control_flow/{name}.npz"))?;
    let case = all.keys().find_map(|k| Some(k.split_once("/in/")?.0.to_owned())).unwrap_or_default();
    let own: Vec<(String, Tensor)> = all
        .iter()
        .filter_map(|(k, t)| Some((k.strip_prefix(&format!("{case}/in/"))?.to_owned(), t.clone())))
        .collect();
    let dims: Vec<(String, Vec<i64>)> =
        own.iter().map(|(n, t)| (n.clone(), t.shape().iter().map(|&d| d as i64).collect())).collect();
    let shapes: Vec<(&str, [&[i64]; 3])> = dims.iter().map(|(n, d)| (n.as_str(), [&**d; 3])).collect();
    let e = engine(&format!("control_flow/{name}.onnx"), backend, &shapes, config())?;
    held(&mut e.create_context().map_err(|e| e.to_string())?, &own)
}

#[test]
fn enqueue_of_control_flow_returns_while_the_stream_is_held_up() {
    let Some(backend) = cuda().unwrap() else { return };
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut wrong = Vec::new();
    for name in CONTROL_FLOW {
        match (flow(&backend, name), UNBOUNDED.contains(name)) {
            (Err(e), false) => wrong.push(format!("{name}: {e}")),
            (Ok(()), true) => wrong.push(format!("{name} returns; take it off the list")),
            (Ok(()), false) | (Err(_), true) => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
