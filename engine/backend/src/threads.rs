//! The threads that work is shared among.

use std::sync::Once;

/// Makes the shared thread pool, with as many threads as the system allows. If it allows none, work is done
/// on the calling thread. Without this call the pool is made at its first use, and a system that refuses
/// threads then ends in a panic. Does nothing if there is a pool.
pub fn prepare() {
    static PREPARED: Once = Once::new();
    PREPARED.call_once(|| {
        let wanted = std::thread::available_parallelism().map_or(1, usize::from);
        let given = std::env::var("RAYON_NUM_THREADS").ok().and_then(|n| n.parse().ok()).filter(|&n| n > 0);
        let mut count: usize = given.unwrap_or(wanted);
        // A failed attempt at the shared pool cannot be repeated: each number is tried with a pool of its own first.
        while count > 0 && rayon::ThreadPoolBuilder::new().num_threads(count).build().is_err() {
            count /= 2;
        }
        let builder = rayon::ThreadPoolBuilder::new();
        let made = match count {
            0 => builder.num_threads(1).use_current_thread().build_global(),
            n => builder.num_threads(n).build_global(),
        };
        // An error means that the program has made its pool already.
        drop(made);
    });
}
