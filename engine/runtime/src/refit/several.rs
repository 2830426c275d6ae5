//! Derived weights, several at a time.

use super::recipes;
use crate::RuntimeError;
use kiln_ir::{Graph, Recipe, Tensor, ValueId};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Threads that evaluate recipes at most.
const MOST: usize = 16;

/// A derived weight with its recipe and its name.
pub(super) type Job<'a> = (ValueId, &'a Recipe, &'a str);

/// Jobs that are left, the largest last, and the bytes of those in progress.
struct Queue<'a> {
    left: Vec<(u64, Job<'a>)>,
    busy: u64,
    done: HashMap<ValueId, Tensor>,
    failed: Option<RuntimeError>,
}

/// The results of recipes. Several are evaluated at a time as long as they take no more memory than the largest one alone.
pub(super) fn evaluate(
    jobs: Vec<Job<'_>>,
    sources: &BTreeMap<Arc<str>, Tensor>,
) -> Result<HashMap<ValueId, Tensor>, RuntimeError> {
    let mut left: Vec<(u64, Job<'_>)> = jobs.into_iter().map(|job| (bytes(&job.1.graph), job)).collect();
    left.sort_by_key(|(bytes, (v, ..))| (*bytes, *v));
    let (count, most) = (left.len(), left.last().map_or(0, |(bytes, _)| *bytes));
    let queue = Mutex::new(Queue { left, busy: 0, done: HashMap::new(), failed: None });
    let ended = Condvar::new();
    let work = || {
        let mut q = queue.lock().unwrap_or_else(PoisonError::into_inner);
        while q.failed.is_none() {
            // The largest one for which there is room: the list is in the order of sizes.
            let room = most - q.busy;
            let Some(at) = q.left.partition_point(|(bytes, _)| *bytes <= room).checked_sub(1) else {
                if q.left.is_empty() {
                    break;
                }
                q = ended.wait(q).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let (bytes, (v, recipe, name)) = q.left.remove(at);
            q.busy += bytes;
            drop(q);
            let result = recipes::evaluate(recipe, sources, name);
            q = queue.lock().unwrap_or_else(PoisonError::into_inner);
            q.busy -= bytes;
            match result {
                Ok(t) => drop(q.done.insert(v, t)),
                Err(e) => q.failed = Some(e),
            }
            ended.notify_all();
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST).min(count);
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // Without further threads this one does all.
            let spawned = std::thread::Builder::new().name("kiln refit".into()).spawn_scoped(scope, work);
            if spawned.is_err() {
                break;
            }
        }
        work();
    });
    let Queue { done, failed, .. } = queue.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.map_or(Ok(done), Err)
}

/// Bytes of all values that a recipe makes.
fn bytes(recipe: &Graph) -> u64 {
    let made = recipe.nodes().flat_map(|(_, n)| n.outputs.iter());
    let size = |&v: &ValueId| {
        let ty = recipe.ty(v);
        ty.static_volume().and_then(|n| ty.dtype.bytes_for(n as u64)).unwrap_or(0)
    };
    made.map(size).fold(0, u64::saturating_add)
}
