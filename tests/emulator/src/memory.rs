//! Memory of a launch: addresses are those of live memory, of a block's shared memory, of a thread's own or of the parameter.

use crate::addresses::{
    IN_BLOCK, LOCAL_WINDOW, NAMED, PARAM_WINDOW, RANK_SHIFT, SHARED_START, SHARED_WINDOW, window,
};
use crate::instruction::Space;
use crate::warp::Warp;

/// Asks whether an address is in live memory, and in which bytes around it.
pub type Range = unsafe extern "C" fn(address: u64, first: *mut u64, end: *mut u64) -> i32;

/// Global memory that kernels may use.
pub struct Global {
    range: Range,
    known: Vec<(u64, u64)>,
}

impl Global {
    /// The memory that `range` knows, and a module's variables.
    pub fn new(range: Range, variables: &[Box<[u64]>]) -> Global {
        let known = variables.iter().map(|v| (v.as_ptr() as u64, v.as_ptr() as u64 + v.len() as u64 * 8));
        Global { range, known: known.collect() }
    }

    /// Whether all these bytes are live.
    pub fn holds(&mut self, address: u64, bytes: u64) -> bool {
        let inside = |(first, end): (u64, u64)| address >= first && address < end && bytes <= end - address;
        if let Some(i) = self.known.iter().position(|&r| inside(r)) {
            if i > 0 {
                self.known.swap(0, i);
            }
            return true;
        }
        let (mut first, mut end) = (0, 0);
        // SAFETY: the places are valid.
        if unsafe { (self.range)(address, &mut first, &mut end) } == 0 {
            return false;
        }
        self.known.insert(0, (first, end));
        inside((first, end))
    }
}

/// All memory that the threads of a group of blocks see.
pub struct Memory<'a> {
    pub global: &'a mut Global,
    /// Shared memory of each block of the group.
    pub shared: Vec<Vec<u8>>,
    pub parameter: &'a [u8],
    /// Number of blocks of a cluster.
    pub cluster: usize,
}

impl Memory<'_> {
    /// The bytes at an address, checked.
    pub fn at(
        &mut self,
        block: usize,
        warp: &mut Warp,
        lane: usize,
        space: Space,
        address: u64,
        bytes: u64,
    ) -> Result<*mut u8, String> {
        // Longer ones are copies of many vectors.
        let unit = bytes.min(16);
        if bytes.is_power_of_two() && !address.is_multiple_of(unit) {
            return Err(format!("address {address:#x} is no multiple of {unit}"));
        }
        let (space, address) = match (space, window(address)) {
            (Space::Generic, SHARED_WINDOW) => (Space::Cluster, address - SHARED_WINDOW),
            (Space::Generic, LOCAL_WINDOW) => (Space::Local, address - LOCAL_WINDOW),
            (Space::Generic, PARAM_WINDOW) => (Space::Param, address - PARAM_WINDOW),
            (Space::Generic, _) => (Space::Global, address),
            (s, _) => (s, address),
        };
        let outside = |what: &str, size: u64| {
            Err(format!("{bytes} bytes at {address:#x} are outside of the {size} bytes of {what}"))
        };
        match space {
            Space::Global | Space::Generic => match self.global.holds(address, bytes) {
                true => Ok(address as *mut u8),
                false => Err(format!("{bytes} bytes at {address:#x} are no live memory")),
            },
            Space::Shared | Space::Cluster => {
                let (mut block, mut inside) = (block, address);
                if address & NAMED != 0 {
                    let first = block / self.cluster * self.cluster;
                    let rank = ((address & !NAMED) >> RANK_SHIFT) as usize;
                    if rank >= self.cluster {
                        return Err(format!("block {rank} of a cluster of {}", self.cluster));
                    }
                    (block, inside) = (first + rank, address & IN_BLOCK);
                }
                let of = &mut self.shared[block];
                let size = of.len() as u64;
                if inside < SHARED_START || inside > size || bytes > size - inside {
                    return outside("shared memory", size);
                }
                Ok(of[inside as usize..].as_mut_ptr())
            }
            Space::Local => {
                let size = warp.local_bytes;
                if address > size || bytes > size - address {
                    return outside("a thread's memory", size);
                }
                let at = lane as u64 * size + address;
                Ok(warp.local[at as usize..].as_mut_ptr())
            }
            Space::Param => {
                let size = self.parameter.len() as u64;
                if address > size || bytes > size - address {
                    return outside("the parameter", size);
                }
                Ok(self.parameter[address as usize..].as_ptr().cast_mut())
            }
        }
    }

    /// Reads up to 8 bytes.
    pub fn read(
        &mut self,
        block: usize,
        warp: &mut Warp,
        lane: usize,
        space: Space,
        address: u64,
        bytes: u64,
    ) -> Result<u64, String> {
        let from = self.at(block, warp, lane, space, address, bytes)?;
        let mut word = [0u8; 8];
        // SAFETY: so many bytes are there.
        unsafe { std::ptr::copy_nonoverlapping(from, word.as_mut_ptr(), bytes as usize) };
        Ok(u64::from_le_bytes(word))
    }

    /// Writes up to 8 bytes.
    #[allow(clippy::too_many_arguments, reason = "a place and a value")]
    pub fn write(
        &mut self,
        block: usize,
        warp: &mut Warp,
        lane: usize,
        space: Space,
        address: u64,
        bytes: u64,
        value: u64,
    ) -> Result<(), String> {
        let to = self.at(block, warp, lane, space, address, bytes)?;
        // SAFETY: so many bytes are there.
        unsafe { std::ptr::copy_nonoverlapping(value.to_le_bytes().as_ptr(), to, bytes as usize) };
        Ok(())
    }
}
