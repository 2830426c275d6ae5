//! Error recorders of engines and contexts.

use crate::{Engine, ExecutionContext, RuntimeError};
use kiln_ir::{ErrorRecorder, describe};
use std::sync::{Arc, PoisonError, RwLock};

/// The recorder of an object, if one is set.
#[derive(Clone, Default)]
pub(crate) struct Recorder(Arc<RwLock<Option<Arc<dyn ErrorRecorder>>>>);

impl Recorder {
    /// With this recorder at first.
    pub(crate) fn of(recorder: Option<Arc<dyn ErrorRecorder>>) -> Recorder {
        Recorder(Arc::new(RwLock::new(recorder)))
    }

    pub(crate) fn set(&self, recorder: Option<Arc<dyn ErrorRecorder>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = recorder;
    }

    pub(crate) fn get(&self) -> Option<Arc<dyn ErrorRecorder>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A result, reported if it is an error.
    pub(crate) fn note<T>(&self, result: Result<T, RuntimeError>) -> Result<T, RuntimeError> {
        result.inspect_err(|e| {
            if let Some(recorder) = self.get() {
                recorder.report(e.code(), &describe(e));
            }
        })
    }
}

impl Engine {
    /// Reports errors of the engine, of its refits and of contexts that are made from now on to a recorder, too.
    pub fn set_error_recorder(&self, recorder: Option<Arc<dyn ErrorRecorder>>) {
        self.shared.recorder.set(recorder);
    }

    /// The recorder that is set.
    pub fn error_recorder(&self) -> Option<Arc<dyn ErrorRecorder>> {
        self.shared.recorder.get()
    }
}

impl ExecutionContext {
    /// Reports errors of this context to a recorder, too: first to that of its engine.
    pub fn set_error_recorder(&mut self, recorder: Option<Arc<dyn ErrorRecorder>>) {
        self.recorder.set(recorder);
    }

    /// The recorder that is set.
    pub fn error_recorder(&self) -> Option<Arc<dyn ErrorRecorder>> {
        self.recorder.get()
    }
}
