//! Executes one instruction in the threads of a warp.

use crate::copies;
use crate::instruction::{Address, Body, Change, Register, Shuffle, Source, Space, Vote};
use crate::launch::Group;
use crate::matrix;
use crate::types::{LANES, Lanes, Type, mask, signed};
use crate::warp::{State, Warp, lanes};

impl Group<'_> {
    /// Executes an instruction that is neither a branch nor an end. `State::Gathers` means that it was not executed, because
    /// threads that take part are elsewhere.
    pub fn perform(
        &mut self,
        block: usize,
        warp: &mut Warp,
        body: &Body,
        threads: u32,
    ) -> Result<State, String> {
        match body {
            Body::Compute { d, s, f } => {
                let none = [0; LANES];
                let pick = |i: usize| s.get(i).map_or(&none, |s| warp.read(s));
                let values = f([pick(0), pick(1), pick(2), pick(3)]);
                warp.write(*d, &values, threads);
            }
            Body::Load { space, of, fills, d, at } => {
                self.load(block, warp, threads, (*space, *of, *fills), d, at)?
            }
            Body::Store { space, of, s, at } => {
                let bytes = u64::from(of.bytes());
                for lane in lanes(threads) {
                    let address = warp.address(at, lane);
                    self.memory.at(block, warp, lane, *space, address, bytes * s.len() as u64)?;
                    for (k, s) in s.iter().enumerate() {
                        let (value, to) = (warp.value(s, lane), address + k as u64 * bytes);
                        self.memory.write(block, warp, lane, *space, to, bytes, value)?;
                    }
                }
            }
            Body::Change { space, of, change, d, at, s } => {
                let bytes = u64::from(of.bytes());
                for lane in lanes(threads) {
                    let address = warp.address(at, lane);
                    let old = self.memory.read(block, warp, lane, *space, address, bytes)?;
                    let values: Vec<u64> = s.iter().map(|s| warp.value(s, lane)).collect();
                    let new = changed(*change, *of, old, &values)?;
                    self.memory.write(block, warp, lane, *space, address, bytes, new)?;
                    if let Some(d) = d {
                        warp.set(*d, lane, old);
                    }
                }
            }
            Body::Trap => return Err("a trap".into()),
            Body::Arrive { barrier, threads: expected, waits } => {
                return self.arrive(block, warp, threads, barrier, expected.as_ref(), *waits);
            }
            Body::ClusterArrive => {
                let cluster = block / self.memory.cluster;
                let rounds = self.clusters[cluster].1;
                lanes(threads).for_each(|l| warp.cluster_rounds[l] = rounds);
                self.clusters[cluster].0 += threads.count_ones();
                let first = cluster * self.memory.cluster;
                let of = &self.blocks[first..first + self.memory.cluster];
                if self.clusters[cluster].0 >= of.iter().map(|b| b.alive).sum() {
                    self.clusters[cluster] = (0, rounds + 1);
                }
            }
            Body::ClusterWait => return Ok(State::WaitsForCluster),
            Body::Together { mask } => {
                if missing(warp, threads, Some(mask)) {
                    return Ok(State::Gathers);
                }
            }
            Body::Shuffle { how, d, found, s } => {
                if missing(warp, threads, s.get(3)) {
                    return Ok(State::Gathers);
                }
                shuffle(warp, threads, *how, *d, *found, s);
            }
            Body::Vote { how, negated, d, s, mask } => {
                if missing(warp, threads, Some(mask)) {
                    return Ok(State::Gathers);
                }
                let values = *warp.read(s);
                let ballot =
                    lanes(threads).filter(|&l| (values[l] != 0) != *negated).fold(0u32, |m, l| m | 1 << l);
                let out = match how {
                    Vote::Ballot => u64::from(ballot),
                    Vote::All => u64::from(ballot == threads),
                    Vote::Any => u64::from(ballot != 0),
                    Vote::Uniform => u64::from(ballot == 0 || ballot == threads),
                };
                warp.write(*d, &[out; LANES], threads);
            }
            Body::Reduce { of, change, d, s, mask } => {
                if missing(warp, threads, Some(mask)) {
                    return Ok(State::Gathers);
                }
                let values = *warp.read(s);
                let mut all = lanes(threads).map(|l| values[l]);
                let first = all.next().unwrap_or(0);
                let out = all.try_fold(first, |a, b| changed(*change, *of, a, &[b]))?;
                warp.write(*d, &[out; LANES], threads);
            }
            Body::Match { d, s, mask } => {
                if missing(warp, threads, Some(mask)) {
                    return Ok(State::Gathers);
                }
                let values = *warp.read(s);
                let same = |l: usize| {
                    lanes(threads).filter(|&k| values[k] == values[l]).fold(0u64, |m, k| m | 1 << k)
                };
                warp.write(*d, &std::array::from_fn(same), threads);
            }
            Body::Elect { d, mask } => {
                if missing(warp, threads, Some(mask)) {
                    return Ok(State::Gathers);
                }
                let first = threads.trailing_zeros() as usize;
                warp.write(*d, &std::array::from_fn(|l| u64::from(l == first)), threads);
            }
            Body::Active { d } => warp.write(*d, &[u64::from(threads); LANES], threads),
            Body::LoadMatrices { .. }
            | Body::StoreMatrices { .. }
            | Body::Product(_)
            | Body::GroupProduct(_) => {
                if missing(warp, threads, None) {
                    return Ok(State::Gathers);
                }
                matrix::perform(self, block, warp, body)?;
            }
            Body::Decide { handle, value } => {
                for lane in lanes(threads) {
                    let (at_handle, at_value) = (warp.value(handle, lane), warp.value(value, lane));
                    let handle = self.memory.read(block, warp, lane, Space::Local, at_handle, 8)?;
                    let value = self.memory.read(block, warp, lane, Space::Local, at_value, 4)?;
                    // SAFETY: the function is the driver's.
                    unsafe { (self.launch.decide)(handle, value as u32) };
                }
            }
            Body::Nothing | Body::Branch { .. } | Body::Return => {}
            _ => copies::perform(self, block, warp, body, threads)?,
        }
        Ok(State::Runs)
    }

    fn load(
        &mut self,
        block: usize,
        warp: &mut Warp,
        threads: u32,
        (space, of, fills): (Space, Type, u32),
        d: &[Option<Register>],
        at: &Address,
    ) -> Result<(), String> {
        let bytes = u64::from(of.bytes());
        for lane in lanes(threads) {
            let address = warp.address(at, lane);
            let from = self.memory.at(block, warp, lane, space, address, bytes * d.len() as u64)?;
            for (k, d) in d.iter().enumerate() {
                let Some(d) = d else { continue };
                let mut word = [0u8; 8];
                // SAFETY: so many bytes were checked to be there.
                unsafe {
                    std::ptr::copy_nonoverlapping(
                        from.add(k * bytes as usize),
                        word.as_mut_ptr(),
                        bytes as usize,
                    )
                };
                let value = u64::from_le_bytes(word);
                // Registers may be wider than what is loaded: the sign is kept.
                warp.set(
                    *d,
                    lane,
                    if of.is_signed() { signed(value, of.bits()) as u64 & mask(fills) } else { value },
                );
            }
        }
        Ok(())
    }

    fn arrive(
        &mut self,
        block: usize,
        warp: &Warp,
        threads: u32,
        barrier: &Source,
        expected: Option<&Source>,
        waits: bool,
    ) -> Result<State, String> {
        let lane = threads.trailing_zeros() as usize;
        let b = warp.value(barrier, lane) as usize;
        let of = &mut self.blocks[block];
        let Some(found) = of.barriers.get_mut(b) else { return Err(format!("barrier {b} of 16")) };
        let count = expected.map(|s| warp.value(s, lane) as u32);
        if found.arrived > 0 && found.expected != count {
            return Err(format!(
                "threads come to barrier {b} for {count:?} threads, others for {:?}",
                found.expected
            ));
        }
        if count.is_some_and(|n| !n.is_multiple_of(LANES as u32)) {
            return Err(format!("barrier {b} for {count:?} threads"));
        }
        found.expected = count;
        found.arrived += threads.count_ones();
        let round = found.round;
        if count.is_some_and(|n| found.arrived > n) {
            return Err(format!("more threads come to barrier {b} than it is for"));
        }
        of.check(b);
        Ok(if waits { State::Waits { barrier: b, round } } else { State::Runs })
    }
}

/// Whether threads that take part are not here: those of the mask, or all.
fn missing(warp: &Warp, threads: u32, mask: Option<&Source>) -> bool {
    let lane = threads.trailing_zeros() as usize;
    let wanted = mask.map_or(u32::MAX, |m| warp.value(m, lane) as u32);
    wanted & warp.alive & !threads != 0
}

fn shuffle(warp: &mut Warp, threads: u32, how: Shuffle, d: Register, found: Option<Register>, s: &[Source]) {
    let (a, b, c) = (*warp.read(&s[0]), *warp.read(&s[1]), *warp.read(&s[2]));
    let (mut values, mut flags): (Lanes, Lanes) = ([0; LANES], [0; LANES]);
    for lane in lanes(threads) {
        let (offset, clamp, segment) = (b[lane] & 31, c[lane] & 31, c[lane] >> 8 & 31);
        let l = lane as u64;
        let most = l & segment | clamp & !segment;
        let least = l & segment;
        let (from, inside) = match how {
            Shuffle::Up => (l.wrapping_sub(offset), l >= offset && l - offset >= most),
            Shuffle::Down => (l + offset, l + offset <= most),
            Shuffle::Butterfly => (l ^ offset, l ^ offset <= most),
            Shuffle::Index => (least | offset & !segment, (least | offset & !segment) <= most),
        };
        let from = if inside { from as usize & 31 } else { lane };
        values[lane] = a[from] & 0xffff_ffff;
        flags[lane] = u64::from(inside);
    }
    warp.write(d, &values, threads);
    if let Some(p) = found {
        warp.write(p, &flags, threads);
    }
}

/// The value that a change leaves.
fn changed(change: Change, of: Type, old: u64, s: &[u64]) -> Result<u64, String> {
    use crate::float::{Rounding, narrow, wide};
    let b = s.first().copied().unwrap_or(0);
    let halves =
        |f: &dyn Fn(u64, u64) -> u64| f(old & 0xffff, b & 0xffff) | f(old >> 16, b >> 16 & 0xffff) << 16;
    let add = |of: Type| move |a: u64, b: u64| narrow(wide(a, of) + wide(b, of), of, Rounding::Nearest);
    let less = |a: u64, b: u64| match of.is_signed() {
        true => signed(a, of.bits()) < signed(b, of.bits()),
        false => a < b,
    };
    Ok(match change {
        Change::Add => match of {
            Type::F16x2 => halves(&add(Type::F16)),
            Type::Bf16x2 => halves(&add(Type::Bf16)),
            Type::F32 => u64::from((f32::from_bits(old as u32) + f32::from_bits(b as u32)).to_bits()),
            of if of.is_float() => add(of)(old, b),
            of => old.wrapping_add(b) & of.mask(),
        },
        Change::Min if of.is_float() => return Err("the least of floating-point numbers".into()),
        Change::Max if of.is_float() => return Err("the greatest of floating-point numbers".into()),
        Change::Min => {
            if less(b, old) {
                b
            } else {
                old
            }
        }
        Change::Max => {
            if less(old, b) {
                b
            } else {
                old
            }
        }
        Change::And => old & b,
        Change::Or => old | b,
        Change::Xor => old ^ b,
        Change::Exchange => b,
        Change::CompareExchange => {
            if old == b {
                s.get(1).copied().unwrap_or(0)
            } else {
                old
            }
        }
        Change::Increment => {
            if old >= b {
                0
            } else {
                old + 1
            }
        }
        Change::Decrement => {
            if old == 0 || old > b {
                b
            } else {
                old - 1
            }
        }
    })
}
