//! The tables of tensor-core tiles as one list.

use super::conv::groups;
use super::matmul::codes_rows::Tile as CodesRows;
use super::matmul::codes_wgmma::Tile as CodesTile;
use super::matmul::small;
use super::wgmma::sparse::Tile as SparseTile;
use super::{attention, mma, recurrent, wgmma};
use crate::tiles::{Family, Tile};

/// The rows of an operator.
fn of<T>(op: &str, rows: &[(&'static str, &T)], listed: impl Fn(&T, &'static str) -> Tile) -> Vec<Tile> {
    let own = rows.iter().filter(|(name, _)| name.split('.').next() == Some(op));
    own.map(|(name, row)| listed(row, name)).collect()
}

/// The rows of matrix products, then those of convolutions.
fn both<T>(rows: &[(&'static str, &T)], listed: impl Fn(&T, &'static str) -> Tile) -> Vec<Tile> {
    ["matmul", "conv"].iter().flat_map(|op| of(op, rows, &listed)).collect()
}

/// All families.
pub fn families() -> Vec<Family> {
    let family = |name, about, tiles| Family { name, about, tiles };
    let by_mma = |row: &mma::Row, tactic| row.tile.listed(tactic, row.split);
    vec![
        family(
            "Products and convolutions by wgmma",
            "`wgmma` on operands that TMA copies (convolutions: im2col, channels last), one warp that copies beside warpgroups \
             that multiply; sm_90a. Operands lie in the swizzle of 128 bytes. *turns*: every warpgroup has tiles of its own, \
             and stores them while others multiply.",
            both(wgmma::table::ROWS, |t, tactic| t.listed(tactic)),
        ),
        family(
            "The same with few rows",
            "The weights are the first operand of `wgmma`, 64 of their columns in a block, and are copied before what the \
             kernel waits for is done; blocks of a cluster share the depth; sm_90a. Swizzle of 128 bytes, as many stages as \
             find room.",
            both(wgmma::few_table::ROWS, |t, tactic| t.listed(tactic)),
        ),
        family(
            "Products of normalized rows by wgmma",
            "The tiles above whose blocks have the whole depth of a row or exchange their sums, with the moments of rows.",
            [
                of("norm_matmul", wgmma::table::ROWS, |t: &wgmma::Tile, tactic| t.listed(tactic)),
                of("norm_matmul", wgmma::few_table::ROWS, |t: &wgmma::few::Tile, tactic| t.listed(tactic)),
            ]
            .concat(),
        ),
        family(
            "Gated products by wgmma",
            "The tiles above in which columns of gates lie 32 in front of their values: a thread has both sums of a result. With the \
             moments of rows, where these are normalized.",
            [
                of("gated_matmul", wgmma::table::ROWS, |t: &wgmma::Tile, tactic| t.listed(tactic)),
                of("gated_matmul", wgmma::few_table::ROWS, |t: &wgmma::few::Tile, tactic| t.listed(tactic)),
            ]
            .concat(),
        ),
        family(
            "Products by mma.sync",
            "`mma.sync` and `ldmatrix` on stages that `cp.async` copies; from sm_80 on. Lines of a stage are 16 bytes longer \
             than its part of the depth (32 where operands of 4 bytes lie across it), so that no two of eight neighbouring \
             lines begin in the same banks: there is no swizzle. Products that share the depth add sums in scratch memory.",
            of("matmul", mma::table::ROWS, by_mma),
        ),
        family(
            "Convolutions by mma.sync",
            "The same on what lies under the taps of windows, channels last; from sm_80 on.",
            of("conv", mma::table::ROWS, by_mma),
        ),
        family(
            "Products of many small matrices by mma.sync",
            "A block has several products, each by one warp or a few, with their whole depth (*head*) in shared memory; from sm_80 on. \
             Rows and columns are the most of a product.",
            of("matmul", small::table::ROWS, |t, tactic| t.listed(tactic)),
        ),
        family(
            "Convolutions with few channels a group by mma.sync",
            "A block has several groups for a rectangle of windows. What lies under the windows is copied once (*head*), and all taps \
             are multiplied where it lies; channels last; from sm_80 on.",
            of("conv", groups::table::ROWS, |t, tactic| t.listed(tactic)),
        ),
        family(
            "Products by 2:4 sparse weights, by wgmma",
            "`wgmma.mma_async.sp` on weights that are packed at build and on rows, both copied by TMA, by warpgroups of 64 or 128 \
             columns; one warp copies; sm_90a. Weights are the instruction's first operand. Swizzle of 128 bytes. *bytes* are those \
             of a row; half as many stages and one have those of two such parts of the weights.",
            of("matmul_sparse", wgmma::sparse_table::ROWS, |t: &SparseTile, tactic| t.listed(tactic)),
        ),
        family(
            "Products by 2:4 sparse weights",
            "`mma.sp` on weights that are packed at build: half of their elements, and the places of these. Weights are the \
             instruction's first operand; from sm_80 on. *bytes* are those of a row before packing.",
            of("matmul_sparse", mma::sparse_table::ROWS, |t: &mma::Tile, tactic| t.listed(tactic, 1)),
        ),
        family(
            "Products by weights that stay codes, by wgmma",
            "`wgmma` on rows that TMA copies; the weights are the first operand, from registers, made floats from codes of 4 or 8 \
             bits that every lane reads two stages ahead; sm_90a. Swizzle of 128 bytes.",
            of("matmul_codes", wgmma::codes_table::ROWS, |t: &CodesTile, tactic| t.listed(tactic)),
        ),
        family(
            "Products by weights that are made floats in front, by wgmma",
            "One launch makes codes floats in scratch memory, the next is the product by `wgmma` above; for more than 64 rows; sm_90a.",
            of("matmul_codes", wgmma::floats_table::ROWS, |t: &wgmma::Tile, tactic| t.listed(tactic)),
        ),
        family(
            "Products by weights that stay codes",
            "`mma.sync` on rows that `cp.async` copies and on codes of 4 or 8 bits, which are dequantized between shared memory and \
             the instruction; from sm_80 on. *bytes* are those of a row.",
            of("matmul_codes", mma::codes_table::ROWS, by_mma),
        ),
        family(
            "Products of few rows by weights that stay codes",
            "`mma.sync` on codes that go from memory to registers, those of *stages* parts of the depth before what the kernel waits for \
             is done. Warps share the depth; from sm_80 on. *bytes* are those of the codes of an output.",
            of("matmul_codes", mma::codes_rows_table::ROWS, |t: &CodesRows, tactic| t.listed(tactic)),
        ),
        family(
            "Attention",
            "`mma.sync` in one pass over the keys, with a running maximum and sum; from sm_80 on. On sm_90a also `wgmma`: warpgroups of 64 rows, and one that copies. *tma*: one thread \
             copies boxes of tensors, and a block alone on its multiprocessor goes on from tile to tile. Lines of heads are 16 bytes \
             longer than a head. *all*: up to 256 keys lie in shared memory from the beginning.",
            attention::tiles(),
        ),
        family(
            "Recurrences",
            "One product of all inputs by `mma.sync` with tiles of these rows and columns (32 x 32 without tensor cores where \
             they are f32), then one launch whose blocks keep the recurrent weights on the chip: clusters from sm_90 on, or a \
             grid whose blocks all run at once.",
            recurrent::tiles(),
        ),
        family(
            "Recurrences of few units",
            "The same product, then one launch whose blocks run a sequence of a direction each. *block* names the lanes that share the \
             weights of a unit, and the units that they share if there are several.",
            recurrent::block::tiles(),
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
            mma::table::KERNELS,
            mma::sparse_table::KERNELS,
            wgmma::sparse_table::KERNELS,
            mma::codes_rows_table::KERNELS,
            mma::codes_table::KERNELS,
            wgmma::codes_table::KERNELS,
            wgmma::floats_table::KERNELS,
            small::table::KERNELS,
            groups::table::KERNELS,
            recurrent::KERNELS,
            recurrent::block::KERNELS,
            wgmma::few_table::KERNELS,
            wgmma::table::KERNELS,
        ];
        let names: BTreeSet<&str> = tables.iter().flat_map(|t| t.iter().map(|k| k.name)).collect();
        let all = families();
        let listed: Vec<&str> = all.iter().flat_map(|f| f.tiles.iter().map(|t| t.tactic)).collect();
        assert_eq!(listed.len(), names.len(), "listed twice");
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), names);
    }
}
