//! Stopping work early: a flag that other threads set, and that the thread which works looks at where stopping is safe.
//!
//! Long loops of operators have no way to return early: they pass a [`checkpoint`], which unwinds to [`catch`] once the
//! flag asks for it. Nothing unwinds where no `catch` is around.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Whether work is to stop early.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Stop {
    /// Nobody can ask for it.
    #[default]
    Never = 0,
    /// Somebody may ask for it: work goes in pieces that are short enough.
    Possible = 1,
    /// Stop as soon as possible.
    Now = 2,
}

impl Stop {
    /// The state of a number; unknown ones ask to stop.
    pub fn of(number: u32) -> Stop {
        match number {
            0 => Stop::Never,
            1 => Stop::Possible,
            _ => Stop::Now,
        }
    }
}

type Listener = Box<dyn Fn(Stop) + Send + Sync>;

/// A flag that asks work to stop, shared between the thread that works and those that may stop it.
#[derive(Default)]
pub struct StopFlag {
    state: AtomicU32,
    listener: Option<Listener>,
}

impl StopFlag {
    /// A flag that nobody has set.
    pub fn new() -> Arc<StopFlag> {
        Arc::default()
    }

    /// A flag that passes every change on, to a device for example. The listener is called by the thread that sets it.
    pub fn with_listener(listener: impl Fn(Stop) + Send + Sync + 'static) -> Arc<StopFlag> {
        Arc::new(StopFlag { state: AtomicU32::new(0), listener: Some(Box::new(listener)) })
    }

    /// Sets the state.
    pub fn set(&self, to: Stop) {
        let before = self.state.swap(to as u32, Ordering::SeqCst);
        if let Some(f) = self.listener.as_ref().filter(|_| before != to as u32) {
            f(to);
        }
    }

    /// The state.
    pub fn get(&self) -> Stop {
        Stop::of(self.state.load(Ordering::SeqCst))
    }
}

impl std::fmt::Debug for StopFlag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StopFlag({:?})", self.get())
    }
}

thread_local! {
    static FLAGS: RefCell<Vec<Arc<StopFlag>>> = const { RefCell::new(Vec::new()) };
    static CATCHING: Cell<u32> = const { Cell::new(0) };
}

/// Runs `f`; while it does, this flag (beside those around it) stops work of this thread.
pub fn scope<T>(flag: &Arc<StopFlag>, f: impl FnOnce() -> T) -> T {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            FLAGS.with_borrow_mut(|all| all.pop());
        }
    }
    FLAGS.with_borrow_mut(|all| all.push(flag.clone()));
    let _leave = Leave;
    f()
}

/// The state of the flags that this thread works under.
pub fn state() -> Stop {
    FLAGS.with_borrow(|all| all.iter().map(|f| f.get()).max().unwrap_or_default())
}

/// Work was stopped early at a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

/// Runs `f` until it ends or passes a checkpoint after the flag was set. Its results are incomplete then.
pub fn catch<T>(f: impl FnOnce() -> T) -> Result<T, Interrupted> {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            CATCHING.set(CATCHING.get() - 1);
        }
    }
    CATCHING.set(CATCHING.get() + 1);
    let leave = Leave;
    let result = catch_unwind(AssertUnwindSafe(f));
    drop(leave);
    result.map_err(|payload| match payload.is::<Interrupted>() {
        true => Interrupted,
        false => resume_unwind(payload),
    })
}

#[cfg(debug_assertions)]
thread_local! {
    static PASSED: Cell<u64> = const { Cell::new(0) };
}

/// The number of checkpoints that this thread has passed; counted in builds with debug assertions, for tests.
#[cfg(debug_assertions)]
pub fn passed() -> u64 {
    PASSED.get()
}

/// Leaves the work of the innermost [`catch`] of this thread if its flags ask for it; does nothing without one.
pub fn checkpoint() {
    #[cfg(debug_assertions)]
    PASSED.set(PASSED.get() + 1);
    if cfg!(panic = "unwind") && CATCHING.get() > 0 && state() == Stop::Now {
        resume_unwind(Box::new(Interrupted));
    }
}

/// Checkpoints for tasks that other threads do for a [`catch`] of this one.
#[derive(Clone, Debug, Default)]
pub struct Checkpoints(Vec<Arc<StopFlag>>);

impl Checkpoints {
    /// The flags of the calling thread.
    pub fn here() -> Checkpoints {
        let catching = cfg!(panic = "unwind") && CATCHING.get() > 0;
        Checkpoints(if catching { FLAGS.with_borrow(Vec::clone) } else { Vec::new() })
    }

    /// As [`checkpoint`]: the thread pool carries the unwinding to the thread that waits for the task.
    pub fn pass(&self) {
        if self.0.iter().any(|f| f.get() == Stop::Now) {
            resume_unwind(Box::new(Interrupted));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_leaves_the_work_around_it_only_when_asked() {
        let flag = StopFlag::new();
        assert_eq!(scope(&flag, || catch(checkpoint)), Ok(()));
        flag.set(Stop::Possible);
        assert_eq!(scope(&flag, || catch(checkpoint)), Ok(()));
        flag.set(Stop::Now);
        assert_eq!(scope(&flag, || catch(checkpoint)), Err(Interrupted));
        // Without anybody who catches it, or outside of the flag's scope, nothing is left.
        scope(&flag, checkpoint);
        assert_eq!(catch(checkpoint), Ok(()));
        assert_eq!(state(), Stop::Never);
    }

    #[test]
    fn outer_flags_stop_inner_work() {
        let (outer, inner) = (StopFlag::new(), StopFlag::new());
        outer.set(Stop::Now);
        let seen = scope(&outer, || scope(&inner, || (state(), catch(checkpoint))));
        assert_eq!(seen, (Stop::Now, Err(Interrupted)));
    }

    #[test]
    fn tasks_of_other_threads_pass_the_checkpoints_of_the_first() {
        let flag = StopFlag::new();
        flag.set(Stop::Now);
        let points = scope(&flag, || catch(Checkpoints::here)).unwrap();
        let task = std::thread::spawn(move || points.pass());
        assert!(task.join().unwrap_err().is::<Interrupted>());
        Checkpoints::default().pass();
    }

    #[test]
    fn a_listener_hears_every_change() {
        let heard = Arc::new(AtomicU32::new(7));
        let to = heard.clone();
        let flag = StopFlag::with_listener(move |s| to.store(s as u32, Ordering::SeqCst));
        for s in [Stop::Now, Stop::Never, Stop::Possible] {
            flag.set(s);
            assert_eq!((heard.load(Ordering::SeqCst), Stop::of(s as u32)), (s as u32, s));
        }
    }

    /// Panics of other kinds are passed on.
    #[test]
    fn panics_are_not_interruptions() {
        let other = catch_unwind(|| catch(|| resume_unwind(Box::new("other"))));
        assert!(other.is_err_and(|p: Box<dyn std::any::Any + Send>| p.is::<&str>()));
    }
}
