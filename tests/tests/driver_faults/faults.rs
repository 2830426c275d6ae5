//! Faults of calls, one after the other: which are tried, and what must be true after each.

use crate::cases::{Case, Cx};
use kiln_backend::BackendError;
use kiln_ir::problem::Rng;
use kiln_runtime::RuntimeError;
use std::collections::BTreeMap;

pub use kiln_runtime::Outputs;

/// Meaning of a result code.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Memory,
    Unsupported,
    Lost,
    Internal,
}

/// Result codes. After those of a lost device every call fails until the context has ended.
const CODES: [(i32, Kind); 8] = [
    (1, Kind::Internal),   // invalid value
    (2, Kind::Memory),     // out of memory
    (999, Kind::Internal), // unknown
    (600, Kind::Internal), // not ready
    (801, Kind::Unsupported),
    (719, Kind::Lost), // launch failed
    (700, Kind::Lost), // illegal address
    (214, Kind::Lost), // uncorrectable memory error
];

/// Calls whose failure may go unnoticed: they give back, tidy up, or have another way to their end.
const TOLERATED: [&str; 18] = [
    "cuCtxSetCurrent",
    "cuDevicePrimaryCtxRelease_v2",
    "cuEventDestroy_v2",
    "cuEventQuery",
    "cuEventRecordWithFlags",
    "cuEventSynchronize",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphExecUpdate_v2",
    "cuMemFreeAsync",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemPoolDestroy",
    "cuMemPoolTrimTo",
    "cuModuleUnload",
    "cuStreamDestroy_v2",
    "cuStreamQuery",
    "cuStreamSynchronize",
];

/// Questions to which "not ready" is an answer.
const POLLS: [&str; 2] = ["cuStreamQuery", "cuEventQuery"];

/// Calls on behalf of a layer, which the error names.
const OF_LAYERS: [&str; 3] = ["cuLaunchKernelEx", "cuTensorMapEncodeTiled", "cuTensorMapEncodeIm2col"];

/// The errors of a session, and what is done after the first.
#[derive(Default)]
pub struct Faults<'a>(Vec<RuntimeError>, Option<Box<dyn Fn() + 'a>>);

impl std::fmt::Debug for Faults<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

pub fn source(e: &RuntimeError) -> &BackendError {
    match e {
        RuntimeError::Backend { source, .. } => source,
        other => panic!("{other:?}"),
    }
}

fn kind(e: &BackendError) -> Kind {
    match e {
        BackendError::OutOfMemory { .. } => Kind::Memory,
        BackendError::Unsupported(_) => Kind::Unsupported,
        BackendError::DeviceLost(_) => Kind::Lost,
        BackendError::Internal(_) => Kind::Internal,
        other => panic!("{other:?}"),
    }
}

impl<'a> Faults<'a> {
    /// `remedy` is done after each error, so that the next try succeeds.
    pub fn with_remedy(remedy: impl Fn() + 'a) -> Faults<'a> {
        Faults(Vec::new(), Some(Box::new(remedy)))
    }

    /// Whether all errors are of a device that did not end its work in time, and there are some.
    pub fn hung(&self) -> bool {
        let of = |e| matches!(source(e), BackendError::DeviceLost(m) if m.contains("KILN_DEVICE_TIMEOUT"));
        !self.0.is_empty() && self.0.iter().all(of)
    }

    /// Whether all errors are of memory, and there are some.
    pub fn of_memory(&self) -> bool {
        assert!(self.0.iter().all(|e| kind(source(e)) == Kind::Memory), "{self:?}");
        !self.0.is_empty()
    }

    /// A part of a session that may fail is tried once more where it does: it succeeds, unless the device is lost.
    pub fn twice<T>(&mut self, mut f: impl FnMut() -> Result<T, RuntimeError>) -> Option<T> {
        let e = match f() {
            Ok(t) => return Some(t),
            Err(e) => e,
        };
        let first = e.to_string();
        self.0.push(e);
        self.1.iter().for_each(|remedy| remedy());
        match f() {
            Ok(t) => Some(t),
            Err(e) if kind(source(&e)) == Kind::Lost => {
                self.0.push(e);
                None
            }
            Err(e) => panic!("{first}; the next try fails, too: {e}"),
        }
    }
}

/// The calls to fail: all, or one of each function.
fn chosen(trace: &[String], whole: bool, rng: &mut Rng) -> Vec<usize> {
    if whole {
        return (0..trace.len()).collect();
    }
    let mut of = BTreeMap::<&str, Vec<usize>>::new();
    trace.iter().enumerate().for_each(|(n, name)| of.entry(name).or_default().push(n));
    of.values().map(|all| all[rng.int(0, all.len() as i64 - 1) as usize]).collect()
}

/// Fails calls of a session with each code; how many were failed.
pub fn all_calls(case: &Case, cx: &Cx, whole: bool, rng: &mut Rng) -> usize {
    let fake = &cx.fake;
    fake.start(-1, 0);
    let mut none = Faults::default();
    let expected = case.session(cx, &mut none);
    let trace = fake.trace();
    assert!(none.0.is_empty(), "{}: {:?}", case.name, none.0);
    assert_eq!(fake.misuse(), "", "{}", case.name);
    assert_eq!(fake.alive(), "", "{}", case.name);
    let calls = chosen(&trace, whole, rng);
    for &n in &calls {
        for (code, kind) in CODES {
            fake.start(n as i64, code);
            let mut faults = Faults::default();
            let found = case.session(cx, &mut faults);
            let call = fake.failed();
            let what = format!("{}: call {n} ({call}) fails with {code}", case.name);
            check(case, &what, (&call, code, kind), &faults.0);
            if let Some(found) = found {
                assert!(Some(found) == expected, "{what}: other outputs");
            } else {
                assert_eq!(kind, Kind::Lost, "{what}");
            }
            assert_eq!(fake.misuse(), "", "{what}: {:?}", faults.0);
            assert_eq!(fake.alive(), "", "{what}: not given back; {:?}", faults.0);
        }
    }
    println!("{}: {} of {} calls, each with {} codes", case.name, calls.len(), trace.len(), CODES.len());
    calls.len() * CODES.len()
}

/// The errors of a session in which one call failed.
fn check(case: &Case, what: &str, (call, code, wanted): (&str, i32, Kind), errors: &[RuntimeError]) {
    let Some(first) = errors.first() else {
        let polled = code == 600 && POLLS.contains(&call);
        assert!(polled || TOLERATED.contains(&call), "{what}: nobody notices");
        return;
    };
    assert_eq!(kind(source(first)), wanted, "{what}: {first:?}");
    assert!(errors.len() == 1 || wanted == Kind::Lost, "{what}: {errors:?}");
    let text = source(first).to_string();
    // A call whose failure went unnoticed has made the context unusable: a later one tells.
    let told = text.split(|c: char| !c.is_alphanumeric()).any(|w| w.len() > 6 && call.starts_with(w));
    assert!(told || wanted == Kind::Lost && TOLERATED.contains(&call), "{what}: names no call: {text}");
    assert!(text.contains(&format!("FAKE_{code}")), "{what}: names no code: {text}");
    if wanted == Kind::Lost {
        assert!(text.contains("end it and start another"), "{what}: no advice: {text}");
    }
    if OF_LAYERS.contains(&call) {
        let named = case.layers().iter().any(|l| text.contains(&format!("layer \"{l}\"")));
        assert!(named, "{what}: names no layer: {text}");
    }
}
