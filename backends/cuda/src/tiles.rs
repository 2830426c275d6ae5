//! A tile as documentation, tools and tests see it, whatever its table. Tactics are made of the same rows.

/// Work of a tactic's blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tile {
    /// The tactic's name.
    pub tactic: &'static str,
    /// Rows and columns of results of a block: of attention queries, and keys at a time; of recurrences those of the product of
    /// the inputs.
    pub rows: usize,
    /// See `rows`.
    pub columns: usize,
    /// Threads of a block.
    pub threads: usize,
    /// Buffers that copies go ahead by; as many as find room where it is `None`.
    pub stages: Option<usize>,
    /// Bytes of the depth of a line in a stage; the whole heads where it is `None`.
    pub stage_bytes: Option<usize>,
    /// Blocks that share the depth, the keys, or the hidden units.
    pub split: usize,
    /// Blocks that a multiprocessor has room for, where registers are limited to that.
    pub beside: Option<usize>,
}

/// Tiles of one kind.
#[derive(Clone, Debug)]
pub struct Family {
    /// Operation that the tiles compute.
    pub name: &'static str,
    /// By which instructions, on which architectures, and how operands lie in shared memory.
    pub about: &'static str,
    /// The rows, in the order of their table.
    pub tiles: Vec<Tile>,
}
