//! Runs all blocks of a launch. Blocks run one after the other, those that wait for each other in turns.

use crate::instruction::Body;
use crate::memory::{Global, Memory};
use crate::module::{Kernel, Module, SPECIAL};
use crate::types::{LANES, Lanes};
use crate::warp::{Fragment, State, Warp, lanes};

/// Most instructions of a warp until others have their turn.
const TURN: usize = 4096;
/// Turns of all warps after which a launch counts as endless.
const TURNS: u64 = 1 << 24;

/// A kernel with its blocks, threads and parameter.
pub struct Launch<'a> {
    pub kernel: &'a Kernel,
    pub module: &'a Module,
    pub blocks: u32,
    pub threads: u32,
    /// Bytes of shared memory beside those of the kernel.
    pub shared: u32,
    /// Whether all blocks run at the same time.
    pub together: bool,
    pub parameter: &'a [u8],
    pub decide: unsafe extern "C" fn(u64, u32),
    /// Draws the order of warps and the lengths of their turns.
    pub seed: u64,
}

/// A barrier of a block.
#[derive(Clone, Copy, Default)]
pub struct Barrier {
    pub arrived: u32,
    /// Threads that it waits for; all of the block if none are given.
    pub expected: Option<u32>,
    pub round: u64,
}

/// A block.
pub struct Block {
    pub number: u32,
    pub warps: Vec<Warp>,
    pub barriers: [Barrier; 16],
    pub alive: u32,
}

impl Block {
    /// Ends the round of a barrier where all threads are there.
    pub fn check(&mut self, barrier: usize) {
        let alive = self.alive;
        let b = &mut self.barriers[barrier];
        if b.arrived > 0 && b.arrived >= b.expected.unwrap_or(alive) {
            *b = Barrier { round: b.round + 1, ..Barrier::default() };
        }
    }
}

/// Blocks that run at the same time.
pub struct Group<'a> {
    pub launch: &'a Launch<'a>,
    pub memory: Memory<'a>,
    pub blocks: Vec<Block>,
    /// Threads that have come to the barrier of each cluster, and its rounds.
    pub clusters: Vec<(u32, u64)>,
    random: u64,
}

impl Launch<'_> {
    /// Runs it to its end.
    pub fn run(&self, global: &mut Global) -> Result<(), String> {
        let cluster = self.kernel.cluster;
        if !self.blocks.is_multiple_of(cluster) {
            return Err(format!("{} blocks in clusters of {cluster}", self.blocks));
        }
        if self.kernel.threads.is_some_and(|most| self.threads > most) {
            return Err(format!("blocks of {} threads, which are too many", self.threads));
        }
        if self.parameter.len() as u64 != self.kernel.parameter {
            return Err(format!(
                "{} bytes of parameters in place of {}",
                self.parameter.len(),
                self.kernel.parameter
            ));
        }
        let size = if self.together { self.blocks } else { cluster };
        for first in (0..self.blocks).step_by(size as usize) {
            let mut group = self.group(first, size, global);
            group.run().map_err(|e| format!("{e} (blocks from {first} on of {})", self.blocks))?;
        }
        Ok(())
    }

    fn group<'a>(&'a self, first: u32, size: u32, global: &'a mut Global) -> Group<'a> {
        let cluster = self.kernel.cluster;
        let shared = self.kernel.shared as usize + self.shared as usize;
        let memory = Memory {
            global,
            // Memory that nobody has written is no number.
            shared: (0..size).map(|_| vec![0xff; shared]).collect(),
            parameter: self.parameter,
            cluster: cluster as usize,
        };
        let blocks = (first..first + size).map(|number| self.block(number)).collect();
        Group {
            launch: self,
            memory,
            blocks,
            clusters: vec![(0, 0); (size / cluster) as usize],
            random: self.seed ^ u64::from(first) << 32 | 1,
        }
    }

    fn block(&self, number: u32) -> Block {
        let count = self.threads.div_ceil(LANES as u32) as usize;
        let warps = (0..count).map(|w| self.warp(number, w)).collect();
        Block { number, warps, barriers: [Barrier::default(); 16], alive: self.threads }
    }

    fn warp(&self, block: u32, number: usize) -> Warp {
        let threads = (self.threads as usize - number * LANES).min(LANES);
        let alive = if threads == LANES { u32::MAX } else { (1 << threads) - 1 };
        // Registers that nobody has written hold a number that no test expects.
        let mut registers = vec![[0x7fc0_dead_7fc0_dead; LANES]; self.kernel.registers];
        let cluster = self.kernel.cluster;
        for (i, name) in SPECIAL.iter().enumerate() {
            let all = |v: u32| -> Lanes { [u64::from(v); LANES] };
            registers[i] = match *name {
                "%tid.x" => std::array::from_fn(|l| (number * LANES + l) as u64),
                "%laneid" => std::array::from_fn(|l| l as u64),
                "%ntid.x" => all(self.threads),
                "%ctaid.x" => all(block),
                "%nctaid.x" => all(self.blocks),
                "%ntid.y" | "%ntid.z" | "%nctaid.y" | "%nctaid.z" => all(1),
                "%warpid" => all(number as u32),
                "%cluster_ctarank" => all(block % cluster),
                "%cluster_nctarank" => all(cluster),
                "%clusterid.x" => all(block / cluster),
                "%nclusterid.x" => all(self.blocks / cluster),
                "%smid" => all(block % 8),
                "%nsmid" => all(8),
                "%dynamic_smem_size" => all(self.shared),
                _ => all(0),
            };
        }
        Warp {
            number,
            registers,
            local: vec![0xff; self.kernel.local as usize * LANES],
            local_bytes: self.kernel.local,
            fragments: vec![Fragment { at: 0, threads: alive, state: State::Runs }],
            alive,
            ..Warp::default()
        }
    }
}

impl Group<'_> {
    fn run(&mut self) -> Result<(), String> {
        let count = |b: &Block| b.warps.len();
        let all: Vec<(usize, usize)> =
            self.blocks.iter().enumerate().flat_map(|(b, of)| (0..count(of)).map(move |w| (b, w))).collect();
        for _ in 0..TURNS {
            let (mut progress, mut alive) = (false, false);
            // Another warp is first each time, and the others follow it upwards or downwards.
            let (first, down) = (self.draw(all.len()), self.draw(2) == 1);
            for i in 0..all.len() {
                let i = if down { all.len() - 1 - i } else { i };
                let (block, w) = all[(first + i) % all.len()];
                if self.blocks[block].warps[w].alive == 0 {
                    continue;
                }
                alive = true;
                let most = if self.draw(4) == 0 { 1 + self.draw(64) } else { 64 + self.draw(TURN) };
                let mut warp = std::mem::take(&mut self.blocks[block].warps[w]);
                let ran = self.turn(block, &mut warp, most);
                self.blocks[block].warps[w] = warp;
                progress |= ran?;
            }
            if !alive {
                return Ok(());
            }
            if !progress {
                return Err(format!("all threads wait: {}", self.waiting()));
            }
        }
        Err("it does not end".into())
    }

    /// A number below `n`.
    fn draw(&mut self, n: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 33) as usize % n.max(1)
    }

    /// The instructions of the first warps, for messages.
    fn waiting(&self) -> String {
        let code = &self.launch.kernel.code;
        let mut all = Vec::new();
        for b in &self.blocks {
            for w in &b.warps {
                for f in &w.fragments {
                    let text = code.get(f.at).map_or("the end", |i| &i.text);
                    all.push(format!(
                        "block {} warp {} threads {:x} at `{text}` {:?}",
                        b.number, w.number, f.threads, f.state
                    ));
                }
            }
        }
        all.truncate(8);
        all.join("; ")
    }

    /// Whether threads at a barrier can go on.
    fn goes_on(&self, block: usize, warp: &Warp, f: Fragment) -> bool {
        match f.state {
            State::Runs => true,
            State::Gathers => false,
            State::Waits { barrier, round } => self.blocks[block].barriers[barrier].round != round,
            State::WaitsForCluster => {
                let (_, rounds) = self.clusters[block / self.memory.cluster];
                lanes(f.threads).all(|l| warp.cluster_rounds[l] < rounds)
            }
        }
    }

    /// Runs a warp until its turn ends or its threads wait. Returns whether anything was executed.
    fn turn(&mut self, block: usize, warp: &mut Warp, most: usize) -> Result<bool, String> {
        let mut executed = 0;
        let passed = warp.passed.take();
        let mut only: Option<u32> = None;
        while executed < most && warp.alive != 0 {
            for i in 0..warp.fragments.len() {
                if warp.fragments[i].state != State::Runs && self.goes_on(block, warp, warp.fragments[i]) {
                    warp.fragments[i].state = State::Runs;
                }
            }
            merge(&mut warp.fragments);
            let ready = |f: &&(usize, Fragment)| f.1.state == State::Runs;
            let all: Vec<(usize, Fragment)> = warp.fragments.iter().copied().enumerate().collect();
            let mut choice = all.iter().filter(ready).min_by_key(|(_, f)| f.at).copied();
            // Threads that spent a turn in one loop may wait for others of their warp.
            if executed == 0
                && let Some(threads) = passed
                && let Some(other) = all.iter().filter(ready).find(|(_, f)| f.threads != threads)
            {
                choice = Some(*other);
            }
            let Some((i, f)) = choice else { break };
            let next = all.iter().filter(|(k, o)| *k != i && o.state == State::Runs).map(|(_, o)| o.at).min();
            let behind = warp.fragments.iter().enumerate().any(|(k, o)| k != i && o.state == State::Gathers);
            only = Some(if only.is_none_or(|t| t == f.threads) { f.threads } else { 0 });
            executed += self.stretch(block, warp, i, next, behind, most - executed)?;
        }
        if executed >= most && warp.fragments.len() > 1 {
            warp.passed = only.filter(|&t| t != 0);
        }
        Ok(executed > 0)
    }

    /// Runs threads until they come to others, part, wait or end.
    fn stretch(
        &mut self,
        block: usize,
        warp: &mut Warp,
        i: usize,
        next: Option<usize>,
        gathering: bool,
        most: usize,
    ) -> Result<usize, String> {
        let launch = self.launch;
        for n in 0..most {
            let f = warp.fragments[i];
            let instruction = launch.kernel.code.get(f.at).ok_or("the code has no end")?;
            let threads = match instruction.guard {
                None => f.threads,
                Some((r, wanted)) => {
                    let values = &warp.registers[r];
                    lanes(f.threads).filter(|&l| (values[l] != 0) == wanted).fold(0, |m, l| m | 1 << l)
                }
            };
            if let Body::Branch { to } = instruction.body {
                if threads == f.threads {
                    warp.fragments[i].at = to;
                } else {
                    warp.fragments[i].at += 1;
                    if threads != 0 {
                        warp.fragments[i].threads &= !threads;
                        warp.fragments.push(Fragment { at: to, threads, state: State::Runs });
                        return Ok(n + 1);
                    }
                }
            } else if let Body::Return = instruction.body {
                warp.alive &= !threads;
                self.blocks[block].alive -= threads.count_ones();
                warp.fragments[i].threads &= !threads;
                warp.fragments[i].at += 1;
                for b in 0..16 {
                    self.blocks[block].check(b);
                }
                // Others may have waited for these alone.
                warp.fragments
                    .iter_mut()
                    .filter(|f| f.state == State::Gathers)
                    .for_each(|f| f.state = State::Runs);
                if warp.fragments[i].threads == 0 {
                    warp.fragments.remove(i);
                }
                return Ok(n + 1);
            } else if threads == 0 {
                warp.fragments[i].at += 1;
            } else {
                let text = &instruction.text;
                let (number, of_block) = (warp.number, self.blocks[block].number);
                let state = self
                    .perform(block, warp, &instruction.body, threads)
                    .map_err(|e| format!("{e}, in `{text}` of warp {number} of block {of_block}"))?;
                match state {
                    State::Gathers => {
                        warp.fragments[i].state = State::Gathers;
                        return Ok(n);
                    }
                    State::Runs => warp.fragments[i].at += 1,
                    other => {
                        warp.fragments[i].at += 1;
                        if threads != f.threads {
                            warp.fragments[i].threads &= !threads;
                            warp.fragments.push(Fragment { at: f.at + 1, threads, state: other });
                        } else {
                            warp.fragments[i].state = other;
                        }
                        return Ok(n + 1);
                    }
                }
            }
            let at = warp.fragments[i].at;
            if next.is_some_and(|to| at >= to)
                || gathering && warp.fragments.iter().any(|o| o.state == State::Gathers && o.at == at)
            {
                return Ok(n + 1);
            }
        }
        Ok(most)
    }
}

/// Joins threads that are at the same instruction.
fn merge(all: &mut Vec<Fragment>) {
    let free = |s: State| matches!(s, State::Runs | State::Gathers);
    let mut i = 0;
    while i < all.len() {
        let mut k = i + 1;
        while k < all.len() {
            if all[i].at == all[k].at && free(all[i].state) && free(all[k].state) {
                all[i].threads |= all[k].threads;
                all[i].state = State::Runs;
                all.swap_remove(k);
            } else {
                k += 1;
            }
        }
        i += 1;
    }
}
