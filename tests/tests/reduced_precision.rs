//! Trained models in TF32, FP16 and BF16: as good as in FP32, within 0.2 points of accuracy and 1e-2 of the logits.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

use kiln_backend::Backend;
use kiln_builder::{BuildConfig, Narrowing, Refit};
use kiln_ir::{DType, Tensor};
use kiln_tests::backends::{cpu, cuda_with_tf32, wgpu};
use kiln_tests::models::{Shapes, archive, argmax, engine, rows};
use std::sync::Arc;

/// A way to compute.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    F32,
    Tf32,
    F16,
    BF16,
}

use Kind::{BF16, F16, F32, Tf32};

impl Kind {
    fn config(self) -> BuildConfig {
        let reduced = match self {
            F32 | Tf32 => Vec::new(),
            F16 => vec![DType::F16],
            BF16 => vec![DType::BF16],
        };
        let narrowing = Narrowing::Everywhere;
        let tf32 = self == Tf32;
        BuildConfig { reduced, narrowing, tf32, samples: 1, max_tactics: 1, ..BuildConfig::default() }
    }
}

/// Quality of a model's answers: the number of right ones, and the distance of some logits from those of
/// FP32, as ‖found − wanted‖ / ‖wanted‖.
struct Figures {
    correct: usize,
    of: usize,
    far: f64,
}

/// The most that reduced precision may cost, in points of accuracy, and relative to the logits.
const POINTS: f64 = 0.2;
const LOGITS: f64 = 1e-2;

impl Figures {
    fn new(predicted: &[usize], labels: &[i64], found: &Tensor, wanted: &Tensor) -> Figures {
        assert_eq!((predicted.len(), found.shape()), (labels.len(), wanted.shape()));
        let correct = labels.iter().zip(predicted).filter(|(l, p)| **l == **p as i64).count();
        let norm = |v: &mut dyn Iterator<Item = f64>| v.map(|x| x * x).sum::<f64>().sqrt();
        let (found, wanted) = (found.to_f64(), wanted.to_f64());
        let apart = norm(&mut found.iter().zip(&wanted).map(|(a, b)| a - b));
        Figures { correct, of: labels.len(), far: apart / norm(&mut wanted.iter().copied()) }
    }

    /// Description of a fault in them, if there is one.
    fn fault(&self, kind: Kind, wanted: usize, most: f64) -> Option<String> {
        let points = 100.0 * self.correct.abs_diff(wanted) as f64 / self.of as f64;
        let allowed = if kind == F32 { (0.0, 1e-4) } else { (POINTS, LOGITS) };
        let fine = points <= allowed.0 + 1e-9 && self.far <= allowed.1.max(most);
        let words =
            format!("{} of {} right, {wanted} wanted; logits off by {:.1e}", self.correct, self.of, self.far);
        println!("{words}");
        (!fine).then_some(words)
    }
}

const IMAGES: Shapes<'static> = &[("input", [&[1, 1, 28, 28], &[100, 1, 28, 28], &[100, 1, 28, 28]])];

/// Models of digits, how many of the 500 test images they know, and how far their logits may be from ONNX Runtime's: of
/// quantized ones one step of the quantizer.
const DIGITS: &[(&str, usize, f64)] = &[
    ("lenet_a", 497, 0.0),
    ("lenet_b", 490, 0.0),
    ("lenet_a_bn", 499, 0.0),
    ("lenet_a_sparse24", 498, 0.0),
    ("lenet_a_qdq", 497, 2e-2),
    ("lenet_a_qdq_ort", 497, 2e-2),
];

fn digits(backend: &Arc<dyn Backend>, kind: Kind, model: &str) -> Result<Figures, String> {
    let e = engine(&format!("digits/{model}.onnx"), backend, IMAGES, kind.config())?;
    let test = archive("digits/digits_test.npz")?;
    let mut context = e.create_context().map_err(|e| e.to_string())?;
    let (mut predicted, mut first) = (Vec::new(), None);
    for at in (0..500).step_by(100) {
        let batch = rows(&test["images"], at, at + 100)?;
        let logits = context.run(&[("input", batch)]).map_err(|e| e.to_string())?.remove(0).1;
        predicted.extend(argmax(&logits));
        first.get_or_insert(rows(&logits, 0, 16)?);
    }
    let wanted = &archive(&format!("digits/logits_{model}.npz"))?["logits"];
    Ok(Figures::new(&predicted, &test["labels"].to_i64(), &first.unwrap(), wanted))
}

const TEXTS: Shapes<'static> = &[
    ("input_ids", [&[1, 65], &[100, 65], &[100, 65]]),
    ("attention_mask", [&[1, 65], &[100, 65], &[100, 65]]),
];

/// Number of the first texts that ONNX Runtime knows.
fn known(texts: usize) -> usize {
    let wanted = archive("nlp/logits_bert_tiny.npz").unwrap()["pred"].to_i64();
    let labels = archive("nlp/nlp_test.npz").unwrap()["labels"].to_i64();
    wanted.iter().zip(labels).take(texts).filter(|(p, l)| *p == l).count()
}

fn texts(backend: &Arc<dyn Backend>, kind: Kind, count: usize) -> Result<Figures, String> {
    let e = engine("nlp/bert_tiny.onnx", backend, TEXTS, kind.config())?;
    let test = archive("nlp/nlp_test.npz")?;
    let mut context = e.create_context().map_err(|e| e.to_string())?;
    let (mut predicted, mut first) = (Vec::new(), None);
    for at in (0..count).step_by(100) {
        let ids = rows(&test["input_ids"], at, at + 100)?;
        let mask = Tensor::i64(ids.shape(), &vec![1; ids.len()]).unwrap();
        let given = [("input_ids", ids), ("attention_mask", mask)];
        let logits = context.run(&given).map_err(|e| e.to_string())?.remove(0).1;
        predicted.extend(argmax(&logits));
        first.get_or_insert(rows(&logits, 0, 16)?);
    }
    let wanted = &archive("nlp/logits_bert_tiny.npz")?["logits"];
    Ok(Figures::new(&predicted, &test["labels"].to_i64()[..count], &first.unwrap(), wanted))
}

/// Models of letters: name, layers, width, and how many of 1,999 letters they foresee.
const LETTERS: &[(&str, i64, i64, usize)] = &[("h128", 1, 128, 1418), ("h96x2", 2, 96, 1423)];

/// The held-out passage as numbers of letters.
fn passage() -> Vec<i64> {
    let text = std::fs::read_to_string(kiln_tests::models::data("charrnn/heldout.txt")).unwrap();
    let words = std::fs::read_to_string(kiln_tests::models::data("charrnn/vocab.json")).unwrap();
    let words: serde_json::Value = serde_json::from_str(&words).unwrap();
    let chars: Vec<char> = match &words["chars"] {
        serde_json::Value::String(s) => s.chars().collect(),
        list => {
            list.as_array().unwrap().iter().map(|c| c.as_str().unwrap().chars().next().unwrap()).collect()
        }
    };
    text.chars().map(|c| chars.iter().position(|x| *x == c).unwrap() as i64).collect()
}

fn letters(
    backend: &Arc<dyn Backend>,
    kind: Kind,
    (name, layers, width, _): (&str, i64, i64, usize),
) -> Result<Figures, String> {
    let passage = passage();
    let (length, state) = (passage.len() as i64 - 1, [layers, 1, width]);
    let ids: [&[i64]; 3] = [&[1, 1], &[length, 1], &[length, 1]];
    let shapes: Shapes<'_> = &[("ids", ids), ("h0", [&state; 3]), ("c0", [&state; 3])];
    let e = engine(&format!("charrnn/{name}_lstm.onnx"), backend, shapes, kind.config())?;
    let zeros = Tensor::zeros(DType::F32, &[layers as usize, 1, width as usize]).unwrap();
    let ids = Tensor::i64(&[length as usize, 1], &passage[..length as usize]).unwrap();
    let given = [("ids", ids), ("h0", zeros.clone()), ("c0", zeros)];
    let mut context = e.create_context().map_err(|e| e.to_string())?;
    let outputs = context.run(&given).map_err(|e| e.to_string())?;
    let logits = &outputs.iter().find(|(n, _)| n == "logits").ok_or("no logits")?.1;
    let classes = logits.len() / length as usize;
    let logits = logits.clone().reshaped(&[length as usize, classes]).ok_or("another shape")?;
    let wanted = &archive(&format!("charrnn/{name}_logits.npz"))?["heldout_logits_first64"];
    Ok(Figures::new(&argmax(&logits), &passage[1..], &rows(&logits, 0, 64)?, wanted))
}

/// All faults of a backend in some ways to compute; quantized models, letters one after the other, and all texts only where there
/// is time.
fn check(backend: &Arc<dyn Backend>, kinds: &[Kind], all: bool) {
    let mut wrong = Vec::new();
    for &kind in kinds {
        let mut note = |model: &str, wanted: usize, most: f64, figures: Result<Figures, String>| {
            print!("{} {kind:?} {model}: ", backend.name());
            let fault = figures.map_or_else(Some, |f| f.fault(kind, wanted, most));
            wrong.extend(fault.map(|f| format!("{} {kind:?} {model}: {f}", backend.name())));
        };
        for &(model, wanted, most) in DIGITS.iter().filter(|m| all || !m.0.contains("qdq")) {
            note(model, wanted, most, digits(backend, kind, model));
        }
        let count = if all { 500 } else { 100 };
        note("bert_tiny", known(count), 0.0, texts(backend, kind, count));
        for &model in LETTERS.iter().filter(|_| all) {
            note(model.0, model.3, 0.0, letters(backend, kind, model));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn on_cpu() {
    check(&cpu(), &[F16, BF16], true);
}

#[test]
fn on_wgpu() {
    wgpu().unwrap().iter().for_each(|b| check(b, &[BF16], false));
}

#[test]
fn in_f32_on_cuda() {
    cuda_with_tf32().unwrap().iter().for_each(|b| check(b, &[F32], true));
}

#[test]
fn in_tf32_on_cuda() {
    cuda_with_tf32().unwrap().iter().for_each(|b| check(b, &[Tf32], true));
}

#[test]
fn in_f16_on_cuda() {
    cuda_with_tf32().unwrap().iter().for_each(|b| check(b, &[F16], true));
}

#[test]
fn in_bf16_on_cuda() {
    cuda_with_tf32().unwrap().iter().for_each(|b| check(b, &[BF16], true));
}

/// A narrow convolution has the batch normalization behind it in its weights, which are rounded once.
#[test]
fn batch_norms_are_in_the_weights_of_narrow_convolutions() {
    let shapes: Shapes = &[("input", [&[1, 1, 28, 28], &[1, 1, 28, 28], &[1, 1, 28, 28]])];
    for kind in [F16, BF16] {
        let config = BuildConfig { refit: Refit::All, estimates: true, ..kind.config() };
        let program = engine("digits/lenet_a_bn.onnx", &cpu(), shapes, config).unwrap().program();
        let g = &program.graph;
        assert!(g.nodes().all(|(_, n)| n.op.name() != "batch_norm"), "{kind:?}");
        let convolutions: Vec<_> = g.nodes().filter(|(_, n)| n.op.name() == "conv").collect();
        assert_eq!(convolutions.len(), 2);
        for (_, conv) in convolutions {
            let weight = g.weight(conv.inputs[1].unwrap()).unwrap();
            assert_eq!(weight.tensor.dtype(), kind.config().reduced[0], "{}", conv.name);
            let recipe = weight.recipe.as_ref().unwrap();
            let casts = recipe.graph.nodes().filter(|(_, n)| n.op.name() == "cast").count();
            assert!(recipe.sources.len() == 3 && casts == 1, "{:?}, {casts} casts", recipe.sources);
        }
    }
}
