//! Native handles that a caller set on a context, kept for the context that a refit makes.

use kiln_backend::{BackendError, Bound, Context, TemporaryAllocator};
use std::ffi::c_void;
use std::sync::Arc;

/// A native handle or an address as a number, which may move between threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handle(usize);

impl Handle {
    /// The handle, unless it is null.
    pub(super) fn of(pointer: *mut c_void) -> Option<Handle> {
        (!pointer.is_null()).then_some(Handle(pointer as usize))
    }

    pub(super) fn pointer(self) -> *mut c_void {
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
    aux_streams: Vec<Handle>,
    event: Option<Handle>,
    memory: Option<(Handle, u64)>,
    allocator: Option<Arc<dyn TemporaryAllocator>>,
    bindings: Vec<Binding>,
    /// The context of before a refit whose own memory is bound.
    owner: Option<Box<dyn Context>>,
}

impl NativeSettings {
    pub(super) fn set_stream(&mut self, stream: *mut c_void) {
        self.stream = Handle::of(stream);
    }

    pub(super) fn set_aux_streams(&mut self, streams: &[*mut c_void]) {
        self.aux_streams = streams.iter().map(|&s| Handle(s as usize)).collect();
    }

    pub(super) fn set_event(&mut self, event: *mut c_void) {
        self.event = Handle::of(event);
    }

    pub(super) fn set_allocator(&mut self, allocator: Option<Arc<dyn TemporaryAllocator>>) {
        self.allocator = allocator;
    }

    pub(super) fn set_memory(&mut self, address: *mut c_void, bytes: u64) {
        self.memory = Handle::of(address).map(|a| (a, bytes));
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
        let NativeSettings { stream, aux_streams, event, memory, allocator, bindings, owner: _ } = self;
        let plain = stream.is_none()
            && aux_streams.is_empty()
            && event.is_none()
            && memory.is_none()
            && allocator.is_none();
        if plain && bindings.is_empty() {
            return Ok(());
        }
        let native = context.require_native()?;
        if let Some(allocator) = allocator {
            // SAFETY: the caller vouched for its memory until another one is set or the context is dropped.
            unsafe { native.set_allocator(Some(allocator.clone())) }?;
        }
        if let Some(stream) = stream {
            // SAFETY: the caller vouched for it until it is replaced or the context is dropped.
            unsafe { native.set_stream(stream.pointer()) }?;
        }
        if !aux_streams.is_empty() {
            let all: Vec<*mut c_void> = aux_streams.iter().map(|s| s.pointer()).collect();
            // SAFETY: as of the stream.
            unsafe { native.set_aux_streams(&all) }?;
        }
        if let Some(event) = event {
            // SAFETY: as of the stream.
            unsafe { native.set_consumed_event(event.pointer()) }?;
        }
        if let Some((address, bytes)) = memory {
            // SAFETY: as of the stream.
            unsafe { native.set_memory(address.pointer(), *bytes) }?;
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
#[path = "native_settings_tests.rs"]
mod tests;
