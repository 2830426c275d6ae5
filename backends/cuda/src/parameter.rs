//! Layout of the parameter that every kernel takes by value: a head, argument words, then the addresses of all bindings.

/// Threads of a block that maps elements.
pub const MAP_THREADS: u32 = 256;

/// Argument words that travel in the parameter; further ones are in memory.
pub const WORDS: usize = 48;

/// Bytes of the head: blocks or threads, word of the extras, elements, marks, and two addresses: that of further words, and that
/// of a word that switches the kernel off.
pub const HEAD: usize = 32;
/// Offset of the marks: bits that say which bindings are addresses of cells that have the binding's address, and `YIELDS`.
pub const MARKS_AT: usize = 12;
/// Bindings that may be cells.
pub const MOST_CELLS: usize = 31;
/// The mark of a kernel that lets the next one begin as soon as those in front of it are done.
pub const YIELDS: u32 = 1 << 31;
/// Offset of the address of the word that switches the kernel off. Its lowest bit says that the word may be read before the
/// kernels in front are done.
pub const ALIVE_AT: usize = 24;

/// Whether the binding at this position may be the address of a cell, by such bits.
pub fn may_be_cell(cells: u32, binding: usize) -> bool {
    binding < MOST_CELLS && cells >> binding & 1 == 1
}
