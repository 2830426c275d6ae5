//! Pools of memory: kinds of memory that the kernels of a build may use.

use std::fmt;
use std::str::FromStr;

/// A kind of memory that the kernels of a build use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MemoryPool {
    /// Scratch memory of a kernel, in the memory of a context. At first: no limit.
    Workspace,
    /// Device memory that a kernel touches while it is timed: inputs, results and scratch memory. At first: no limit.
    TacticDram,
    /// Memory that the threads of a block share. At first: what the device has.
    TacticSharedMemory,
}

impl MemoryPool {
    /// All pools.
    pub const ALL: [MemoryPool; 3] =
        [MemoryPool::Workspace, MemoryPool::TacticDram, MemoryPool::TacticSharedMemory];

    /// Name of the pool: "workspace", "tactic-dram", "tactic-shared-memory".
    pub fn name(self) -> &'static str {
        match self {
            MemoryPool::Workspace => "workspace",
            MemoryPool::TacticDram => "tactic-dram",
            MemoryPool::TacticSharedMemory => "tactic-shared-memory",
        }
    }
}

impl fmt::Display for MemoryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for MemoryPool {
    type Err = String;

    fn from_str(text: &str) -> Result<MemoryPool, String> {
        let known = || MemoryPool::ALL.map(MemoryPool::name).join(", ");
        let found = MemoryPool::ALL.into_iter().find(|p| p.name() == text);
        found.ok_or_else(|| format!("\"{text}\" is no pool of memory; there are {}", known()))
    }
}
