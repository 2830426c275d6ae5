//! Addresses: which memory one is in, told by its highest bits.

/// First address of a block's shared memory: kernels that read at zero are wrong.
pub const SHARED_START: u64 = 1024;
/// First generic address of shared memory; the block's number in its cluster is in the address.
pub const SHARED_WINDOW: u64 = 1 << 60;
/// First generic address of a thread's own memory.
pub const LOCAL_WINDOW: u64 = 2 << 60;
/// First generic address of the parameter.
pub const PARAM_WINDOW: u64 = 3 << 60;
/// Place of a block's number in an address of shared memory.
pub const RANK_SHIFT: u32 = 24;
/// Bits of an address inside of the block.
pub const IN_BLOCK: u64 = (1 << RANK_SHIFT) - 1;
/// Bit of an address that names its block.
pub const NAMED: u64 = 1 << 31;

/// The window of a generic address.
pub fn window(address: u64) -> u64 {
    address & (15 << 60)
}

/// The address of shared memory of block `rank` of the cluster.
pub fn of_rank(address: u64, rank: u64) -> u64 {
    address & IN_BLOCK | rank << RANK_SHIFT | NAMED
}
