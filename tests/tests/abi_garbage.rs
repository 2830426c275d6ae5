//! Answers of a backend are not believed: garbage is an error that names the defect.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]

use kiln_backend::{Backend, BackendError, Context, Tactic, TimeRequest};
use kiln_runtime::plugin::{LoadedBackend, Policy, load};
use std::sync::Arc;

mod abi;

use abi::programs::{affine, input, target};

fn backend(name: &str, wrongs: &[&str]) -> LoadedBackend {
    let plugin = load(&abi::mutant(name, wrongs), &Policy::default());
    plugin.unwrap_or_else(|e| panic!("{}", e.chain())).backend().unwrap()
}

#[test]
fn sinks_refuse_what_is_no_memory() {
    assert_eq!(backend("sinks", &[]).targets(), Ok(vec![]));
}

#[test]
fn payloads_that_are_broken() {
    for (name, cbor, says) in [
        ("not_cbor", "{0xFF}", "payload of targets"),
        ("cut_cbor", "{0x82, 0x80}", "payload of targets"),
        ("trailing", "{0x80, 0x80}", "1 bytes follow its end"),
        ("fieldless", "{0x81, 0xA0}", "missing value at index 0 (Target::backend)"),
        ("huge_claim", "{0x9B, 0x7F, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}", "payload of targets"),
    ] {
        match backend(name, &[&format!("TARGETS={cbor}")]).targets() {
            Err(BackendError::Incompatible(m)) => assert!(m.contains(says), "{m}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn statuses_and_their_messages() {
    let replaced = "\u{fffd}\u{fffd} is no UTF-8".to_owned();
    let oom = BackendError::OutOfMemory { what: replaced.clone(), bytes: 12 };
    assert_eq!(backend("oom", &["STATUS=KILN_OUT_OF_MEMORY"]).targets(), Err(oom));
    let positive = BackendError::Internal(format!("status 3, which is none: {replaced}"));
    assert_eq!(backend("positive", &["STATUS=3"]).targets(), Err(positive));
    let silent = BackendError::DeviceLost("the library gives no reason".into());
    assert_eq!(backend("silent", &["SILENT=KILN_DEVICE_LOST"]).targets(), Err(silent));
    assert_eq!(backend("cancelled", &["SILENT=KILN_CANCELLED"]).targets(), Err(BackendError::cancelled()));
}

#[test]
fn times_that_are_none() {
    let device = backend("nan", &[]).open(&target("any")).unwrap();
    let (program, ..) = affine("nan");
    let tactic = Tactic::plain("any");
    let request = TimeRequest { graph: &program.graph, tactic: &tactic, blob: &[], inputs: &[], samples: 1 };
    let e = device.time(&request).unwrap_err();
    assert!(matches!(&e, BackendError::Internal(m) if m.contains("sample 0 is NaN")), "{e}");
}

/// Error for the outputs of a backend; it should write one f32 tensor of two dimensions.
fn outputs(name: &str, wrongs: &[&str]) -> BackendError {
    let b = backend(name, wrongs);
    let device = b.open(&target("any")).unwrap();
    let (program, ..) = affine("any");
    let mut c: Box<dyn Context> = device.load(program.clone()).unwrap().context().unwrap();
    let inputs = [input(1)];
    c.enqueue(&inputs, &Arc::new(program.shapes(&inputs).unwrap())).unwrap();
    c.outputs().unwrap_err()
}

#[test]
fn outputs_that_can_not_be() {
    let internal = |e: BackendError, says: &str| {
        assert!(matches!(&e, BackendError::Internal(m) if m.contains(says)), "{e}");
    };
    internal(outputs("rank", &[]), "is f32[2], wanted f32[n,20]");
    internal(outputs("too_few", &["TIMES=0"]), "wrote 0 tensors, wanted 1");
    // The host refuses these as they are written; the backend passes its status on.
    for (name, wrong) in [
        ("too_many", "TIMES=2"),
        ("short", "LEN=7"),
        ("huge", "LEN=UINT64_MAX"),
        ("negative", "DIM=-2"),
        ("overflow", "DIM=INT64_MAX"),
        ("ranks", "NDIM=4000000000u"),
    ] {
        let e = outputs(name, &[wrong]);
        assert!(matches!(e, BackendError::InvalidArgument(_)), "{name}: {e}");
    }
    let e = outputs("dtype", &["DTYPE=200"]);
    assert!(matches!(e, BackendError::Incompatible(_)), "{e}");
}
