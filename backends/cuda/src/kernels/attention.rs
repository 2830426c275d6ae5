//! Attention on tensor cores, in one pass over the keys.

mod boxes;
mod cost;
mod flash;
pub mod rotary;
mod tile;

use self::boxes::Boxes;
use self::flash::present;
use self::tile::{
    AT_ONCE_BYTES, Heads, MASK, Order, Tile, boxed, element_type, ordered, short, tile, whole, wide,
};
use super::wgmma::has_wgmma;
use crate::tiles;
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::attention::{is_positioned, unmoved};
use kiln_codegen::site::{Site, op_error, unsupported};
use kiln_codegen::{Kernel, Views};
use kiln_ir::DType;

/// A table of tiles, `"tactic" tile;`, and a kernel for each.
macro_rules! flash_kernels {
    ($($name:literal $tile:expr;)*) => {
        const TILES: &[(&str, &Tile)] = &[$(($name, &$tile),)*];

        /// The kernels.
        pub const KERNELS: &[Kernel] = &[$({
            const TILE: &Tile = &$tile;
            Kernel {
                name: $name,
                ops: &["attention"],
                epilogue: true,
                views: Views::Rows,
                side_results: false,
                tactics: |site| tactics(site, $name, TILE),
                source: |site, _| flash::source(site, TILE),
                launch: |cx| flash::launch(cx, TILE),
            }
        },)*];
    };
}

flash_kernels! {
    "attention.mma_128x64" tile((128, 64), (4, 1), 2, 128, 1);
    "attention.mma_128x64_w8" tile((128, 64), (8, 1), 2, 256, 1);
    "attention.mma_64x64" tile((64, 64), (4, 1), 2, 256, 1);
    "attention.mma_64x64_s1" tile((64, 64), (4, 1), 1, 256, 1);
    "attention.mma_64x64_s3" tile((64, 64), (4, 1), 3, 256, 1);
    "attention.mma_64x128_s1" tile((64, 128), (4, 1), 1, 128, 1);
    "attention.mma_64x32" tile((64, 32), (4, 1), 2, 512, 1);
    "attention.mma_32x64" tile((32, 64), (2, 2), 3, 256, 1);
    "attention.mma_16x64" tile((16, 64), (1, 4), 3, 512, 1);
    "attention.mma_16x128" tile((16, 128), (1, 4), 2, 256, 1);
    "attention.mma_16x128_w8" tile((16, 128), (1, 8), 3, 256, 1);
    "attention.mma_64x64_split4" tile((64, 64), (4, 1), 2, 256, 4);
    "attention.mma_16x64_split8" tile((16, 64), (1, 4), 2, 512, 8);
    "attention.mma_16x128_split32" tile((16, 128), (1, 4), 2, 256, 32);
    "attention.mma_16x64_split32" tile((16, 64), (1, 4), 2, 512, 32);
    "attention.wgmma_128x128" wide((128, 128), 256, 1);
    "attention.wgmma_128x96" wide((128, 96), 256, 1);
    "attention.wgmma_128x64" wide((128, 64), 512, 1);
    "attention.wgmma_64x128" wide((64, 128), 256, 1);
    "attention.wgmma_64x64" wide((64, 64), 512, 1);
    "attention.wgmma_128x64_split4" wide((128, 64), 256, 4);
    "attention.wgmma_128x128_turns" ordered((128, 128), 256, Order::InTurns);
    "attention.wgmma_128x128_beside" ordered((128, 128), 256, Order::Beside);
    "attention.wgmma_128x64_turns" ordered((128, 64), 512, Order::InTurns);
    "attention.tma_192x128" boxed((192, 128), 128, Order::Beside);
    "attention.tma_128x176" boxed((128, 176), 256, Order::BesideBoth);
    "attention.tma_128x128" boxed((128, 128), 256, Order::BesideBoth);
    "attention.tma_128x80" boxed((128, 80), 512, Order::BesideBoth);
    "attention.tma_128x64" boxed((128, 64), 512, Order::BesideBoth);
    "attention.tma_64x128" boxed((64, 128), 128, Order::Beside);
    "attention.tma_64x64" boxed((64, 64), 256, Order::Beside);
    "attention.tma_64x64_all" whole((64, 64), 1, 128, 4);
    "attention.tma_64x128_all" whole((64, 128), 65, 128, 4);
    "attention.tma_128x128_all" whole((128, 128), 65, 128, 2);
    "attention.tma_64x208_all" whole((64, 208), 129, 128, 3);
    "attention.tma_64x256_all" whole((64, 256), 209, 128, 2);
    "attention.tma_64x64_all_wide" whole((64, 64), 1, 256, 3);
    "attention.tma_64x128_all_wide" whole((64, 128), 65, 256, 2);
    "attention.mma_128x64_all" short((128, 64), 8, 2);
    "attention.mma_64x64_all" short((64, 64), 4, 4);
}

/// The fewest steps over the keys in which the order of warpgroups matters.
const LEAST_STEPS: usize = 3;

/// The table as a list.
pub fn tiles() -> Vec<tiles::Tile> {
    TILES.iter().map(|(name, tile)| tile.listed(name)).collect()
}

fn tactics(site: &Site<'_>, name: &str, tile: &Tile) -> Result<Vec<Tactic>, BackendError> {
    unmoved(site)?;
    let t = element_type(site)?;
    let attrs = site.op()?.attrs();
    if t == DType::F32 && !site.target.has("tf32") {
        return unsupported("tensor cores for f32 without TF32");
    }
    if site.wanted(3) {
        return unsupported("scores that are an output");
    }
    if is_positioned(site)? {
        return unsupported("windows, or causal masks that begin where lengths tell");
    }
    if attrs.float("scale").map_err(op_error)? < 0.0 || attrs.float("softcap").map_err(op_error)? < 0.0 {
        return unsupported("a negative scale or cap");
    }
    let heads = Heads::of(site)?;
    let largest = heads.of_keys.max(heads.of_values) * heads.size;
    if largest > tile.most {
        return unsupported(format!("heads of {largest} bytes, {} are possible", tile.most));
    }
    if tile.groups {
        has_wgmma(site.target)?;
        if t == DType::F32 || present(site) {
            return unsupported("wgmma for attention of f32, or with keys that are an output");
        }
        if site.dtype(MASK).is_some() && tile.rows * tile.keys >= 128 * 128 && !tile.boxes {
            return unsupported("a mask, for which the largest tile leaves no registers");
        }
    }
    let boxes = if tile.boxes { Some(Boxes::at(site, tile)?) } else { None };
    let masked = boxes.as_ref().is_some_and(Boxes::masked);
    let by_elements =
        boxes.as_ref().is_some_and(|b| site.dtype(MASK).is_some() && !masked && !b.mask_of_keys);
    if by_elements && tile.keys != 64 {
        return unsupported("a mask that is read by elements, for which larger tiles leave no registers");
    }
    // Narrow heads have tiles for few steps: those that copy all keys at once.
    let least = if tile.boxes && largest > AT_ONCE_BYTES { 2 } else { LEAST_STEPS };
    if tile.order != Order::After && heads.steps(tile.keys).is_some_and(|n| n < least) {
        return unsupported(format!("another order of fewer than {least} steps"));
    }
    if let Some((least, most)) = tile.at_once
        && (present(site) || tile.all_keys(&heads).is_none())
    {
        return unsupported(format!(
            "keys that are an output, or not {least} to {most}, in shared memory at once"
        ));
    }
    let (needs, has) = (tile.shared(&heads, masked) as u64, site.target.numbers.get("shared_memory"));
    if has.is_some_and(|&has| has < needs) {
        return unsupported(format!("{needs} bytes of shared memory, there are fewer"));
    }
    Ok(vec![Tactic {
        estimate_ns: cost::estimate(site, tile, &heads, masked),
        // The keys and values of a cache are written together.
        leaves_unread: site.wanted(1) == site.wanted(2),
        ..Tactic::plain(name)
    }])
}
