//! The tables of tensor-core tiles as one list, for documentation, tools and tests. Tactics are made of the same rows.

use crate::kernels::{attention, conv, few, gemm, recurrent, wgmma};

/// What the blocks of a tactic do.
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

/// Tiles of products, then the same of convolutions, from pairs of their tactics' names.
pub(crate) fn of_both<T>(
    all: &[T],
    names: impl Fn(&T) -> [&'static str; 2],
    listed: impl Fn(&T, &'static str) -> Tile,
) -> Vec<Tile> {
    let of = |operator: usize| all.iter().map(move |t| (t, operator));
    of(0).chain(of(1)).map(|(t, operator)| listed(t, names(t)[operator])).collect()
}

/// Tiles of one kind.
#[derive(Clone, Debug)]
pub struct Family {
    /// What they compute.
    pub name: &'static str,
    /// By which instructions, on which architectures, and how operands lie in shared memory.
    pub about: &'static str,
    /// The rows, in the order of their table.
    pub tiles: Vec<Tile>,
}

/// All families.
pub fn families() -> Vec<Family> {
    let family = |name, about, tiles| Family { name, about, tiles };
    vec![
        family(
            "Products and convolutions by wgmma",
            "`wgmma` on operands that TMA copies (convolutions: im2col, channels last), one warp that copies beside warpgroups \
             that multiply; sm_90a. Operands lie in the swizzle of 128 bytes. *turns*: every warpgroup has tiles of its own, \
             and stores them while others multiply.",
            wgmma::tiles(),
        ),
        family(
            "The same with few rows",
            "The weights are the first operand of `wgmma`, 64 of their columns in a block, and are copied before what the \
             kernel waits for is done; blocks of a cluster share the depth; sm_90a. Swizzle of 128 bytes, as many stages as \
             find room.",
            few::tiles(),
        ),
        family(
            "Products by mma.sync",
            "`mma.sync` and `ldmatrix` on stages that `cp.async` copies; from sm_80 on. Lines of a stage are 16 bytes longer \
             than its part of the depth (32 where operands of 4 bytes lie across it), so that no two of eight neighbouring \
             lines begin in the same banks: there is no swizzle. Products that share the depth add sums in scratch memory.",
            gemm::tiles(),
        ),
        family(
            "Convolutions by mma.sync",
            "The same on what lies under the taps of windows, channels last; from sm_80 on.",
            conv::tiles(),
        ),
        family(
            "Attention",
            "`mma.sync` in one pass over the keys, with a running maximum and sum; from sm_80 on. Lines of heads are 16 bytes \
             longer than a head. *all*: up to 256 keys lie in shared memory from the beginning.",
            attention::tiles(),
        ),
        family(
            "Recurrences",
            "One product of all inputs by `mma.sync` with tiles of these rows and columns (64 x 64 without tensor cores where \
             they are f32), then one launch whose blocks keep the recurrent weights on the chip: clusters from sm_90 on, or a \
             grid whose blocks all run at once.",
            recurrent::tiles(),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// A tactic that the list leaves out would be one that nobody documents.
    #[test]
    fn every_tactic_of_a_table_is_listed() {
        let tables = [
            attention::KERNELS,
            conv::KERNELS,
            few::KERNELS,
            gemm::KERNELS,
            recurrent::KERNELS,
            wgmma::KERNELS,
        ];
        let names: BTreeSet<&str> = tables.iter().flat_map(|t| t.iter().map(|k| k.name)).collect();
        let all = families();
        let listed: Vec<&str> = all.iter().flat_map(|f| f.tiles.iter().map(|t| t.tactic)).collect();
        assert_eq!(listed.len(), names.len(), "listed twice");
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), names);
    }
}
