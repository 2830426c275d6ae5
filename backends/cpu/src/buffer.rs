//! Memory of values: buffers that go back to their context's pool when the last holder drops them.

use bytemuck::{Pod, Zeroable};
use kiln_backend::BackendError;
use kiln_ir::budget::{self, Reservation};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Options of devices and their contexts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Fill memory with NaN bytes before every reuse, so that reading what was never written shows.
    pub poison: bool,
    /// Threads of a device, the calling one included; 0 for as many as the system allows.
    pub threads: usize,
}

impl Options {
    /// The number of threads asked for, or that the system allows.
    pub(crate) fn thread_count(&self) -> usize {
        match self.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            n => n,
        }
    }
}

/// The unit of storage: one cache line.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
pub struct Line([u8; 64]);

impl Line {
    /// Elements of four bytes of a line.
    pub const WORDS: usize = 16;
}

/// Free buffers of one context, by capacity in lines.
#[derive(Debug)]
pub struct Pool {
    free: Mutex<Free>,
    allocations: AtomicU64,
    poison: bool,
    sizes: Mutex<Sizes>,
}

/// Sizes of the buffers of earlier runs.
#[derive(Debug, Default)]
struct Sizes {
    /// The operation that takes buffers now.
    operation: u32,
    /// Purposes of buffers, with lines of the largest and the number of the last, by operation.
    lines: HashMap<u32, Vec<(String, (usize, u64))>>,
}

/// Free buffers by their lines and numbers.
#[derive(Default)]
struct Free {
    all: BTreeMap<(usize, u64), Lines>,
    lines: usize,
}

impl Free {
    fn take(&mut self, key: (usize, u64)) -> Option<Lines> {
        let found = self.all.remove(&key)?;
        self.lines -= key.0;
        Some(found)
    }
}

impl std::fmt::Debug for Free {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes free", self.lines * 64)
    }
}

/// More free memory than this is given back to the system when a new size is wanted.
const KEEP_LINES: usize = (256 << 20) / 64;

/// Takes bytes from the memory budget before work begins; an error where it does not have them, or the system.
pub fn afford(bytes: u64, what: &str) -> Result<Reservation, BackendError> {
    budget::reserve(bytes).map_err(|e| {
        let what = format!(
            "{what} (the limit is {} bytes, {} are in use; raise it with --memory-limit)",
            e.limit, e.used
        );
        BackendError::OutOfMemory { what, bytes }
    })
}

/// Memory of a buffer, which counts against the budget as long as it lives.
struct Lines {
    all: Vec<Line>,
    /// Number of the buffer, which it keeps when it becomes larger.
    number: u64,
    _held: Reservation,
}

/// A buffer of a pool.
pub struct Buf {
    /// `None` once it is given back.
    lines: Option<Lines>,
    len: usize,
    home: Weak<Pool>,
}

impl Pool {
    /// An empty pool.
    pub fn new(options: &Options) -> Arc<Pool> {
        Arc::new(Pool {
            free: Mutex::default(),
            allocations: AtomicU64::new(0),
            poison: options.poison,
            sizes: Mutex::default(),
        })
    }

    /// Begins an operation, by its node's number. Its buffers get at least the capacity that those for the same
    /// purpose had before: once the greatest shapes have run, all smaller ones find the buffers that they want.
    pub fn begin(&self, operation: u32) {
        self.sizes.lock().unwrap_or_else(PoisonError::into_inner).operation = operation;
    }

    /// Lines that the operation's buffer for this purpose had at most, and the number of the last one.
    fn remembered(&self, what: &str) -> (usize, u64) {
        let sizes = self.sizes.lock().unwrap_or_else(PoisonError::into_inner);
        let own = sizes.lines.get(&sizes.operation);
        own.and_then(|all| all.iter().find(|(w, _)| w == what)).map_or((0, 0), |(_, last)| *last)
    }

    /// Notes the lines and the number of a buffer that was taken.
    fn remember(&self, what: &str, lines: usize, number: u64) {
        let mut sizes = self.sizes.lock().unwrap_or_else(PoisonError::into_inner);
        let operation = sizes.operation;
        let own = sizes.lines.entry(operation).or_default();
        match own.iter_mut().find(|(w, _)| w == what) {
            Some((_, last)) => *last = (lines.max(last.0), number),
            None => own.push((what.to_owned(), (lines, number))),
        }
    }

    /// Number of buffers that were taken from the system so far.
    pub fn allocations(&self) -> u64 {
        self.allocations.load(Ordering::Relaxed)
    }

    /// A buffer of `len` bytes whose contents are unspecified.
    pub fn take(self: &Arc<Pool>, len: usize, what: &str) -> Result<Buf, BackendError> {
        let (most, number) = self.remembered(what);
        let want = len.div_ceil(64).max(most);
        let reused = self.reuse(want, number);
        let mut lines = match reused {
            Some(lines) => lines,
            None => self.allocate(want, len, what)?,
        };
        self.remember(what, want, lines.number);
        if self.poison {
            lines.all.fill(Line([0xff; 64]));
        }
        Ok(Buf { lines: Some(lines), len, home: Arc::downgrade(self) })
    }

    /// A free buffer that fits: the one with this number, which earlier runs had here and have free here again, else the smallest. None for no
    /// elements, which need no memory.
    fn reuse(&self, want: usize, number: u64) -> Option<Lines> {
        if want == 0 {
            return None;
        }
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let own = free.all.keys().find(|(size, n)| *n == number && *size >= want).copied();
        let key = own.or_else(|| free.all.range((want, 0)..).next().map(|(key, _)| *key))?;
        free.take(key)
    }

    /// A buffer from the system. It takes the place of a free one that has half of its lines or more: where sizes grow from layer to layer, the
    /// pool would keep one buffer of each.
    fn allocate(&self, want: usize, len: usize, what: &str) -> Result<Lines, BackendError> {
        let mut number = None;
        {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            if free.lines > KEEP_LINES {
                *free = Free::default();
            }
            let smaller = free.all.range((want.div_ceil(2), 0)..(want, 0)).next_back().map(|(key, _)| *key);
            if let Some(lines) = smaller.and_then(|key| free.take(key)) {
                number = Some(lines.number);
            }
        }
        let _held = afford((want as u64).saturating_mul(64), what)?;
        let mut lines = Vec::new();
        lines
            .try_reserve_exact(want)
            .map_err(|_| BackendError::OutOfMemory { what: what.to_owned(), bytes: len as u64 })?;
        lines.resize(want, Line([0; 64]));
        let count = self.allocations.fetch_add(u64::from(want > 0), Ordering::Relaxed);
        Ok(Lines { all: lines, number: number.unwrap_or(count + 1), _held })
    }

    fn give_back(&self, lines: Lines) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let size = lines.all.len();
        free.lines += size;
        free.all.insert((size, lines.number), lines);
    }
}

impl Buf {
    /// Whether more than half of its memory is unused.
    pub fn is_wasteful(&self) -> bool {
        self.len.div_ceil(64) < self.lines.as_ref().map_or(0, |l| l.all.len()) / 2
    }

    /// The bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        let all = self.lines.as_mut().map(|l| l.all.as_mut_slice()).unwrap_or_default();
        bytemuck::cast_slice_mut(all).get_mut(..len).unwrap_or_default()
    }
}

impl AsRef<[u8]> for Buf {
    fn as_ref(&self) -> &[u8] {
        let all = self.lines.as_ref().map(|l| l.all.as_slice()).unwrap_or_default();
        bytemuck::cast_slice(all).get(..self.len).unwrap_or_default()
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        let lines = self.lines.take().filter(|l| !l.all.is_empty());
        if let Some((pool, lines)) = self.home.upgrade().zip(lines) {
            pool.give_back(lines);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_buffer_is_used_again_and_poisoned() {
        let pool = Pool::new(&Options { poison: true, ..Options::default() });
        let mut a = pool.take(100, "a").unwrap();
        a.bytes_mut().fill(7);
        drop(a);
        let none = pool.take(0, "none").unwrap();
        let b = pool.take(90, "b").unwrap();
        assert_eq!((pool.allocations(), none.as_ref().len()), (1, 0));
        assert_eq!(b.as_ref(), [0xff; 90]);
        let _c = pool.take(90, "c").unwrap();
        assert_eq!(pool.allocations(), 2);
    }

    #[test]
    fn sizes_that_grow_have_one_buffer_and_every_run_the_same_ones() {
        let pool = Pool::new(&Options::default());
        let run = || {
            for (i, n) in [1000, 1500, 2200, 3300].into_iter().enumerate() {
                pool.begin(i as u32);
                drop(pool.take(64 * n, "grows").unwrap());
            }
            pool.begin(9);
            let few = pool.take(64 * 50, "few").unwrap();
            drop(pool.take(64 * 3000, "many").unwrap());
            drop(few);
            pool.free.lock().unwrap().all.keys().map(|k| k.0).collect::<Vec<_>>()
        };
        let first = run();
        let count = pool.allocations();
        assert_eq!((first, count), (vec![3000, 3300], 5));
        assert_eq!((run(), run(), pool.allocations()), (vec![3000, 3300], vec![3000, 3300], count));
    }

    #[test]
    fn more_than_there_is_gives_an_error() {
        assert!(matches!(afford(1 << 62, "x"), Err(BackendError::OutOfMemory { .. })));
        afford(1 << 20, "x").unwrap();
        let pool = Pool::new(&Options::default());
        assert!(matches!(pool.take(usize::MAX - 64, "x"), Err(BackendError::OutOfMemory { .. })));
    }
}
