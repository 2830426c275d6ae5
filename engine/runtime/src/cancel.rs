//! Stopping runs: from other threads, and at a time limit.

use crate::RuntimeError;
use crate::timer;
use kiln_backend::BackendError;
use kiln_backend::stop::{Stop, StopFlag};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Stops the run in flight of one context, from any thread. Made by `ExecutionContext::canceller`; clones stop the
/// same context.
#[derive(Clone, Debug)]
pub struct Canceller(Arc<Control>);

impl Canceller {
    pub(crate) fn new(control: &Arc<Control>) -> Canceller {
        control.lock().stoppable = true;
        Canceller(control.clone())
    }

    /// Asks the run in flight to stop: the call that started it, or the one that waits for it, returns
    /// [`RuntimeError::Cancelled`]. The context can run again then. Returns whether there is a run that ends so: not if none is
    /// in flight, its outputs were taken, or it has been stopped for another reason.
    pub fn cancel(&self) -> bool {
        self.0.stop(None, Cause::Cancelled)
    }
}

/// Reason why a run was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Cancelled,
    TimedOut(Duration),
}

impl Cause {
    /// The error of a run that was stopped at this layer.
    pub fn error(self, layer: String) -> RuntimeError {
        match self {
            Cause::Cancelled => RuntimeError::Cancelled { layer },
            Cause::TimedOut(limit) => RuntimeError::TimedOut { limit, layer },
        }
    }
}

/// State that a context shares with the threads that stop its runs.
#[derive(Debug)]
pub(crate) struct Control(Mutex<Running>);

#[derive(Debug)]
struct Running {
    flag: Arc<StopFlag>,
    /// Whether anybody is there who may stop runs.
    stoppable: bool,
    /// The number of the run in flight.
    run: Option<u64>,
    runs: u64,
    cause: Option<Cause>,
    /// Time at which the run in flight is stopped, and its limit.
    deadline: Option<(Instant, Duration)>,
    /// Time at which the timer looks at this context next.
    timer: Option<Instant>,
}

impl Control {
    pub fn new(flag: Arc<StopFlag>) -> Arc<Control> {
        Arc::new(Control(Mutex::new(Running {
            flag,
            stoppable: false,
            run: None,
            runs: 0,
            cause: None,
            deadline: None,
            timer: None,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The flag that the run in flight works under.
    pub fn flag(&self) -> Arc<StopFlag> {
        self.lock().flag.clone()
    }

    /// The context is another one; none of its runs is in flight.
    pub fn replace(&self, flag: Arc<StopFlag>) {
        self.end();
        self.lock().flag = flag;
    }

    /// A run begins, which has to end within this limit.
    pub fn begin(self: &Arc<Control>, limit: Option<Duration>) -> Result<(), RuntimeError> {
        let mut r = self.lock();
        r.runs += 1;
        (r.run, r.cause) = (Some(r.runs), None);
        r.deadline = limit.and_then(|l| Some((Instant::now().checked_add(l)?, l)));
        r.flag.set(if r.stoppable || r.deadline.is_some() { Stop::Possible } else { Stop::Never });
        if let Some((at, _)) = r.deadline.filter(|(at, _)| r.timer.is_none_or(|t| *at < t)) {
            r.timer = Some(at);
            drop(r);
            let context = Arc::downgrade(self);
            let look = Box::new(move |now| context.upgrade()?.look(now));
            return timer::at(at, look).map_err(|e| {
                self.end();
                RuntimeError::State(format!("no time limit can be kept, as no thread can be made: {e}"))
            });
        }
        Ok(())
    }

    /// The run is over; why it was stopped, if it was.
    pub fn end(&self) -> Option<Cause> {
        let mut r = self.lock();
        if r.run.take().is_some() {
            r.flag.set(Stop::Never);
        }
        r.deadline = None;
        r.cause.take()
    }

    /// The device is done with the run; whether nothing had stopped it before. Nothing stops it any more.
    pub fn finish(&self) -> bool {
        let mut r = self.lock();
        if r.cause.is_none() {
            (r.run, r.deadline) = (None, None);
        }
        r.cause.is_none()
    }

    /// Whether the run in flight was asked to stop.
    pub fn is_stopped(&self) -> bool {
        self.lock().cause.is_some()
    }

    fn stop(&self, run: Option<u64>, cause: Cause) -> bool {
        let mut r = self.lock();
        if r.run.is_none() || r.cause.is_some() || run.is_some_and(|n| r.run != Some(n)) {
            return false;
        }
        r.cause = Some(cause);
        r.flag.set(Stop::Now);
        true
    }

    /// Stops the run in flight for good, before its context goes.
    pub fn abandon(&self) {
        self.stop(None, Cause::Cancelled);
    }

    /// Looks whether the run in flight has come to its limit; when to look again.
    pub fn look(&self, now: Instant) -> Option<Instant> {
        let mut r = self.lock();
        let due = r.deadline.filter(|_| r.cause.is_none());
        r.timer = due.map(|d| d.0).filter(|at| *at > now);
        if let (Some((_, limit)), None, Some(run)) = (due, r.timer, r.run) {
            drop(r);
            self.stop(Some(run), Cause::TimedOut(limit));
            return None;
        }
        r.timer
    }

    /// Error of a call of the run, as the caller sees it.
    pub fn error(&self, e: BackendError) -> Result<BackendError, RuntimeError> {
        match (self.end(), e) {
            (Some(cause), BackendError::Cancelled { layer }) => Err(cause.error(layer)),
            (_, e) => Ok(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control() -> (Arc<Control>, Arc<StopFlag>) {
        let flag = StopFlag::new();
        (Control::new(flag.clone()), flag)
    }

    #[test]
    fn only_a_run_in_flight_is_cancelled() {
        let (control, flag) = control();
        let canceller = Canceller::new(&control);
        assert!(!canceller.cancel());
        control.begin(None).unwrap();
        assert_eq!(flag.get(), Stop::Possible);
        assert!(canceller.cancel() && !canceller.cancel());
        assert_eq!(flag.get(), Stop::Now);
        assert_eq!((control.end(), flag.get()), (Some(Cause::Cancelled), Stop::Never));
        control.begin(None).unwrap();
        assert!(!control.is_stopped() && control.finish());
        assert!(!canceller.cancel(), "the run is done");
    }

    #[test]
    fn without_anybody_to_stop_it_a_run_knows_that() {
        let (control, flag) = control();
        control.begin(None).unwrap();
        assert_eq!(flag.get(), Stop::Never);
        control.end();
        control.begin(Some(Duration::from_secs(600))).unwrap();
        assert_eq!(flag.get(), Stop::Possible);
        control.end();
    }

    #[test]
    fn limits_stop_their_own_run_and_no_later_one() {
        let (control, flag) = control();
        let limit = Duration::from_millis(30);
        control.begin(Some(limit)).unwrap();
        assert!(!matches!(flag.get(), Stop::Now));
        control.end();
        control.begin(Some(10 * limit)).unwrap();
        std::thread::sleep(3 * limit);
        assert!(!control.is_stopped(), "the first run's limit stops the second");
        let start = Instant::now();
        while flag.get() != Stop::Now && start.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(control.end(), Some(Cause::TimedOut(10 * limit)));
    }

    /// A shorter limit behind a longer one is kept, too.
    #[test]
    fn the_nearest_limit_counts() {
        let (control, flag) = control();
        control.begin(Some(Duration::from_secs(600))).unwrap();
        control.end();
        control.begin(Some(Duration::from_millis(5))).unwrap();
        let start = Instant::now();
        while flag.get() != Stop::Now && start.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(control.is_stopped());
    }
}
