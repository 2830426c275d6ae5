//! Messages of Kiln for a function of Python.

use crate::scope::{Callback, lock};
use pyo3::prelude::*;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, Once};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// The function that receives messages.
static RECEIVER: Mutex<Option<Arc<Callback>>> = Mutex::new(None);

/// Passes events on.
struct Forward;

/// Text of an event: its message, then its other fields.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = match field.name() {
            "message" => format!("{value:?}"),
            name => format!(" {name}={value:?}"),
        };
        self.0.push_str(&text);
    }
}

impl<S: Subscriber> Layer<S> for Forward {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let level = match *event.metadata().level() {
            Level::ERROR => 1,
            Level::WARN => 2,
            Level::INFO => 3,
            _ => 4,
        };
        let receiver = lock(&RECEIVER).clone();
        if let Some(receiver) = receiver {
            let mut text = Text::default();
            event.record(&mut text);
            receiver.call(|f| f.call1((level, text.0)).map(drop));
        }
    }
}

/// Passes messages of Kiln on to a function, or ends it.
#[pyfunction]
pub fn set_log(callback: Option<Bound<'_, PyAny>>) -> PyResult<()> {
    static INSTALLED: Once = Once::new();
    let ours = |m: &tracing::Metadata<'_>| m.target().starts_with("kiln") && *m.level() <= Level::DEBUG;
    INSTALLED.call_once(|| {
        let filter = tracing_subscriber::filter::filter_fn(ours);
        // Where the process has a subscriber already, messages go there.
        drop(tracing_subscriber::registry().with(Forward.with_filter(filter)).try_init());
    });
    let old = std::mem::replace(&mut *lock(&RECEIVER), callback.map(Callback::new));
    drop(old);
    Ok(())
}
