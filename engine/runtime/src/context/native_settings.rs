//! Native handles that a caller set on a context, kept for the context that a refit makes.

use kiln_backend::{BackendError, Bound, Context};
use std::ffi::c_void;

/// A native handle or device address as a number, which may move between threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Handle(usize);

impl Handle {
    /// The handle, unless it is null.
    fn of(pointer: *mut c_void) -> Option<Handle> {
        (!pointer.is_null()).then_some(Handle(pointer as usize))
    }

    fn pointer(self) -> *mut c_void {
        self.0 as *mut c_void
    }
}

/// Memory that a caller bound.
#[derive(Clone, Copy, Debug)]
struct Binding {
    port: Bound,
    address: Handle,
    bytes: u64,
    /// Whether it is a context's own memory.
    own: bool,
}

/// Stream, event and bindings of a context. The caller vouched that they stay valid until they are replaced or the context is
/// dropped, refits included.
#[derive(Default)]
pub(super) struct NativeSettings {
    stream: Option<Handle>,
    event: Option<Handle>,
    bindings: Vec<Binding>,
    /// The context of before a refit whose own memory is bound.
    owner: Option<Box<dyn Context>>,
}

impl NativeSettings {
    pub(super) fn set_stream(&mut self, stream: *mut c_void) {
        self.stream = Handle::of(stream);
    }

    pub(super) fn set_event(&mut self, event: *mut c_void) {
        self.event = Handle::of(event);
    }

    /// Notes a binding; null ends it. `own` says that the memory is the context's.
    pub(super) fn bind(&mut self, port: Bound, address: *mut c_void, bytes: u64, own: bool) {
        self.bindings.retain(|b| b.port != port);
        self.bindings.extend(Handle::of(address).map(|address| Binding { port, address, bytes, own }));
        if self.bindings.iter().all(|b| !b.own) {
            self.owner = None;
        }
    }

    /// Sets everything on a new context.
    pub(super) fn apply(&self, context: &mut dyn Context) -> Result<(), BackendError> {
        let NativeSettings { stream, event, bindings, owner: _ } = self;
        if stream.is_none() && event.is_none() && bindings.is_empty() {
            return Ok(());
        }
        let native = context.require_native()?;
        if let Some(stream) = stream {
            // SAFETY: the caller vouched for it until it is replaced or the context is dropped.
            unsafe { native.set_stream(stream.pointer()) }?;
        }
        if let Some(event) = event {
            // SAFETY: as of the stream.
            unsafe { native.set_consumed_event(event.pointer()) }?;
        }
        for b in bindings {
            // SAFETY: as of the stream; own memory lives as long as `owner`, or the context that is replaced.
            unsafe { native.bind(b.port, b.address.pointer(), b.bytes) }?;
        }
        Ok(())
    }

    /// Takes the context that a new one replaces, and keeps it where its memory is bound.
    pub(super) fn retire(&mut self, old: Box<dyn Context>) {
        if self.owner.is_none() && self.bindings.iter().any(|b| b.own) {
            self.owner = Some(old);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test panics")]
mod tests {
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
        s.bind(Bound::Input(0), at(64), 8, false);
        s.bind(Bound::Input(0), at(128), 8, false);
        s.bind(Bound::Output(1), at(192), 16, false);
        s.bind(Bound::Output(0), at(256), 16, false);
        s.bind(Bound::Output(0), at(0), 0, false);
        s.apply(&mut Recorder(calls.clone())).unwrap();
        let found = calls.lock().unwrap().clone();
        let wanted =
            ["dropped", "stream 1", "event 2", "Input(0) at 128, 8", "Output(1) at 192, 16", "dropped"];
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
}
