//! Limits of pools of memory in a build: checked, and applied to tactics and target.

use crate::{BuildConfig, BuildError, MemoryPool};
use kiln_backend::{Tactic, Target};
use kiln_ir::{ErrorCode, Graph, ValueId};

/// The least limit of memory that threads share: kernels may use as much whatever their tiles.
pub const LEAST_SHARED: u64 = 48 << 10;

/// The number of a target that says how much memory the threads of a block share.
const SHARED: &str = "shared_memory";

impl MemoryPool {
    /// The most that a limit may be; `None` where the target does not have the pool, or does not tell.
    fn most(self, target: &Target) -> Option<u64> {
        match self {
            MemoryPool::Workspace | MemoryPool::TacticDram => Some(target.memory.total).filter(|&n| n > 0),
            MemoryPool::TacticSharedMemory => target.numbers.get(SHARED).copied(),
        }
    }

    /// Bytes that a tactic uses of the pool; `None` where the target limits its tactics.
    fn used(self, tactic: &Tactic, concrete: &Graph) -> Option<u64> {
        match self {
            MemoryPool::Workspace => Some(tactic.workspace),
            MemoryPool::TacticDram => Some(touched(concrete).saturating_add(tactic.workspace)),
            MemoryPool::TacticSharedMemory => None,
        }
    }
}

/// Bytes of the inputs and results of a region at given shapes.
fn touched(g: &Graph) -> u64 {
    let bytes = |&v: &ValueId| {
        let ty = g.ty(v);
        ty.static_volume().and_then(|n| ty.dtype.bytes_for(n as u64)).unwrap_or(0)
    };
    g.inputs.iter().chain(&g.outputs).map(bytes).fold(0, u64::saturating_add)
}

/// The target with the limits that it enforces, after a check of all. Notes name pools that the target does not have.
///
/// # Errors
/// [`BuildError::Pool`] for a limit that is too small for any kernel, or larger than what the device has.
pub(crate) fn limited(
    mut target: Target,
    config: &BuildConfig,
    note: &mut dyn FnMut(String),
) -> Result<Target, BuildError> {
    for (&pool, &limit) in &config.pools {
        let refused = |message: String, code| BuildError::Pool { pool, limit, message, code };
        let shared = pool == MemoryPool::TacticSharedMemory;
        let most = pool.most(&target);
        if shared && most.is_none() {
            note(format!("backend {} has no pool \"{pool}\": its limit has no effect", target.backend));
            continue;
        }
        let least = LEAST_SHARED.min(most.unwrap_or(LEAST_SHARED));
        if shared && limit < least {
            let message = format!("kernels may use {least} bytes whatever their tiles: give as many");
            return Err(refused(message, ErrorCode::InvalidArgument));
        }
        if let Some(most) = most.filter(|&most| limit > most) {
            let message = format!("\"{}\" has {most}", target.device);
            return Err(refused(message, ErrorCode::UnsupportedState));
        }
        if shared {
            target.numbers.insert(SHARED.to_owned(), limit);
        }
    }
    Ok(target)
}

/// Keeps the tactics that fit into all pools. An error says, of the pool that leaves none, what the least of them wants.
pub(crate) fn keep_fitting(
    all: &mut Vec<Tactic>,
    concrete: &Graph,
    config: &BuildConfig,
) -> Result<(), String> {
    for (&pool, &limit) in &config.pools {
        let used = |t: &Tactic| pool.used(t, concrete).unwrap_or(0);
        let least = all.iter().map(used).min().unwrap_or(0);
        if least > limit {
            return Err(format!(
                "the pool \"{pool}\" is exhausted: it has {limit} bytes, and the most modest of {} tactics wants {least}; give it more \
                 (--mem-pool-size {pool}:BYTES)",
                all.len()
            ));
        }
        all.retain(|t| used(t) <= limit);
    }
    Ok(())
}

/// Part of the keys of the timing cache that limits change; limits that the target enforces are in its name.
pub(crate) fn flags(config: &BuildConfig) -> String {
    let own = config.pools.iter().filter(|(p, _)| **p != MemoryPool::TacticSharedMemory);
    own.map(|(pool, limit)| format!(" {pool}={limit}")).collect()
}
