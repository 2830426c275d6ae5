//! Signals that ask the command to end: SIGINT, SIGTERM and SIGHUP.
//!
//! The first one cancels: [`received`] reports it to whoever asks between two pieces of work, and the callbacks of
//! [`on_signal`] are called. The second one ends the process at once.

use crate::failure::Failure;
use kiln::ExecutionContext;
use kiln_ir::stop::{self, Stop, StopFlag};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The number of the first signal; 0 before it.
static RECEIVED: AtomicI32 = AtomicI32::new(0);

type Callback = Box<dyn Fn() + Send>;

/// Functions that the first signal calls.
static CALLBACKS: Mutex<Vec<Callback>> = Mutex::new(Vec::new());

/// Listens for signals from now on. Where that is impossible (no thread can be made), signals end the process as they do
/// by default.
pub fn install() {
    #[cfg(unix)]
    if let Err(e) = listen() {
        tracing::debug!("signals end the command at once: {e}");
    }
}

#[cfg(unix)]
fn listen() -> std::io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let (ready, installed) = std::sync::mpsc::channel();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut signals = match signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP]) {
            Ok(s) => s,
            Err(e) => return drop(ready.send(Err(e))),
        };
        drop(ready.send(Ok(())));
        for signal in signals.forever() {
            if RECEIVED.swap(signal, Ordering::SeqCst) != 0 {
                std::process::exit(128 + signal);
            }
            CALLBACKS.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|f| f());
        }
    })?;
    installed.recv().unwrap_or(Ok(()))
}

/// The first signal that arrived, by number.
pub fn received() -> Option<i32> {
    Some(RECEIVED.load(Ordering::SeqCst)).filter(|&s| s != 0)
}

/// Calls `f` on another thread when the first signal arrives, or now if it has.
pub fn on_signal(f: impl Fn() + Send + 'static) {
    let mut callbacks = CALLBACKS.lock().unwrap_or_else(PoisonError::into_inner);
    if received().is_some() {
        f();
    }
    callbacks.push(Box::new(f));
}

/// Runs work of this thread, which the first signal ends at its next checkpoint.
pub fn scope<T>(work: impl FnOnce() -> T) -> T {
    let flag = StopFlag::new();
    let set = flag.clone();
    on_signal(move || set.set(Stop::Now));
    stop::scope(&flag, work)
}

/// Refuses to go on behind a signal.
pub fn check() -> Result<(), Failure> {
    match received() {
        None => Ok(()),
        Some(signal) => Err(Failure::Input(format!("ended by signal {signal}, and nothing was written"))),
    }
}

/// Cancels runs of a context from the first signal on, until it is dropped.
#[derive(Debug)]
pub struct CancelOnSignal(Arc<AtomicBool>);

impl CancelOnSignal {
    pub fn new(context: &ExecutionContext) -> CancelOnSignal {
        let (over, canceller) = (Arc::new(AtomicBool::new(false)), context.canceller());
        let dropped = over.clone();
        on_signal(move || {
            let (dropped, canceller) = (dropped.clone(), canceller.clone());
            // A run that begins just behind the signal is cancelled, too.
            let repeat = move || {
                while !dropped.load(Ordering::Relaxed) {
                    canceller.cancel();
                    std::thread::sleep(Duration::from_millis(5));
                }
            };
            if let Err(e) = std::thread::Builder::new().name("cancel".into()).spawn(repeat) {
                tracing::warn!(
                    "the run is not cancelled, as no thread can be made ({e}); a second signal ends it"
                );
            }
        });
        CancelOnSignal(over)
    }
}

impl Drop for CancelOnSignal {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The exit code of a command that a signal ended.
pub fn exit_code(signal: i32) -> u8 {
    128 | (signal & 127) as u8
}
