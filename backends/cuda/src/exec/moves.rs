//! Copies between the bodies of control flow as launches of one kernel, which also decides: see `kernels/control/copies.cu`.

use super::condition::DeviceCondition;
use super::memory::Range;
use crate::driver::{Command, DriverError, Gpu, Launch, Module};
use std::sync::Arc;

/// The kernel as the driver links it.
pub(super) const PTX: &str = concat!(include_str!("../../../../kernels/control/copies.ptx"), "\0");

const THREADS: u32 = 256;
/// Moves of one launch.
const MOST: usize = 16;
/// Bytes of the parameter before the moves.
const HEAD: usize = 160;
const MOVE_BYTES: usize = 64;
/// Offset of the address of the word that switches a launch off.
const ALIVE_AT: usize = 8;
/// Bytes that are worth a block, how many blocks copy at most where the last one decides, and where none does.
const PER_BLOCK: u64 = 16 << 10;
const BLOCKS: u64 = 128;
const MANY: u64 = 1024;
/// Bytes of an address.
pub const CELL_BYTES: u64 = 8;
/// Threads of a launch that copies nothing.
const FEW: u32 = 32;

/// Factor of the steps of a move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Factor {
    /// The iterations that the loop has made.
    Made = 0,
    /// One if their number is odd.
    Parity = 1,
    /// Iterations made when the next one begins; nothing is copied if the count allows none.
    Next = 2,
    /// As [`Factor::Next`], but the address itself is written: the place of an operand of the next iteration.
    Address = 6,
}

/// Rows of bytes to copy. For each iteration that the loop has made, steps are added to the addresses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Move {
    /// `None` writes zeros.
    pub from: Option<u64>,
    pub to: u64,
    pub from_step: i64,
    pub to_step: i64,
    pub from_pitch: u64,
    pub to_pitch: u64,
    pub rows: u32,
    pub width: u32,
    pub factor: Factor,
}

/// A decision of a launch.
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// Iterations made, blocks done, and a word that records whether the loop goes on: 16 bytes.
    pub state: Option<u64>,
    /// The loop starts.
    pub start: bool,
    /// Whether an iteration has been made.
    pub next: bool,
    /// Whether the decision is about another iteration; else, where there is a condition, about a branch.
    pub of_loop: bool,
    /// Whether an iteration follows in the same body: only an end is written.
    pub inner: bool,
    /// Address of the number of iterations, and whether it has 32 bits.
    pub count: Option<(u64, bool)>,
    /// The number of iterations that the host knows.
    pub most: Option<i64>,
    /// Address of a word that ends the loop if it is not zero.
    pub stop: Option<u64>,
    /// The condition.
    pub test: Option<DeviceCondition>,
    /// The condition is read behind the copies.
    pub late: bool,
}

impl Decision {
    /// Decides nothing, for the same iteration.
    pub fn without(&self) -> Decision {
        Decision {
            state: self.state,
            start: self.start,
            next: self.next,
            most: self.most,
            ..Decision::default()
        }
    }

    fn decides(&self) -> bool {
        self.of_loop || self.test.is_some()
    }
}

impl Move {
    /// All bytes of a range; none where it is empty, or source and destination are one.
    pub fn whole(from: u64, to: Range) -> Option<Move> {
        let one = |rows: u32, width: u32| Move {
            from: Some(from),
            to: to.address,
            from_step: 0,
            to_step: 0,
            from_pitch: u64::from(width),
            to_pitch: u64::from(width),
            rows,
            width,
            factor: Factor::Made,
        };
        if to.size == 0 || from == to.address {
            return None;
        }
        // Longer ones as rows of 1 GiB at most.
        match u32::try_from(to.size) {
            Ok(n) if n <= 1 << 30 => Some(one(1, n)),
            _ => {
                let rows = (1u64..)
                    .map(|k| 1 << k)
                    .find(|&r| !to.size.is_multiple_of(r) || to.size / r <= 1 << 30)?;
                to.size.is_multiple_of(rows).then(|| one(rows as u32, (to.size / rows) as u32))
            }
        }
    }

    /// Writes into a cell the address that the next iteration uses: so many bytes further in each.
    pub fn address(from: u64, from_step: i64, cell: u64) -> Move {
        let width = CELL_BYTES as u32;
        let (to_step, from_pitch, to_pitch) = (0, CELL_BYTES, CELL_BYTES);
        let (from, factor) = (Some(from), Factor::Address);
        Move { from, to: cell, from_step, to_step, from_pitch, to_pitch, rows: 1, width, factor }
    }

    /// Bytes that it copies; none where it only writes an address.
    pub fn copies(&self) -> u64 {
        if self.factor == Factor::Address { 0 } else { self.bytes() }
    }

    /// Whether it writes to an address.
    pub fn covers(&self, at: u64) -> bool {
        self.span(true).is_some_and(|(from, end)| (from..end).contains(&at))
    }

    fn bytes(&self) -> u64 {
        u64::from(self.rows) * u64::from(self.width)
    }

    fn put(&self, to: &mut Vec<u8>) {
        for n in [self.from.unwrap_or(0), self.to, self.from_step as u64, self.to_step as u64] {
            to.extend(n.to_le_bytes());
        }
        to.extend(self.from_pitch.to_le_bytes());
        to.extend(self.to_pitch.to_le_bytes());
        to.extend(self.rows.to_le_bytes());
        to.extend(self.width.to_le_bytes());
        to.extend((self.factor as u32).to_le_bytes());
        to.extend([0; 4]);
    }

    /// The first byte and the end of the bytes that it writes (or reads), over all iterations.
    fn span(&self, writes: bool) -> Option<(u64, u64)> {
        let (at, step, pitch) = match writes {
            true => (self.to, self.to_step, self.to_pitch),
            false if self.factor == Factor::Address => return None,
            false => (self.from?, self.from_step, self.from_pitch),
        };
        // Places that differ from iteration to iteration are those of stacked tensors, which nothing else shares.
        let rows = u64::from(self.rows).saturating_sub(1);
        (step == 0).then(|| (at, at + rows * pitch + u64::from(self.width)))
    }
}

/// Whether some read bytes that others write.
pub fn clash(all: &[Move]) -> bool {
    let over = |a: (u64, u64), b: (u64, u64)| a.0 < b.1 && b.0 < a.1;
    let reads: Vec<_> = all.iter().enumerate().filter_map(|(i, m)| Some((i, m.span(false)?))).collect();
    let writes: Vec<_> = all.iter().enumerate().filter_map(|(i, m)| Some((i, m.span(true)?))).collect();
    reads.iter().any(|&(i, r)| writes.iter().any(|&(j, w)| i != j && over(r, w)))
}

/// The kernel, linked by the driver.
pub fn load(gpu: &Arc<Gpu>) -> Result<Arc<Module>, DriverError> {
    // The instructions by which kernels overlap are of sm_90.
    let text = match gpu.overlap {
        true => PTX.replace(".target sm_80", ".target sm_90"),
        false => {
            PTX.lines().filter(|l| !l.contains("griddepcontrol")).fold(String::new(), |all, l| all + l + "\n")
        }
    };
    Ok(Arc::new(Module::load(gpu, text.as_bytes(), &[("moves".to_owned(), THREADS)])?))
}

/// Launches for these moves; the last one decides. None where there is nothing to do.
pub fn launches(module: &Module, all: &[Move], decision: &Decision) -> Vec<Launch> {
    let Some(&function) = module.functions().first() else { return Vec::new() };
    let decides = decision.decides();
    let count = all.len().div_ceil(MOST).max(usize::from(decides));
    let mut parts = all.chunks(MOST);
    (0..count)
        .map(|i| {
            let part = parts.next().unwrap_or_default();
            let decides = decides && i + 1 == count;
            let bytes = part.iter().map(Move::bytes).max().unwrap_or(0);
            let blocks = blocks(bytes, decides.then_some(decision));
            let copies = part.iter().any(|m| m.copies() > 0);
            let function = if copies { function } else { function.of_threads(FEW) };
            Launch {
                function,
                blocks,
                shared: 0,
                parameter: parameter(part, decision, decides),
                waits: true,
                together: false,
                early: false,
                decides,
                marks_at: None,
                alive_at: ALIVE_AT,
            }
        })
        .collect()
}

/// Blocks of a launch that copies so many bytes at once, and decides this.
fn blocks(bytes: u64, decides: Option<&Decision>) -> u32 {
    let most = match decides {
        // Nobody counts the blocks that are done.
        Some(d) if d.state.is_none() => 1,
        Some(_) => BLOCKS,
        None => MANY,
    };
    bytes.div_ceil(PER_BLOCK).clamp(1, most) as u32
}

/// These launches as commands.
pub fn commands(module: &Module, all: &[Move], decision: &Decision) -> Vec<Command> {
    launches(module, all, decision).into_iter().map(Command::Kernel).collect()
}

fn parameter(part: &[Move], d: &Decision, decides: bool) -> Vec<u8> {
    let mut p = Vec::with_capacity(HEAD + MOST * MOVE_BYTES);
    let narrow = d.count.is_some_and(|c| c.1);
    let branch = d.test.is_some() && !d.of_loop;
    let of_all = [(d.start, 1u32), (d.next, 128)];
    let of_last = [(d.next, 2), (d.of_loop, 4), (branch, 8), (narrow, 16), (d.late, 32), (d.inner, 64)];
    let sum = |bits: &[(bool, u32)]| bits.iter().filter(|b| b.0).map(|b| b.1).sum::<u32>();
    let mode = sum(&of_all) + if decides { sum(&of_last) } else { 0 };
    let words = [0, 0, d.state.unwrap_or(0), d.count.map_or(0, |c| c.0)];
    words.iter().for_each(|w| p.extend(w.to_le_bytes()));
    p.extend(d.most.unwrap_or(-1).to_le_bytes());
    // Factor that another one follows in the same body leave it to the last of them: the word is far away.
    p.extend(d.stop.filter(|_| decides && d.of_loop && !d.inner).unwrap_or(0).to_le_bytes());
    p.extend(mode.to_le_bytes());
    p.extend((part.len() as u32).to_le_bytes());
    d.test.clone().unwrap_or_default().put(&mut p);
    p.resize(HEAD, 0);
    part.iter().for_each(|m| m.put(&mut p));
    p.resize(HEAD + MOST * MOVE_BYTES, 0);
    p
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]
    use super::*;

    fn range(address: u64, size: u64) -> Range {
        Range { address, size }
    }

    #[test]
    fn what_is_read_and_written_at_once_is_seen() {
        let m = |from, to| Move::whole(from, range(to, 256));
        let all = |v: [Option<Move>; 2]| v.into_iter().flatten().collect::<Vec<_>>();
        assert!(clash(&all([m(0x1000, 0x2000), m(0x2000, 0x1000)])), "a swap");
        assert!(clash(&all([m(0x3000, 0x2000), m(0x20ff, 0x4000)])), "the last byte");
        assert!(!clash(&all([m(0x3000, 0x2000), m(0x2100, 0x4000)])));
        assert_eq!(m(0x3000, 0x3000), None);
    }

    /// The memory at an address that is written as a number is not read.
    #[test]
    fn addresses_clash_with_nothing() {
        let told = Move::address(0x3000, 64, 0x5000);
        assert_eq!((told.copies(), told.covers(0x5007), told.covers(0x5008)), (0, true, false));
        let zeros = Move { from: None, ..Move::whole(1, range(0x3000, 256)).unwrap() };
        assert!(!clash(&[told, zeros]));
        assert!(clash(&[told, Move::whole(0x5000, range(0x6000, 4)).unwrap()]), "a cell that is read");
    }

    #[test]
    fn large_ranges_are_rows() {
        let m = Move::whole(1, range(2 << 40, 6 << 30));
        assert_eq!(m.map(|m| (m.rows, m.width, m.to_pitch)), Some((8, 3 << 28, 3 << 28)));
    }

    #[test]
    fn large_copies_have_many_blocks_unless_they_decide() {
        let counted = Decision { state: Some(0x100), ..Decision::default() };
        let all = [100, 40 << 10, 1 << 30]
            .map(|n| (blocks(n, None), blocks(n, Some(&counted)), blocks(n, Some(&Decision::default()))));
        assert_eq!(all, [(1, 1, 1), (3, 3, 1), (1024, 128, 1)]);
    }

    /// The text that the driver links is that of the source beside it.
    #[test]
    fn the_ptx_was_written_from_the_source() {
        let source = include_bytes!("../../../../kernels/control/copies.cu");
        let step = |h: u64, &b: &u8| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
        let mark = source.iter().fold(0xcbf2_9ce4_8422_2325, step);
        assert!(PTX.contains(&format!("FNV-1a {mark:016x}")), "run scripts/flow_ptx.py");
        assert!(PTX.contains(&format!("moves_param_0[{}]", HEAD + MOST * MOVE_BYTES)), "another parameter");
    }
}
