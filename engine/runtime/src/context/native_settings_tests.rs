//! Settings survive the context that they were set on.
#![allow(clippy::unwrap_used, reason = "a failed test panics")]

use super::*;
use kiln_backend::{Counters, NativeContext, Shapes, StepTime};
use kiln_ir::{Tensor, ValueId};
use std::sync::{Arc, Mutex};

type Calls = Arc<Mutex<Vec<String>>>;

/// Notes what is set on it, and its end.
struct Recorder(Calls);

impl Recorder {
    fn note(&self, call: String) {
        self.0.lock().unwrap().push(call);
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.note("dropped".into());
    }
}

fn none<T>() -> Result<T, BackendError> {
    Err(BackendError::Unsupported("a recorder".into()))
}

impl Context for Recorder {
    fn enqueue(&mut self, _: &[Tensor], _: &Arc<Shapes>) -> Result<(), BackendError> {
        none()
    }
    fn outputs(&mut self) -> Result<Vec<Tensor>, BackendError> {
        none()
    }
    fn observe(&mut self, _: ValueId) -> Result<Tensor, BackendError> {
        none()
    }
    fn set_observable(&mut self, _: bool) {}
    fn step_times(&mut self) -> Result<Vec<StepTime>, BackendError> {
        none()
    }
    fn counters(&self) -> Counters {
        Counters::default()
    }
    fn native(&mut self) -> Option<&mut dyn NativeContext> {
        Some(self)
    }
}

impl NativeContext for Recorder {
    unsafe fn set_stream(&mut self, stream: *mut c_void) -> Result<(), BackendError> {
        self.note(format!("stream {}", stream as usize));
        Ok(())
    }
    unsafe fn bind(&mut self, port: Bound, address: *mut c_void, bytes: u64) -> Result<(), BackendError> {
        self.note(format!("{port:?} at {}, {bytes}", address as usize));
        Ok(())
    }
    unsafe fn set_consumed_event(&mut self, event: *mut c_void) -> Result<(), BackendError> {
        self.note(format!("event {}", event as usize));
        Ok(())
    }
    unsafe fn set_memory(&mut self, address: *mut c_void, bytes: u64) -> Result<(), BackendError> {
        self.note(format!("memory at {}, {bytes}", address as usize));
        Ok(())
    }
    fn address(&mut self, _: Bound) -> Result<(*mut c_void, u64), BackendError> {
        none()
    }
}

fn at(n: usize) -> *mut c_void {
    n as *mut c_void
}

#[test]
fn what_a_caller_set_is_set_on_the_context_of_a_refit() {
    let calls = Calls::default();
    let mut s = NativeSettings::default();
    s.apply(&mut Recorder(calls.clone())).unwrap();
    s.set_stream(at(1));
    s.set_event(at(2));
    s.set_memory(at(512), 1024);
    s.bind(Bound::Input(0), at(64), 8, false);
    s.bind(Bound::Input(0), at(128), 8, false);
    s.bind(Bound::Output(1), at(192), 16, false);
    s.bind(Bound::Output(0), at(256), 16, false);
    s.bind(Bound::Output(0), at(0), 0, false);
    s.apply(&mut Recorder(calls.clone())).unwrap();
    let found = calls.lock().unwrap().clone();
    let wanted = [
        "dropped",
        "stream 1",
        "event 2",
        "memory at 512, 1024",
        "Input(0) at 128, 8",
        "Output(1) at 192, 16",
        "dropped",
    ];
    assert_eq!(found, wanted);
}

#[test]
fn a_context_whose_memory_is_bound_outlives_the_refit() {
    let calls = Calls::default();
    let ended = || calls.lock().unwrap().iter().filter(|c| *c == "dropped").count();
    let mut s = NativeSettings::default();
    s.retire(Box::new(Recorder(calls.clone())));
    assert_eq!(ended(), 1, "nothing is bound");
    s.bind(Bound::Input(0), at(64), 8, true);
    s.retire(Box::new(Recorder(calls.clone())));
    assert_eq!(ended(), 1, "its memory is bound");
    s.retire(Box::new(Recorder(calls.clone())));
    assert_eq!(ended(), 2, "the memory is the first one's");
    s.bind(Bound::Input(0), at(0), 0, false);
    assert_eq!(ended(), 3, "nobody binds it any more");
}
