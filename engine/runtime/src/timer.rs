//! One thread that looks at runs when their time limits are over.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

struct Timer {
    waiting: Mutex<Waiting>,
    earlier: Condvar,
}

/// Looks at a run at a time and returns when to look again, if ever.
pub(crate) type Look = Box<dyn Fn(Instant) -> Option<Instant> + Send>;

struct Waiting {
    looks: Vec<(Instant, Look)>,
    started: bool,
}

static TIMER: Timer =
    Timer { waiting: Mutex::new(Waiting { looks: Vec::new(), started: false }), earlier: Condvar::new() };

/// Calls `look` as soon as it is this time. An error where the thread can't be made.
pub(crate) fn at(when: Instant, look: Look) -> std::io::Result<()> {
    let mut w = TIMER.waiting.lock().unwrap_or_else(PoisonError::into_inner);
    if !w.started {
        std::thread::Builder::new().name("kiln-timer".into()).spawn(keep)?;
        w.started = true;
    }
    w.looks.push((when, look));
    TIMER.earlier.notify_one();
    Ok(())
}

fn keep() {
    let mut w = TIMER.waiting.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let now = Instant::now();
        let due: Vec<_> = w.looks.extract_if(.., |(at, _)| *at <= now).collect();
        if !due.is_empty() {
            // Contexts lock themselves, and then this list.
            drop(w);
            let again: Vec<_> = due.into_iter().filter_map(|(_, look)| Some((look(now)?, look))).collect();
            w = TIMER.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            w.looks.extend(again);
            continue;
        }
        let next = w.looks.iter().map(|c| c.0).min();
        w = match next {
            Some(at) => {
                let waited = TIMER.earlier.wait_timeout(w, at - now);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => TIMER.earlier.wait(w).unwrap_or_else(PoisonError::into_inner),
        };
    }
}
