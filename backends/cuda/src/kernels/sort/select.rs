//! The first elements of long lines, selected by the digits of their keys.

use super::keyed::{check, kept, keyed, sizes, slot_bytes};
use crate::kernels::alone;
use crate::kernels::shape::{moving, traffic};
use kiln_backend::{BackendError, Tactic};
use kiln_codegen::site::{Cx, Site, unsupported};
use kiln_codegen::{Body, Entry, Grid, Kernel, Launch};
use kiln_ir::DType;

/// The kernels.
pub const KERNELS: &[Kernel] = &[alone("topk.select", &["topk"], tactics, |site, _| source(site), launch)];

kiln_codegen::params! {
    /// The first elements of lines, selected by blocks.
    struct TopkSelectParams {
        /// Elements of a line.
        count: u32,
        /// Elements from one element of a line to the next.
        inner: u32,
        /// Elements of a line of the result.
        kept: u32,
        /// Parts of a line.
        parts: u32,
        /// Elements of a part.
        part: u32,
        /// Bits of a position.
        place_bits: u32,
    }
}

/// Threads of a block, and of one for short parts.
const THREADS: u32 = 1024;
const FEWER: u32 = 256;
/// Bytes that a block has for slots.
const ROOM: usize = 32 << 10;

/// Elements that can be kept of a line.
fn most(t: DType) -> usize {
    ROOM / slot_bytes(t)
}

fn tactics(site: &Site<'_>) -> Result<Vec<Tactic>, BackendError> {
    check(site)?;
    let most = most(site.first_dtype());
    match kept(site) {
        None => return unsupported("a selection of a number that is not known"),
        Some(k) if k > most => {
            return unsupported(format!("a selection of {k} elements, of which a block has room for {most}"));
        }
        Some(_) => {}
    }
    let estimate_ns = sizes(site).zip(traffic(site)).map(|(s, bytes)| {
        let (parts, part) = parts(s.count, s.rows, s.kept);
        // Passes of 264 blocks at once, some clocks an element, and the sort of what is left.
        let waves = (s.rows * parts).div_ceil(264) as f64;
        let more = if parts > 1 { 3000.0 } else { 0.0 };
        moving(site.target, bytes, 1.2) + more + waves * (3000.0 + part as f64 * 0.2 + s.kept as f64)
    });
    Ok(vec![Tactic { estimate_ns, ..Tactic::plain("topk.select") }])
}

fn source(site: &Site<'_>) -> Result<Body, BackendError> {
    let entries = [("select_parts", THREADS), ("select_survivors", THREADS), ("select_short_parts", FEWER)];
    let entries = entries.map(|(name, threads)| Entry::blocks(name, threads)).into();
    keyed(site, Body::of("sort/topk_select", entries))
}

/// As many blocks keep a large device busy.
const BLOCKS: usize = 132;
/// Elements of a part that fewer threads select from where there are many.
const LONG: usize = 16 << 10;
/// Elements of a part at least.
const PART: usize = 4096;

/// Parts of a line and elements of a part; each part but the last has `kept` elements.
fn parts(count: usize, rows: usize, kept: usize) -> (usize, usize) {
    let least = PART.max(kept * 8);
    // The last selection is among all that the parts have kept.
    let most = (count / kept.max(1)).isqrt().min(count / least).max(1);
    let parts = (BLOCKS / rows.max(1)).clamp(1, most);
    let part = count.div_ceil(parts).max(1);
    (count.div_ceil(part).max(1), part)
}

fn launch(cx: &Cx<'_>) -> Result<Vec<Launch>, BackendError> {
    let (x, out) = (cx.shape(0)?, cx.out_shape(0)?);
    let axis = cx.axis(x.len())?;
    let (count, kept) = (x[axis], out[axis]);
    let inner = x[axis + 1..].iter().product();
    let rows = x[..axis].iter().product::<usize>() * inner;
    if rows == 0 || kept == 0 {
        return Ok(Vec::new());
    }
    let (parts, part) = parts(count, rows, kept);
    let place_bits = (usize::BITS - count.leading_zeros()) as usize;
    let w = TopkSelectParams { count, inner, kept, parts, part, place_bits }.words()?;
    let bytes = match parts {
        1 => 0,
        // The wider kind of slots.
        _ => (rows * parts * kept * 16) as u64,
    };
    let short = part <= LONG && rows * parts > BLOCKS && kept * 4 <= most(DType::I64);
    let mut all = vec![
        Launch::map(if short { 2 } else { 0 }, w.clone())
            .on(Grid::Groups((rows * parts) as u64))
            .scratch(bytes),
    ];
    if parts > 1 {
        all.push(Launch::map(1, w).on(Grid::Groups(rows as u64)).scratch(bytes));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn all_parts_but_the_last_have_what_is_kept() {
        for count in [1, 50, 4095, 4096, 8191, 50_257, 1 << 20, (1 << 20) + 1] {
            for rows in [1, 3, 60, 131, 132, 5000] {
                for kept in [1, 7, 1000, 4096].into_iter().filter(|k| *k <= count) {
                    let (parts, part) = parts(count, rows, kept);
                    assert!(parts * part >= count && (parts - 1) * part < count, "{count} {rows} {kept}");
                    assert!(parts == 1 || part >= kept, "{count} {rows} {kept}");
                }
            }
        }
    }
}
