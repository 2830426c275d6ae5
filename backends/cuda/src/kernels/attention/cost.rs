//! The time that attention is expected to take.

use super::tile::{Heads, MASK, Order, Tile};
use crate::target::capability;
use kiln_codegen::site::Site;

/// Factor of the time of blocks that wait for all their keys at once and read a mask: nothing else goes on
/// meanwhile.
const MASKED_AT_ONCE: f64 = 1.3;
/// Factor of the time of warpgroups that read a mask only when its scores are there: it does not fit beside larger tiles.
const MASKED_LATE: f64 = 1.5;
/// Factor of the time of blocks for which one thread copies boxes: no step waits for the copies of another.
const BOXED: f64 = 0.7;
/// Nanoseconds of a launch.
const LAUNCH_NS: f64 = 2000.0;
/// Clocks of a block before its first and after its last product, and what they take of a multiprocessor's time.
const BLOCK_CLOCKS: [f64; 2] = [3500.0, 400.0];
/// Clocks that a step takes at least: whatever its size, and for each of a warp's keys and 16 rows.
const STEP_CLOCKS: [f64; 2] = [1200.0, 22.0];
/// Clocks of 16 rows by 8 keys beside products, and bytes that come from the L2 in a clock.
const SCORE_CLOCKS: f64 = 14.0;
const L2_BYTES: f64 = 45.0;

/// The nanoseconds that a tile is expected to take, if all sizes are known.
pub fn estimate(site: &Site<'_>, tile: &Tile, heads: &Heads, masked: bool) -> Option<f64> {
    let (_, node) = site.anchor?;
    let dims = |j: usize| site.graph.ty(*node.outputs.get(j)?).static_dims();
    let (qk, cache) = (dims(3)?, dims(1)?);
    let (&[batch, q_heads, queries, keys], &[_, kv_heads, ..]) = (&qk[..], &cache[..]) else { return None };
    let number = |name: &str, default: f64| site.target.numbers.get(name).map_or(default, |&n| n as f64);
    let rows = q_heads.checked_div(kv_heads)? * queries;
    let (parts, share) = tile.parts(keys);
    let each = (batch * kv_heads * rows.div_ceil(tile.rows) * parts) as f64 / number("sm_count", 50.0);
    let steps = match tile.all_keys(heads) {
        Some(all) => all as f64 / tile.keys as f64,
        None => share.min(keys).div_ceil(tile.keys) as f64,
    };
    let width = (heads.of_keys + heads.of_values) as f64;
    // Per multiprocessor: products, and what they read.
    let strips = (rows.min(tile.rows).div_ceil(16) * (keys.min(tile.keys)).div_ceil(8)) as f64;
    let deep = tile.rows / tile.warps.0 / 16;
    let rate = if capability(&site.target.arch) == 80 { 1800.0 } else { 1450.0 };
    // Warpgroups multiply faster, while others weigh.
    let (rate, score_clocks) = if tile.groups { (3000.0, 0.6 * SCORE_CLOCKS) } else { (rate, SCORE_CLOCKS) };
    let product = 128.0 * width * heads.size as f64 / rate;
    let work = strips * (product + score_clocks) * if deep > 1 { 0.8 } else { 1.0 };
    let read = tile.keys as f64 * width * heads.size as f64 / L2_BYTES;
    let busy = each * (BLOCK_CLOCKS[1] + steps * work.max(read));
    // Of blocks one after the other: registers allow 512 threads, or fewer, by the sums that they keep.
    let kept = (deep * (heads.of_values / 2 + tile.keys / tile.warps.1 / 2)) as f64;
    let threads = 65536.0 / (64.0 + kept * 1.2).min(255.0);
    let by_registers = tile.beside.map_or(threads / tile.threads() as f64, |n| n as f64);
    let fit = by_registers.min(number("shared_memory", 1e5) / tile.shared(heads, masked) as f64);
    let of_keys = if tile.groups { STEP_CLOCKS[1] / 2.0 } else { STEP_CLOCKS[1] };
    let step = STEP_CLOCKS[0] + of_keys * (tile.keys / tile.warps.1 * deep) as f64;
    let latent = (each / fit.floor().max(1.0)).ceil() * (BLOCK_CLOCKS[0] + steps * step);
    let clocks = busy.max(latent) + 0.3 * busy.min(latent);
    let waits = match site.dtype(MASK).is_some() {
        true if tile.at_once.is_some() && !tile.boxes => MASKED_AT_ONCE,
        true if tile.groups && tile.keys > 64 && !masked => MASKED_LATE,
        _ => 1.0,
    };
    let order = match tile.order {
        Order::After => 1.0,
        Order::InTurns | Order::Beside | Order::BesideBoth => 1.01,
    };
    let order = if tile.boxes { order * BOXED } else { order };
    let time = order * waits * clocks / (number("clock_mhz", 1500.0).max(1.0) / 1000.0);
    let bytes = (batch * (q_heads * queries + kv_heads * keys)) as f64 * width * heads.size as f64;
    let partial = if tile.split > 1 { (batch * q_heads * queries * parts) as f64 * width * 4.0 } else { 0.0 };
    let more = if tile.split > 1 { LAUNCH_NS } else { 0.0 };
    Some(LAUNCH_NS + more + time.max((bytes + partial) / number("bandwidth_gbs", 500.0).max(1.0)))
}
