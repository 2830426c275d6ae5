//! Copies into shared memory, by threads and by boxes of tensors, and barriers in shared memory that count them. Copies are done
//! at once, so that a kernel that does not wait for one is not found.

use crate::addresses::of_rank;
use crate::instruction::{Body, BoxCopy, Space};
use crate::launch::Group;
use crate::warp::{Warp, lanes};

/// Barrier in shared memory: the round, the threads that it waits for, those that are missing, and the bytes that are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counter {
    odd: bool,
    count: u32,
    missing: u32,
    bytes: i32,
}

impl Counter {
    const FIELD: u64 = (1 << 20) - 1;

    fn of(word: u64) -> Counter {
        let bytes = (word >> 41 & ((1 << 22) - 1)) as i32;
        Counter {
            odd: word & 1 == 1,
            count: (word >> 1 & Self::FIELD) as u32,
            missing: (word >> 21 & Self::FIELD) as u32,
            bytes: bytes << 10 >> 10,
        }
    }

    fn word(self) -> u64 {
        u64::from(self.odd)
            | u64::from(self.count) << 1
            | u64::from(self.missing) << 21
            | (self.bytes as u64 & ((1 << 22) - 1)) << 41
    }

    fn arrive(mut self, n: u32, expected: i32) -> Result<Counter, String> {
        self.bytes += expected;
        if n > self.missing {
            return Err(format!("{n} threads come to a barrier that waits for {}", self.missing));
        }
        self.missing -= n;
        Ok(self.ended())
    }

    fn complete(mut self, bytes: i32) -> Counter {
        self.bytes -= bytes;
        self.ended()
    }

    fn ended(mut self) -> Counter {
        if self.missing == 0 && self.bytes == 0 {
            self.odd = !self.odd;
            self.missing = self.count;
        }
        self
    }
}

/// Description of a tensor, as the driver of tests writes it.
struct Map {
    address: u64,
    size: u64,
    rank: usize,
    dims: [u64; 5],
    strides: [u64; 5],
    block: [u64; 5],
    steps: [u64; 5],
    lower: [i64; 2],
    channels: u64,
    pixels: u64,
    upper: [i64; 2],
}

impl Map {
    fn of(bytes: &[u8; 128]) -> Map {
        let half = |i: usize| u64::from(u16::from_le_bytes([bytes[i], bytes[i + 1]]));
        let word = |i: usize| u32::from_le_bytes([bytes[i], bytes[i + 1], bytes[i + 2], bytes[i + 3]]);
        let long = |i: usize| u64::from(word(i)) | u64::from(word(i + 4)) << 32;
        Map {
            address: long(0),
            size: u64::from(bytes[16]),
            rank: usize::from(bytes[17]).min(5),
            dims: std::array::from_fn(|i| u64::from(word(24 + 4 * i))),
            strides: std::array::from_fn(
                |i| if i == 0 { u64::from(bytes[16]) } else { long(44 + 8 * (i - 1)) },
            ),
            block: std::array::from_fn(|i| half(76 + 2 * i)),
            steps: std::array::from_fn(|i| u64::from(bytes[86 + i])),
            lower: std::array::from_fn(|i| i64::from(half(92 + 2 * i) as i16)),
            upper: std::array::from_fn(|i| i64::from(half(96 + 2 * i) as i16)),
            channels: half(100),
            pixels: half(102),
        }
    }
}

/// Swizzle of rows of so many bytes, 128 or 64: 16 bytes change places by the 128 bytes that they are in.
pub fn swizzled(address: u64, row: u64) -> u64 {
    address ^ (address >> 7 & (row / 16 - 1)) << 4
}

fn change(
    group: &mut Group<'_>,
    block: usize,
    warp: &mut Warp,
    lane: usize,
    (space, at): (Space, u64),
    f: impl FnOnce(Counter) -> Result<Counter, String>,
) -> Result<(), String> {
    let word = group.memory.read(block, warp, lane, space, at, 8)?;
    let counter = f(Counter::of(word))?;
    group.memory.write(block, warp, lane, space, at, 8, counter.word())
}

/// Executes a copy or a change of a barrier.
pub fn perform(
    group: &mut Group<'_>,
    block: usize,
    warp: &mut Warp,
    body: &Body,
    threads: u32,
) -> Result<(), String> {
    for lane in lanes(threads) {
        match body {
            Body::Copy { to, from, bytes, read } => {
                let n = read.as_ref().map_or(*bytes, |s| warp.value(s, lane).min(*bytes));
                let (to, from) = (warp.address(to, lane), warp.address(from, lane));
                let to = group.memory.at(block, warp, lane, Space::Shared, to, *bytes)?;
                // SAFETY: so many bytes are there.
                unsafe { std::ptr::write_bytes(to, 0, *bytes as usize) };
                if n > 0 {
                    if from % *bytes != 0 {
                        return Err(format!("a copy from {from:#x}, which is no multiple of {bytes}"));
                    }
                    let from = group.memory.at(block, warp, lane, Space::Global, from, n)?;
                    // SAFETY: as above, of both.
                    unsafe { std::ptr::copy_nonoverlapping(from, to, n as usize) };
                }
            }
            Body::CopyBox(c) => copy_box(group, block, warp, lane, c)?,
            Body::CopyBytes { to, to_space, from, from_space, bytes, barrier } => {
                let n = warp.value(bytes, lane);
                if !n.is_multiple_of(16) {
                    return Err(format!("a copy of {n} bytes"));
                }
                let (to, from) = (warp.address(to, lane), warp.address(from, lane));
                if to % 16 != 0 || from % 16 != 0 {
                    return Err(format!("a copy from {from:#x} to {to:#x}"));
                }
                let source = group.memory.at(block, warp, lane, *from_space, from, n)?;
                let target = group.memory.at(block, warp, lane, *to_space, to, n)?;
                // SAFETY: so many bytes are there.
                unsafe { std::ptr::copy(source, target, n as usize) };
                if let Some(b) = barrier {
                    let at = warp.address(b, lane);
                    change(group, block, warp, lane, (*to_space, at), |c| Ok(c.complete(n as i32)))?;
                }
            }
            Body::StoreRemote { of, to, s, barrier } => {
                let bytes = u64::from(of.bytes());
                let (address, at) = (warp.address(to, lane), warp.address(barrier, lane));
                for (k, s) in s.iter().enumerate() {
                    let value = warp.value(s, lane);
                    let to = address + k as u64 * bytes;
                    group.memory.write(block, warp, lane, Space::Cluster, to, bytes, value)?;
                }
                let n = bytes as i32 * s.len() as i32;
                change(group, block, warp, lane, (Space::Cluster, at), |c| Ok(c.complete(n)))?;
            }
            Body::BarrierInit { at, count } => {
                let n = warp.value(count, lane) as u32;
                let counter = Counter { odd: false, count: n, missing: n, bytes: 0 };
                let at = warp.address(at, lane);
                change(group, block, warp, lane, (Space::Shared, at), |_| Ok(counter))?;
            }
            Body::BarrierArrive { at, space, count, expected } => {
                let n = count.as_ref().map_or(1, |s| warp.value(s, lane) as u32);
                let bytes = expected.as_ref().map_or(0, |s| warp.value(s, lane) as i32);
                let at = warp.address(at, lane);
                change(group, block, warp, lane, (*space, at), |c| c.arrive(n, bytes))?;
            }
            Body::BarrierExpect { at, space, bytes } => {
                let n = warp.value(bytes, lane) as i32;
                let add = |mut c: Counter| {
                    c.bytes += n;
                    Ok(c)
                };
                let at = warp.address(at, lane);
                change(group, block, warp, lane, (*space, at), add)?;
            }
            Body::BarrierTest { d, at, parity } => {
                let word = group.memory.read(block, warp, lane, Space::Shared, warp.address(at, lane), 8)?;
                let odd = warp.value(parity, lane) & 1 == 1;
                warp.set(*d, lane, u64::from(Counter::of(word).odd != odd));
            }
            _ => return Err("an instruction that nothing executes".into()),
        }
    }
    Ok(())
}

/// Copies a box: what is outside of the tensor is zero.
fn copy_box(
    group: &mut Group<'_>,
    block: usize,
    warp: &mut Warp,
    lane: usize,
    c: &BoxCopy,
) -> Result<(), String> {
    let place = warp.value(&c.map, lane);
    let mut bytes = [0u8; 128];
    for half in [0, 64] {
        let from = group.memory.at(block, warp, lane, Space::Generic, place + half, 64)?;
        // SAFETY: so many bytes are there.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes[half as usize..].as_mut_ptr(), 64) };
    }
    let map = Map::of(&bytes);
    if map.rank == 0 || map.rank != c.at.len() {
        return Err(format!("a box of {} dimensions of a tensor of {}", c.at.len(), map.rank));
    }
    let at: Vec<i64> = c.at.iter().map(|s| i64::from(warp.value(s, lane) as u32 as i32)).collect();
    let to = warp.value(&c.to, lane);
    if !to.is_multiple_of(128) {
        return Err(format!("a box at {to:#x}, which is no multiple of 128"));
    }
    let rows: Vec<Vec<i64>> = if c.windows { windows(&map, &at, c, warp, lane) } else { tiles(&map, &at) };
    let row = if c.windows { map.channels } else { map.block[0] };
    let row_bytes = row * map.size;
    let blocks: Vec<Option<u64>> = match &c.blocks {
        None => vec![None],
        Some(bits) => {
            let bits = warp.value(bits, lane);
            (0..16).filter(|rank| bits >> rank & 1 == 1).map(Some).collect()
        }
    };
    let in_block = |at: u64, rank: &Option<u64>| rank.map_or(at, |rank| of_rank(at, rank));
    let mut written = to;
    for position in &rows {
        for x in 0..row {
            let mut inside = true;
            let mut address = map.address;
            for (d, p) in position.iter().enumerate() {
                let p = if d == 0 { p + x as i64 } else { *p };
                inside &= p >= 0 && (p as u64) < map.dims[d];
                address = address.wrapping_add((p as u64).wrapping_mul(map.strides[d]));
            }
            let place = swizzled(written + x * map.size, if row_bytes == 64 { 64 } else { 128 });
            if c.stores {
                if inside {
                    let value = group.memory.read(block, warp, lane, Space::Shared, place, map.size)?;
                    group.memory.write(block, warp, lane, Space::Global, address, map.size, value)?;
                }
                continue;
            }
            let value = match inside {
                true => group.memory.read(block, warp, lane, Space::Global, address, map.size)?,
                false => 0,
            };
            // Copies of f32 round to TF32.
            let value = match map.size {
                4 => u64::from(crate::float::to_tf32(f32::from_bits(value as u32))),
                _ => value,
            };
            for rank in &blocks {
                group.memory.write(
                    block,
                    warp,
                    lane,
                    Space::Cluster,
                    in_block(place, rank),
                    map.size,
                    value,
                )?;
            }
        }
        written += row_bytes;
    }
    if !c.stores {
        let (barrier, n) = (warp.value(&c.barrier, lane), (written - to) as i32);
        for rank in &blocks {
            let at = in_block(barrier, rank);
            change(group, block, warp, lane, (Space::Cluster, at), |k| Ok(k.complete(n)))?;
        }
    }
    Ok(())
}

/// Positions of the rows of a box of a tensor.
fn tiles(map: &Map, at: &[i64]) -> Vec<Vec<i64>> {
    let count: u64 = map.block[1..map.rank].iter().product();
    let mut out = Vec::new();
    for n in 0..count {
        let mut rest = n;
        let mut position = at.to_vec();
        for (d, p) in position.iter_mut().enumerate().skip(1) {
            *p += (rest % map.block[d] * map.steps[d].max(1)) as i64;
            rest /= map.block[d];
        }
        out.push(position);
    }
    out
}

/// Positions of the pixels that lie under one tap of neighbouring windows: windows go over the tensor between its corners, from the
/// last dimension's first element on.
fn windows(map: &Map, at: &[i64], c: &BoxCopy, warp: &Warp, lane: usize) -> Vec<Vec<i64>> {
    let offsets: Vec<i64> = c.window.iter().map(|s| (warp.value(s, lane) & 0xffff) as i64).collect();
    let spatial = map.rank - 2;
    let mut position = at.to_vec();
    let mut out = Vec::new();
    for _ in 0..map.pixels {
        let mut pixel = position.clone();
        for d in 0..spatial.min(offsets.len()) {
            pixel[1 + d] += offsets[d];
        }
        out.push(pixel);
        for d in 1..=spatial {
            position[d] += map.steps[d].max(1) as i64;
            if position[d] < map.dims[d] as i64 + map.upper[d - 1] {
                break;
            }
            position[d] = map.lower[d - 1];
            if d == spatial {
                position[spatial + 1] += 1;
            }
        }
    }
    out
}
