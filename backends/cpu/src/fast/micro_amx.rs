//! Tiles of products of bytes by the processor's matrix unit, AMX: sixteen rows by sixteen columns, 64 products deep, in one instruction.
//!
//! Registers of tiles 0 and 1 have the sums of the first and of the second sixteen columns. Every second step has sums of its own, in 2 and
//! 3, so that no step waits for the one before. Rows are in 4, columns in 6 and 7.

use super::micro::{MAX_ROWS, Panel, Place, Run, Start, kernels};
use super::simd::allows_matrix_unit;
use std::arch::asm;
use std::sync::OnceLock;

/// Four bytes of a row or a column.
type Four = [u8; 4];

/// Rows of a tile at most.
pub const ROWS: usize = 16;
/// Columns of a register.
const WIDE: usize = 16;
/// Groups of four bytes that an instruction multiplies.
const DEEP: usize = 16;

pub const BYTES: &[Run<Four, i32>] = kernels!(bytes, 2; 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
pub const HALF_BYTES: &[Run<Four, i32>] = kernels!(bytes, 1; 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
pub const COLUMNS: &[Run<Four, i32>] = kernels!(columns, 2; 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);
pub const HALF_COLUMNS: &[Run<Four, i32>] = kernels!(columns, 1; 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16);

/// Whether the processor has the unit, and the system and the environment let this process use it. Asked once.
pub fn available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| allows_matrix_unit() && has_instructions() && is_permitted())
}

fn has_instructions() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    const TILES: u32 = 1 << 24;
    const BYTES: u32 = 1 << 25;
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & (TILES | BYTES) == TILES | BYTES
}

/// Linux saves the unit's registers for processes that ask for it.
#[cfg(target_os = "linux")]
fn is_permitted() -> bool {
    const REQUEST: libc::c_long = 0x1023;
    const TILE_DATA: libc::c_long = 18;
    // SAFETY: the call takes numbers, and changes nothing but what the process may use.
    unsafe { libc::syscall(libc::SYS_arch_prctl, REQUEST, TILE_DATA) == 0 }
}

#[cfg(not(target_os = "linux"))]
fn is_permitted() -> bool {
    false
}

/// Rows and bytes of rows of each register.
#[repr(C, align(64))]
struct Shapes {
    palette: u8,
    first_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Shapes {
    const fn of(rows: usize) -> Shapes {
        let mut s = Shapes { palette: 1, first_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
        let mut i = 0;
        while i < 8 {
            s.row_bytes[i] = 64;
            s.rows[i] = if i < 6 { rows as u8 } else { DEEP as u8 };
            i += 1;
        }
        s
    }
}

/// # Safety
/// The processor has the unit, which this thread may use.
unsafe fn begin(shapes: &Shapes) {
    // SAFETY: as the contract says; the shapes are 64 bytes.
    unsafe { asm!("ldtilecfg [{}]", in(reg) shapes, options(nostack)) };
}

/// # Safety
/// As of [`begin`], which came before.
unsafe fn end() {
    // SAFETY: as the contract says.
    unsafe { asm!("tilerelease", options(nostack)) };
}

/// # Safety
/// As of [`end`].
#[inline(always)]
unsafe fn clear<const T: u8>() {
    // SAFETY: as the contract says.
    unsafe { asm!("tilezero tmm{}", const T, options(nostack)) };
}

/// # Safety
/// As of [`end`]; rows of the register's bytes are there, so many bytes apart.
#[inline(always)]
unsafe fn load<const T: u8, E>(from: *const E, apart: usize) {
    // SAFETY: as the contract says.
    unsafe { asm!("tileloadd tmm{}, [{} + {}*1]", const T, in(reg) from, in(reg) apart, options(nostack)) };
}

/// # Safety
/// As of [`load`]; nobody else has that memory.
#[inline(always)]
unsafe fn store<const T: u8>(to: *mut i32, apart: usize) {
    // SAFETY: as the contract says.
    unsafe { asm!("tilestored [{} + {}*1], tmm{}", in(reg) to, in(reg) apart, const T, options(nostack)) };
}

/// Adds the products of rows and columns. Bytes of columns have a sign, those of rows none; or the other way around.
///
/// # Safety
/// As of [`end`].
#[inline(always)]
unsafe fn multiply<const SUMS: u8, const COLUMNS: u8, const SIGNED_ROWS: bool>() {
    // SAFETY: as the contract says.
    unsafe {
        match SIGNED_ROWS {
            false => asm!("tdpbusd tmm{}, tmm4, tmm{}", const SUMS, const COLUMNS, options(nostack)),
            true => asm!("tdpbsud tmm{}, tmm4, tmm{}", const SUMS, const COLUMNS, options(nostack)),
        }
    }
}

/// # Safety
/// As of [`Run`].
unsafe fn bytes<const MR: usize, const V: usize>(
    rows: &[&[Four]; MAX_ROWS],
    b: Panel<'_, Four>,
    start: Start<'_, i32>,
    to: Place<i32>,
) {
    // SAFETY: as the contract says.
    unsafe { tile::<MR, V, false>(rows, b, start, to) }
}

/// # Safety
/// As of [`Run`].
unsafe fn columns<const MR: usize, const V: usize>(
    rows: &[&[Four]; MAX_ROWS],
    b: Panel<'_, Four>,
    start: Start<'_, i32>,
    to: Place<i32>,
) {
    // SAFETY: as the contract says.
    unsafe { tile::<MR, V, true>(rows, b, start, to) }
}

/// # Safety
/// As of [`Run`].
unsafe fn tile<const MR: usize, const V: usize, const SIGNED_ROWS: bool>(
    rows: &[&[Four]; MAX_ROWS],
    b: Panel<'_, Four>,
    start: Start<'_, i32>,
    to: Place<i32>,
) {
    let rows: [&[Four]; MR] = std::array::from_fn(|i| &rows[i][..b.depth]);
    let bytes = |elements: usize| elements * size_of::<i32>();
    let whole = b.depth / DEEP;
    let left = b.depth % DEEP;
    // SAFETY: `begin` comes first. Tiles are loaded from rows of at least 64 bytes: of rows and of the panel, which have so many groups
    // where a step is whole, of copies where it is not, and of the place, which has `V` times sixteen columns.
    unsafe {
        begin(const { &Shapes::of(MR) });
        first::<MR, V>(start, to);
        clear::<2>();
        if V == 2 {
            clear::<3>();
        }
        let apart = even::<MR>(&rows);
        for step in 0..whole {
            match apart {
                Some(apart) => load::<4, _>(rows[0].as_ptr().add(step * DEEP), apart),
                None => load::<4, _>(copied(&rows, step * DEEP, DEEP).as_ptr(), DEEP * size_of::<Four>()),
            }
            add::<V, SIGNED_ROWS>(b.data.as_ptr().add(step * DEEP * b.pitch), bytes(b.pitch), step % 2 == 1);
        }
        if left > 0 {
            load::<4, _>(copied(&rows, whole * DEEP, left).as_ptr(), DEEP * size_of::<Four>());
            let mut lines = [[[0u8; 4]; 2 * WIDE]; DEEP];
            for (k, line) in lines.iter_mut().enumerate().take(left) {
                line[..V * WIDE].copy_from_slice(&b.data[(whole * DEEP + k) * b.pitch..][..V * WIDE]);
            }
            add::<V, SIGNED_ROWS>(lines.as_flattened().as_ptr(), bytes(2 * WIDE), whole % 2 == 1);
        }
        store::<0>(to.first, bytes(to.stride));
        if V == 2 {
            store::<1>(to.first.add(WIDE), bytes(to.stride));
        }
        if whole + usize::from(left > 0) > 1 {
            let mut others = [[0i32; 2 * WIDE]; MR];
            store::<2>(others.as_flattened_mut().as_mut_ptr(), bytes(2 * WIDE));
            if V == 2 {
                store::<3>(others.as_flattened_mut()[WIDE..].as_mut_ptr(), bytes(2 * WIDE));
            }
            for (i, others) in others.iter().enumerate() {
                let sums = std::slice::from_raw_parts_mut(to.first.add(i * to.stride), V * WIDE);
                sums.iter_mut().zip(others).for_each(|(sum, x)| *sum = sum.wrapping_add(*x));
            }
        }
        end();
    }
}

/// Sets the first sums.
///
/// # Safety
/// As of [`Run`], behind [`begin`].
unsafe fn first<const MR: usize, const V: usize>(start: Start<'_, i32>, to: Place<i32>) {
    let mut sums = [[0i32; 2 * WIDE]; MR];
    let (from, stride) = match start {
        Start::There => (to.first.cast_const(), to.stride),
        Start::Zero => (sums.as_flattened().as_ptr(), 2 * WIDE),
        Start::Rows(given) => {
            sums.iter_mut().zip(given).for_each(|(sums, x)| sums.fill(*x));
            (sums.as_flattened().as_ptr(), 2 * WIDE)
        }
        Start::Columns(given) => {
            sums.iter_mut().for_each(|sums| sums[..V * WIDE].copy_from_slice(&given[..V * WIDE]));
            (sums.as_flattened().as_ptr(), 2 * WIDE)
        }
    };
    // SAFETY: both have `V` times sixteen columns.
    unsafe {
        load::<0, _>(from, stride * size_of::<i32>());
        if V == 2 {
            load::<1, _>(from.add(WIDE), stride * size_of::<i32>());
        }
    }
}

/// Adds the products of the loaded rows and of lines of columns, so many bytes apart. Even and odd steps have sums of their own.
///
/// # Safety
/// As of [`load`].
#[inline(always)]
unsafe fn add<const V: usize, const SIGNED_ROWS: bool>(lines: *const Four, apart: usize, odd: bool) {
    // SAFETY: as the contract says.
    unsafe {
        load::<6, _>(lines, apart);
        if V == 2 {
            load::<7, _>(lines.add(WIDE), apart);
        }
        match odd {
            false => multiply::<0, 6, SIGNED_ROWS>(),
            true => multiply::<2, 6, SIGNED_ROWS>(),
        }
        match odd {
            _ if V == 1 => {}
            false => multiply::<1, 7, SIGNED_ROWS>(),
            true => multiply::<3, 7, SIGNED_ROWS>(),
        }
    }
}

/// Bytes from row to row, where all are as far apart and in order.
fn even<const MR: usize>(rows: &[&[Four]; MR]) -> Option<usize> {
    let address = |i: usize| rows[i].as_ptr().addr();
    let apart = if MR > 1 { address(1).checked_sub(address(0))? } else { 0 };
    (1..MR).all(|i| address(i) == address(0) + i * apart).then_some(apart)
}

/// Some groups of all rows, zeros behind them.
fn copied<const MR: usize>(rows: &[&[Four]; MR], from: usize, count: usize) -> [[Four; DEEP]; MR] {
    let mut all = [[[0; 4]; DEEP]; MR];
    all.iter_mut().zip(rows).for_each(|(to, row)| to[..count].copy_from_slice(&row[from..from + count]));
    all
}
