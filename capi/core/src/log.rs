//! The log: what libraries of Kiln report of themselves, by a function of the caller.

use crate::callback::{Callback, kiln_destroy_fn};
use crate::error::{Fail, guard, kiln_error_t};
use kiln::ErrorCode;
use std::ffi::{c_char, c_void};
use std::fmt::{Debug, Write};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Errors that nobody is returned.
pub const KILN_LOG_ERROR: i32 = 1;
/// Facts that may be wrong, or slower than they could be.
pub const KILN_LOG_WARN: i32 = 2;
/// Steps of builds and runs.
pub const KILN_LOG_INFO: i32 = 3;
/// Details for whoever looks for a defect.
pub const KILN_LOG_DEBUG: i32 = 4;
/// All details.
pub const KILN_LOG_TRACE: i32 = 5;

/// Takes a message: its level, the part of Kiln that wrote it, and a text. They live for the call. Called by any thread; it must
/// not call functions of this library that log.
pub type kiln_log_fn = Option<
    unsafe extern "C" fn(
        user: *mut c_void,
        level: i32,
        target: *const c_char,
        target_length: usize,
        message: *const c_char,
        message_length: usize,
    ),
>;

type Function = unsafe extern "C" fn(*mut c_void, i32, *const c_char, usize, *const c_char, usize);

/// The function that is set, with the greatest level that it is called for.
type Sink = Option<(Arc<Callback<Function>>, i32)>;

static SINK: RwLock<Sink> = RwLock::new(None);

/// Whether this library is what the process's log goes to.
static INSTALLED: OnceLock<bool> = OnceLock::new();

fn sink() -> Sink {
    SINK.read().unwrap_or_else(PoisonError::into_inner).clone()
}

fn number(level: Level) -> i32 {
    match level {
        Level::ERROR => KILN_LOG_ERROR,
        Level::WARN => KILN_LOG_WARN,
        Level::INFO => KILN_LOG_INFO,
        Level::DEBUG => KILN_LOG_DEBUG,
        Level::TRACE => KILN_LOG_TRACE,
    }
}

/// Hands events to the function that is set.
struct ToSink;

impl Subscriber for ToSink {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && sink().is_some_and(|(_, most)| number(*metadata.level()) <= most)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match sink().map_or(0, |(_, most)| most) {
            0 => LevelFilter::OFF,
            KILN_LOG_ERROR => LevelFilter::ERROR,
            KILN_LOG_WARN => LevelFilter::WARN,
            KILN_LOG_INFO => LevelFilter::INFO,
            KILN_LOG_DEBUG => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        })
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let Some((callback, _)) = sink() else { return };
        let mut text = Text::default();
        event.record(&mut text);
        let (target, message) = (event.metadata().target(), text.message + &text.fields);
        let Callback { function, user, .. } = &*callback;
        let level = number(*event.metadata().level());
        // SAFETY: the caller's function for its pointer.
        unsafe {
            function(
                *user,
                level,
                target.as_ptr().cast(),
                target.len(),
                message.as_ptr().cast(),
                message.len(),
            );
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The text of an event: its message, and its fields behind it.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string never fails.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

/// Sends the log of this library to a function: messages up to a level, KILN_LOG_ERROR to KILN_LOG_TRACE. NULL ends it, which is
/// the state at first. The function before is freed once no thread calls it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kiln_log_set(
    function: kiln_log_fn,
    level: i32,
    user: *mut c_void,
    destroy: kiln_destroy_fn,
) -> *mut kiln_error_t {
    guard(|| {
        let callback = Callback::new(function, user, destroy).map(Arc::new);
        if callback.is_some() && !(KILN_LOG_ERROR..=KILN_LOG_TRACE).contains(&level) {
            return Err(Fail::argument(format!(
                "the level of the log is {level}, wanted {KILN_LOG_ERROR} to {KILN_LOG_TRACE}"
            )));
        }
        if !*INSTALLED.get_or_init(|| tracing::subscriber::set_global_default(ToSink).is_ok()) {
            return Err(Fail::new(
                ErrorCode::InvalidState,
                "the log of this library goes elsewhere already: a program in Rust that links it set a subscriber",
            ));
        }
        let before = {
            let mut sink = SINK.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *sink, callback.map(|c| (c, level)))
        };
        // Outside of the lock: it may call the function that frees the pointer.
        drop(before);
        tracing::callsite::rebuild_interest_cache();
        Ok(())
    })
}
