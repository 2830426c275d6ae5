//! The threads of a device, and loops that they share.
//!
//! A loop is shared between the calling thread and workers that wait for one. Each begins with its own part of the indices, the same in
//! all loops, and then helps with those of the others. So loops over the same memory find it in the thread's cache. Work that is begun
//! inside of a loop's body stays on its thread. What a loop computes never depends on which thread takes which index.

use std::any::Any;
use std::cell::RefCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time that a worker looks for the next loop before it sleeps: steps of a network follow each other within it.
const SPIN: Duration = Duration::from_micros(100);

/// Parts of a loop at most; of more threads, some begin with the same one.
const PARTS: usize = 16;

/// Workers that wait for loops.
pub(crate) struct Threads {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Whether a loop is being run. Another context's loop then runs on its own thread alone.
    busy: AtomicBool,
}

#[derive(Default)]
struct Shared {
    slot: Mutex<Slot>,
    wake: Condvar,
    /// Changes with each loop, so that spinning workers see it without the lock.
    epoch: AtomicU64,
    /// Workers inside of the present loop.
    inside: AtomicUsize,
}

#[derive(Default)]
struct Slot {
    job: Option<JobRef>,
    sleeping: usize,
    closed: bool,
}

/// One loop, on the stack of the thread that runs it.
struct Job<'a> {
    body: &'a (dyn Fn(usize) + Sync),
    len: usize,
    /// Number of parts, and the next index of each.
    parts: usize,
    next: [Next; PARTS],
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

/// An index on a line of the cache of its own.
#[repr(align(64))]
struct Next(AtomicUsize);

/// Address of the present loop.
#[derive(Clone, Copy)]
struct JobRef(*const Job<'static>);

// SAFETY: a job is shared state behind atomics and a lock; `Threads::share` keeps it alive while any worker is inside.
unsafe impl Send for JobRef {}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Threads>>> = const { RefCell::new(None) };
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Job<'a> {
    /// A loop of at least one index, for so many threads.
    fn new(len: usize, threads: usize, body: &'a (dyn Fn(usize) + Sync)) -> Job<'a> {
        let parts = threads.clamp(1, PARTS.min(len.max(1)));
        let next = std::array::from_fn(|part| Next(AtomicUsize::new(start(len, parts, part.min(parts)))));
        Job { body, len, parts, next, panic: Mutex::new(None) }
    }

    /// Takes indices until none is left, those of the thread's own part first. A panic ends the loop for all.
    fn work(&self, thread: usize) {
        let done = catch_unwind(AssertUnwindSafe(|| {
            for part in (0..self.parts).map(|i| (thread + i) % self.parts) {
                let end = start(self.len, self.parts, part + 1);
                loop {
                    let i = self.next[part].0.fetch_add(1, Ordering::Relaxed);
                    if i >= end {
                        break;
                    }
                    (self.body)(i);
                }
            }
        }));
        if let Err(payload) = done {
            self.next.iter().for_each(|n| n.0.store(self.len, Ordering::Relaxed));
            lock(&self.panic).get_or_insert(payload);
        }
    }
}

/// The first index of a part of a loop.
fn start(len: usize, parts: usize, part: usize) -> usize {
    len / parts * part + (len % parts).min(part)
}

impl Threads {
    /// So many threads, the calling one included: one worker less, or as many as the system allows.
    pub(crate) fn new(count: usize) -> Arc<Threads> {
        let shared: Arc<Shared> = Arc::default();
        let spawn = |i: usize| {
            let shared = shared.clone();
            std::thread::Builder::new().name(format!("kiln-cpu-{i}")).spawn(move || shared.serve(i)).ok()
        };
        let workers = (1..count).map_while(spawn).collect();
        Arc::new(Threads { shared, workers, busy: AtomicBool::new(false) })
    }

    /// Number of threads, the calling one included.
    pub(crate) fn count(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `f`, whose loops are shared among these threads.
    pub(crate) fn enter<T>(self: &Arc<Threads>, f: impl FnOnce() -> T) -> T {
        struct Leave(Option<Arc<Threads>>);
        impl Drop for Leave {
            fn drop(&mut self) {
                CURRENT.replace(self.0.take());
            }
        }
        let _leave = Leave(CURRENT.replace(Some(self.clone())));
        f()
    }

    fn share(&self, len: usize, body: &(dyn Fn(usize) + Sync)) {
        let job = Job::new(len, self.count(), body);
        let address = JobRef((&raw const job).cast::<Job<'static>>());
        {
            let mut slot = lock(&self.shared.slot);
            slot.job = Some(address);
            self.shared.epoch.fetch_add(1, Ordering::Release);
            if slot.sleeping > 0 {
                self.shared.wake.notify_all();
            }
        }
        job.work(0);
        // Nobody enters any more; who is inside leaves before the job does.
        lock(&self.shared.slot).job = None;
        let start = Instant::now();
        while self.shared.inside.load(Ordering::Acquire) > 0 {
            match start.elapsed() < SPIN {
                true => std::hint::spin_loop(),
                false => std::thread::yield_now(),
            }
        }
        let panic = lock(&job.panic).take();
        if let Some(payload) = panic {
            self.busy.store(false, Ordering::Release);
            resume_unwind(payload);
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        lock(&self.shared.slot).closed = true;
        self.shared.epoch.fetch_add(1, Ordering::Release);
        self.shared.wake.notify_all();
        for w in self.workers.drain(..) {
            // The last owner of the threads may be one of them.
            if w.thread().id() != std::thread::current().id() {
                drop(w.join());
            }
        }
    }
}

impl Shared {
    /// The life of a worker.
    fn serve(&self, number: usize) {
        let mut seen = 0;
        loop {
            let start = Instant::now();
            while self.epoch.load(Ordering::Acquire) == seen && start.elapsed() < SPIN {
                std::hint::spin_loop();
            }
            let mut slot = lock(&self.slot);
            while self.epoch.load(Ordering::Acquire) == seen && !slot.closed {
                slot.sleeping += 1;
                slot = self.wake.wait(slot).unwrap_or_else(PoisonError::into_inner);
                slot.sleeping -= 1;
            }
            if slot.closed {
                return;
            }
            seen = self.epoch.load(Ordering::Acquire);
            let Some(job) = slot.job else { continue };
            self.inside.fetch_add(1, Ordering::AcqRel);
            drop(slot);
            // SAFETY: the job was registered under the lock together with `inside`, and `share` returns only once `inside` is 0.
            unsafe { &*job.0 }.work(number);
            self.inside.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Number of threads that loops of this thread are shared among.
pub(crate) fn count() -> usize {
    CURRENT.with_borrow(|c| c.as_ref().map_or(1, |t| t.count()))
}

/// Calls `body` once for each index below `len`, on several threads.
pub(crate) fn each(len: usize, body: impl Fn(usize) + Sync) {
    let threads = match len {
        0 | 1 => None,
        _ => CURRENT.with_borrow(Clone::clone).filter(|t| !t.workers.is_empty()),
    };
    match threads {
        Some(t) if !t.busy.swap(true, Ordering::Acquire) => {
            t.share(len, &body);
            t.busy.store(false, Ordering::Release);
        }
        _ => (0..len).for_each(body),
    }
}

/// Calls `body` with ranges that cover `0..len`, each of at least `least` indices but perhaps the last.
pub(crate) fn ranges(len: usize, least: usize, body: impl Fn(Range<usize>) + Sync) {
    let parts = (len / least.max(1)).clamp(1, 4 * count());
    let size = len.div_ceil(parts).max(1);
    each(len.div_ceil(size), |i| body(i * size..len.min((i + 1) * size)));
}

/// A slice that threads write disjoint parts of.
pub(crate) struct Parts<'a, T> {
    data: *mut T,
    len: usize,
    _borrow: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: parts are handed out by `Parts::part`, whose callers keep them disjoint.
unsafe impl<T: Send> Sync for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    /// The parts of a slice.
    pub(crate) fn new(all: &'a mut [T]) -> Parts<'a, T> {
        Parts { data: all.as_mut_ptr(), len: all.len(), _borrow: std::marker::PhantomData }
    }

    /// Elements from `start` to `end`, cut off at the end of the slice.
    ///
    /// # Safety
    /// No two parts that are in use at once have an element in common.
    #[allow(clippy::mut_from_ref, reason = "parts are disjoint, as the contract says")]
    pub(crate) unsafe fn part(&self, start: usize, end: usize) -> &mut [T] {
        let (start, end) = (start.min(self.len), end.min(self.len));
        // SAFETY: inside of the slice, which is borrowed as long as `self`; disjoint as the contract says.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(start), end.saturating_sub(start)) }
    }

    /// The address of the first of some elements, if all of them are there.
    pub(crate) fn address(&self, start: usize, end: usize) -> Option<*mut T> {
        // SAFETY: the element is inside of the slice, or the end of it.
        (start <= end && end <= self.len).then(|| unsafe { self.data.add(start) })
    }
}

/// Calls `body` with each chunk of `size` elements and its number, on several threads; a task has at least `least` chunks.
pub(crate) fn chunks<T: Send>(
    all: &mut [T],
    size: usize,
    least: usize,
    body: impl Fn(usize, &mut [T]) + Sync,
) {
    let size = size.max(1);
    let count = all.len().div_ceil(size);
    let parts = Parts::new(all);
    ranges(count, least, |r| {
        for i in r {
            // SAFETY: ranges are disjoint, and so are the chunks of different numbers.
            body(i, unsafe { parts.part(i * size, (i + 1) * size) });
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_is_taken_once_by_any_number_of_threads() {
        for threads in [1, 2, 3, 8] {
            let pool = Threads::new(threads);
            pool.enter(|| {
                for len in [0usize, 1, 2, 7, 1000] {
                    let taken: Vec<AtomicUsize> = (0..len).map(|_| AtomicUsize::new(0)).collect();
                    each(len, |i| {
                        taken[i].fetch_add(1, Ordering::Relaxed);
                        // A loop inside of a loop stays on its thread.
                        each(3, |_| {});
                    });
                    assert!(taken.iter().all(|t| t.load(Ordering::Relaxed) == 1), "{len} on {threads}");
                    let mut all = vec![0usize; len];
                    chunks(&mut all, 3, 1, |i, c| c.iter_mut().for_each(|x| *x += i + 1));
                    assert!(all.iter().enumerate().all(|(i, &x)| x == i / 3 + 1), "{all:?}");
                }
            });
        }
    }

    #[test]
    fn parts_have_all_indices_and_about_as_many_each() {
        for (len, threads) in [(1, 2), (2, 2), (7, 3), (8, 3), (100, 7), (1000, 40)] {
            let job = Job::new(len, threads, &|_| {});
            let starts: Vec<_> = (0..=job.parts).map(|p| start(len, job.parts, p)).collect();
            assert_eq!((starts[0], starts[job.parts], job.parts), (0, len, threads.min(len).min(PARTS)));
            let sizes: Vec<_> = starts.windows(2).map(|w| w[1] - w[0]).collect();
            assert!(
                sizes.iter().all(|s| (len / job.parts..=len.div_ceil(job.parts)).contains(s)),
                "{sizes:?}"
            );
            assert!(
                job.next[..job.parts].iter().zip(&starts).all(|(n, s)| n.0.load(Ordering::Relaxed) == *s)
            );
        }
    }

    #[test]
    fn loops_follow_each_other_and_sleeping_workers_wake() {
        let pool = Threads::new(4);
        let sum = AtomicUsize::new(0);
        pool.enter(|| {
            for round in 0..2000 {
                each(5, |i| {
                    sum.fetch_add(i, Ordering::Relaxed);
                });
                if round % 500 == 0 {
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
        });
        assert_eq!(sum.load(Ordering::Relaxed), 20_000);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_threads_go_on() {
        let pool = Threads::new(3);
        for bad in [0, 50, 99] {
            let found = catch_unwind(AssertUnwindSafe(|| {
                pool.enter(|| each(100, |i| assert!(i != bad, "index {i}")));
            }));
            assert!(found.is_err());
            let sum = AtomicUsize::new(0);
            pool.enter(|| {
                each(10, |i| {
                    sum.fetch_add(i, Ordering::Relaxed);
                })
            });
            assert_eq!(sum.load(Ordering::Relaxed), 45);
        }
    }
}
