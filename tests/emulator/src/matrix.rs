//! Matrices in registers and in shared memory: loads, products of a warp and of four warps. Fragments are laid out alike in bytes,
//! whatever the type: a thread has four neighbouring bytes of a row.

use crate::copies::swizzled;
use crate::float::{Rounding, narrow, of_f8, wide};
use crate::instruction::{Body, Element, GroupOperand, GroupProduct, Product, Source, Space};
use crate::launch::Group;
use crate::types::{LANES, Type};
use crate::warp::Warp;

/// Executes an instruction in all threads of a warp.
pub fn perform(group: &mut Group<'_>, block: usize, warp: &mut Warp, body: &Body) -> Result<(), String> {
    match body {
        Body::LoadMatrices { d, at, turned } => {
            for (k, d) in d.iter().enumerate() {
                let mut matrix = [[0u8; 16]; 8];
                for (r, row) in matrix.iter_mut().enumerate() {
                    let address = warp.address(at, k * 8 + r);
                    let from = group.memory.at(block, warp, 0, Space::Shared, address, 16)?;
                    // SAFETY: so many bytes are there.
                    unsafe { std::ptr::copy_nonoverlapping(from, row.as_mut_ptr(), 16) };
                }
                let half = |r: usize, c: usize| {
                    u64::from(u16::from_le_bytes([matrix[r][2 * c], matrix[r][2 * c + 1]]))
                };
                let values = std::array::from_fn(|lane| {
                    let (r, c) = (lane / 4, lane % 4 * 2);
                    if *turned {
                        half(c, r) | half(c + 1, r) << 16
                    } else {
                        half(r, c) | half(r, c + 1) << 16
                    }
                });
                warp.write(*d, &values, u32::MAX);
            }
        }
        Body::StoreMatrices { s, at, turned } => {
            for (k, s) in s.iter().enumerate() {
                let values = *warp.read(s);
                for r in 0..8 {
                    let address = warp.address(at, k * 8 + r);
                    for c in 0..8 {
                        let (row, column) = if *turned { (c, r) } else { (r, c) };
                        let value = values[row * 4 + column / 2] >> (16 * (column % 2)) & 0xffff;
                        group.memory.write(
                            block,
                            warp,
                            0,
                            Space::Shared,
                            address + 2 * c as u64,
                            2,
                            value,
                        )?;
                    }
                }
            }
        }
        Body::Product(p) => product(warp, p),
        Body::GroupProduct(p) => group_product(group, block, warp, p)?,
        _ => return Err("an instruction of other threads".into()),
    }
    Ok(())
}

fn bytes_of(e: Element) -> usize {
    match e {
        Element::F16 | Element::Bf16 => 2,
        Element::Tf32 => 4,
        _ => 1,
    }
}

/// The element that bytes are.
fn decoded(bytes: &[u8], e: Element) -> f64 {
    let half = || u64::from(u16::from_le_bytes([bytes[0], bytes[1]]));
    match e {
        Element::F16 => wide(half(), Type::F16),
        Element::Bf16 => wide(half(), Type::Bf16),
        // The instruction reads the highest 19 bits.
        Element::Tf32 => {
            let word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
            f64::from(f32::from_bits(word & 0xffff_e000))
        }
        Element::E4m3 => f64::from(of_f8(bytes[0], 3)),
        Element::E5m2 => f64::from(of_f8(bytes[0], 2)),
        Element::S8 => f64::from(bytes[0] as i8),
        Element::U8 => f64::from(bytes[0]),
    }
}

/// Rows of bytes that registers hold: of thread (g, c) register `i` is in row g + 8 (i % 2 or as `rows` says).
fn rows(warp: &Warp, s: &[Source], of_b: bool) -> Vec<Vec<u8>> {
    let (count, words) = if of_b { (8, s.len()) } else { (16, s.len() / 2) };
    let mut out = vec![vec![0u8; words * 16]; count];
    for (i, s) in s.iter().enumerate() {
        let values = warp.read(s);
        for (lane, v) in values.iter().enumerate() {
            let (g, c) = (lane / 4, lane % 4);
            let (row, word) = if of_b { (g, i) } else { (g + 8 * (i % 2), i / 2) };
            let at = word * 16 + c * 4;
            out[row][at..at + 4].copy_from_slice(&(*v as u32).to_le_bytes());
        }
    }
    out
}

fn elements(row: &[u8], e: Element) -> Vec<f64> {
    row.chunks_exact(bytes_of(e)).map(|b| decoded(b, e)).collect()
}

/// The sum with the products added.
fn added(old: u64, sum: f64, whole: bool, half: bool) -> u64 {
    if whole {
        return (old as u32 as i32).wrapping_add(sum as i64 as i32) as u32 as u64;
    }
    let of = if half { Type::F16 } else { Type::F32 };
    narrow(wide(old, of) + sum, of, Rounding::Nearest)
}

/// Row and columns of the element of D that a thread has in register `i`: rows g and g + 8, columns 2c and 2c + 1.
fn place(lane: usize, i: usize) -> (usize, usize) {
    (lane / 4 + 8 * (i / 2 % 2), lane % 4 * 2 + i % 2 + i / 4 * 8)
}

fn product(warp: &mut Warp, p: &Product) {
    let mut a: Vec<Vec<f64>> = rows(warp, &p.a, false).iter().map(|r| elements(r, p.a_type)).collect();
    let b: Vec<Vec<f64>> = rows(warp, &p.b, true).iter().map(|r| elements(r, p.b_type)).collect();
    if let Some((words, selector)) = &p.sparse {
        a = spread(&a, warp.read(words), *selector, b[0].len(), p.a_type);
    }
    let dot = |r: usize, c: usize| -> f64 { a[r].iter().zip(&b[c]).map(|(x, y)| x * y).sum() };
    if p.half_sums {
        for (i, d) in p.d.iter().enumerate() {
            let old = *warp.read(&p.c[i]);
            let values = std::array::from_fn(|lane| {
                let (r, c) = place(lane, 2 * i);
                let low = added(old[lane] & 0xffff, dot(r, c), false, true);
                low | added(old[lane] >> 16, dot(r, c + 1), false, true) << 16
            });
            warp.write(*d, &values, u32::MAX);
        }
        return;
    }
    let old: Vec<_> = p.c.iter().map(|c| *warp.read(c)).collect();
    for (i, d) in p.d.iter().enumerate() {
        let values = std::array::from_fn(|lane| {
            let (r, c) = place(lane, i);
            added(old[i][lane], dot(r, c), p.whole, false)
        });
        warp.write(*d, &values, u32::MAX);
    }
}

/// Rows of A whose elements are at the places that `words` say: two of each four, each by two bits. A thread has
/// the places of four groups of two rows for 16-bit types, and of eight groups of one row for 8-bit types.
fn spread(a: &[Vec<f64>], words: &[u64; LANES], selector: u64, depth: usize, e: Element) -> Vec<Vec<f64>> {
    let mut out = vec![vec![0.0; depth]; 16];
    for (row, to) in out.iter_mut().enumerate() {
        for group in 0..depth / 4 {
            let (column, bit) = match bytes_of(e) {
                1 => (group / 8 * 2 + row / 8, group % 8 * 4),
                _ => (selector as usize * 2 + group / 4, group % 4 * 4 + row / 8 * 16),
            };
            let word = words[row % 8 * 4 + column % 4] >> bit;
            for k in 0..2 {
                let index = (word >> (2 * k) & 3) as usize;
                to[group * 4 + index] += a[row].get(group * 2 + k).copied().unwrap_or(0.0);
            }
        }
    }
    out
}

/// A matrix in shared memory.
struct Stored {
    start: u64,
    leading: u64,
    stride: u64,
    turned: bool,
    size: usize,
    /// Bytes of a row, and of the swizzle.
    row: u64,
}

impl Stored {
    fn of(descriptor: u64, turned: bool, size: usize) -> Result<Stored, String> {
        let field = |at: u32| (descriptor >> at & 0x3fff) << 4;
        let row = match descriptor >> 62 {
            1 => 128,
            2 if !turned => 64,
            _ => return Err("a matrix without the swizzle of 128 or 64 bytes".into()),
        };
        if descriptor >> 49 & 7 != 0 {
            return Err("a matrix with an offset of its base".into());
        }
        Ok(Stored { start: field(0), leading: field(16), stride: field(32), turned, size, row })
    }

    /// The address of element (line, k); k is the depth.
    fn at(&self, line: usize, k: usize) -> u64 {
        let address = if self.turned {
            let of_row = 128 / self.size;
            (line / of_row) as u64 * self.leading
                + (k / 8) as u64 * self.stride
                + (k % 8) as u64 * 128
                + (line % of_row * self.size) as u64
        } else {
            (line / 8) as u64 * self.stride + (line % 8) as u64 * self.row + (k * self.size) as u64
        };
        swizzled(self.start + address, self.row)
    }
}

fn group_product(
    group: &mut Group<'_>,
    block: usize,
    warp: &mut Warp,
    p: &GroupProduct,
) -> Result<(), String> {
    let columns = if p.half_sums { p.d.len() * 4 } else { p.d.len() * 2 };
    let size = bytes_of(p.a_type);
    let depth = 32 / size;
    let depth_b = if p.sparse.is_some() { 2 * depth } else { depth };
    let mut load = |warp: &mut Warp, s: &Stored, line: usize, k: usize, e: Element| -> Result<f64, String> {
        let from = group.memory.at(block, warp, 0, Space::Shared, s.at(line, k), size as u64)?;
        let mut bytes = [0u8; 4];
        // SAFETY: so many bytes are there.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), size) };
        Ok(decoded(&bytes, e))
    };
    let mut a: Vec<Vec<f64>> = match &p.a {
        GroupOperand::Registers(s) => rows(warp, s, false).iter().map(|r| elements(r, p.a_type)).collect(),
        GroupOperand::Memory(s) => {
            let stored = Stored::of(warp.value(s, 0), p.turned_a, size)?;
            let first = warp.number % 4 * 16;
            let mut all = Vec::with_capacity(16);
            for r in 0..16 {
                let row: Result<Vec<f64>, String> =
                    (0..depth).map(|k| load(warp, &stored, first + r, k, p.a_type)).collect();
                all.push(row?);
            }
            all
        }
    };
    let stored = Stored::of(warp.value(&p.b, 0), p.turned_b, size)?;
    let mut b: Vec<Vec<f64>> = Vec::with_capacity(columns);
    for c in 0..columns {
        let row: Result<Vec<f64>, String> =
            (0..depth_b).map(|k| load(warp, &stored, c, k, p.b_type)).collect();
        b.push(row?);
    }
    if let Some((words, selector)) = &p.sparse {
        a = spread(&a, warp.read(words), *selector, depth_b, p.a_type);
    }
    let sign = if p.negative_a != p.negative_b { -1.0 } else { 1.0 };
    let dot = |r: usize, c: usize| -> f64 { sign * a[r].iter().zip(&b[c]).map(|(x, y)| x * y).sum::<f64>() };
    let keeps = warp.value(&p.keeps, 0) != 0;
    for (i, d) in p.d.iter().enumerate() {
        let old = if keeps { warp.registers[*d] } else { [0; LANES] };
        let values = std::array::from_fn(|lane| match p.half_sums {
            true => {
                let (r, c) = place(lane, 2 * i);
                let low = added(old[lane] & 0xffff, dot(r, c), false, true);
                low | added(old[lane] >> 16, dot(r, c + 1), false, true) << 16
            }
            false => {
                let (r, c) = place(lane, i);
                added(old[lane], dot(r, c), p.whole, false)
            }
        });
        warp.write(*d, &values, u32::MAX);
    }
    Ok(())
}
