//! Kernels' texts are written when they are compiled, and only then.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use kiln_backend::{Backend, BackendError, Device, Region, Tactic, Target};
use kiln_backend_cuda::{Cuda, target, written};
use kiln_builder::{BuildConfig, Builder};
use kiln_codegen::offer::texts;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The backend for an H200 without a device: blobs are kernels' texts.
#[derive(Default)]
struct Printing {
    supports: AtomicUsize,
    tactics: AtomicUsize,
    compiled: AtomicUsize,
}

impl Printing {
    /// An answer for which no text is written.
    fn without_text<T>(&self, count: &AtomicUsize, answer: impl FnOnce() -> T) -> T {
        let before = texts();
        let answer = answer();
        assert_eq!(texts(), before);
        count.fetch_add(1, Relaxed);
        answer
    }
}

impl Backend for Printing {
    fn name(&self) -> &str {
        "cuda"
    }

    fn targets(&self) -> Result<Vec<Target>, BackendError> {
        Ok(vec![target::known("h200")?])
    }

    fn supports(&self, region: &Region, target: &Target) -> Result<(), BackendError> {
        self.without_text(&self.supports, || Cuda.supports(region, target))
    }

    fn tactics(&self, region: &Region, target: &Target) -> Result<Vec<Tactic>, BackendError> {
        self.without_text(&self.tactics, || Cuda.tactics(region, target))
    }

    fn compile(&self, region: &Region, tactic: &Tactic, target: &Target) -> Result<Vec<u8>, BackendError> {
        self.compiled.fetch_add(1, Relaxed);
        Ok(written(region, tactic, target)?.0.into_bytes())
    }

    fn open(&self, _: &Target) -> Result<Arc<dyn Device>, BackendError> {
        Err(BackendError::Unsupported("nothing is timed here".into()))
    }
}

#[test]
fn forming_the_regions_of_bert_writes_no_kernel() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/exports/bert.onnx");
    let network = kiln_onnx::parse_file(path, &kiln_onnx::ImportOptions::default()).unwrap().network;
    let backend = Arc::new(Printing::default());
    let target = backend.targets().unwrap().remove(0);
    let mut builder = Builder::new(backend.clone(), target);
    builder.config = BuildConfig { estimates: true, ..BuildConfig::default() };
    let built = builder.build(&network).unwrap();
    let [supports, tactics, compiled] =
        [&backend.supports, &backend.tactics, &backend.compiled].map(|n| n.load(Relaxed));
    assert!(built.steps.len() > 5, "{} steps", built.steps.len());
    // Each call of `compile` writes one text, and there are as many calls as different kernels.
    assert_eq!(texts(), compiled);
    assert!((1..=built.steps.len()).contains(&compiled), "{compiled} of {} steps", built.steps.len());
    assert!(supports > tactics && tactics > 0, "{supports} questions, {tactics} lists of tactics");
}
