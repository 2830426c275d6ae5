//! One thread that looks at contexts when the limits of their runs are over.

use crate::cancel::Control;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Instant;

struct Timer {
    waiting: Mutex<Waiting>,
    earlier: Condvar,
}

struct Waiting {
    contexts: Vec<(Instant, Weak<Control>)>,
    started: bool,
}

static TIMER: Timer =
    Timer { waiting: Mutex::new(Waiting { contexts: Vec::new(), started: false }), earlier: Condvar::new() };

/// Has a context looked at as soon as it is this time. An error where the thread can't be made.
pub(crate) fn at(when: Instant, control: &Arc<Control>) -> std::io::Result<()> {
    let mut w = TIMER.waiting.lock().unwrap_or_else(PoisonError::into_inner);
    if !w.started {
        std::thread::Builder::new().name("kiln-timer".into()).spawn(keep)?;
        w.started = true;
    }
    w.contexts.push((when, Arc::downgrade(control)));
    TIMER.earlier.notify_one();
    Ok(())
}

fn keep() {
    let mut w = TIMER.waiting.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let now = Instant::now();
        let due: Vec<_> = w.contexts.extract_if(.., |(at, _)| *at <= now).collect();
        if !due.is_empty() {
            // Contexts lock themselves, and then this list.
            drop(w);
            let look = |(_, c): (Instant, Weak<Control>)| Some((c.upgrade()?.look(now)?, c));
            let again: Vec<_> = due.into_iter().filter_map(look).collect();
            w = TIMER.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            w.contexts.extend(again);
            continue;
        }
        let next = w.contexts.iter().map(|c| c.0).min();
        w = match next {
            Some(at) => {
                let waited = TIMER.earlier.wait_timeout(w, at - now);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => TIMER.earlier.wait(w).unwrap_or_else(PoisonError::into_inner),
        };
    }
}
