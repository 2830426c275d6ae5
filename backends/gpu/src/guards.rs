//! Buffers of a run with guards around their memory: what a kernel writes outside of it is found when the run ends.
//!
//! `KILN_GUARD=1` asks for them. Each tensor then has a buffer of its own, with a pattern in front of it and behind it.

use crate::device::{Buffer, Device, Queue};
use kiln_backend::BackendError;

/// Bytes of a guard.
const GUARD: u64 = 4096;
/// Word that guards consist of: NaN as a float, and no number that kernels write.
const WORD: u32 = 0x7fc5_a17e;

/// Memory that guards are filled from.
pub struct Pattern<D: Device>(D::Range, D::Buffer);

impl<D: Device> Pattern<D> {
    /// The pattern on a device, if guards are asked for.
    pub fn asked(queue: &mut D::Queue) -> Result<Option<Pattern<D>>, BackendError> {
        if std::env::var_os("KILN_GUARD").is_none_or(|v| v != "1") {
            return Ok(None);
        }
        let buffer = queue.allocate("the pattern of guards", GUARD)?;
        let range = buffer.range(0, GUARD);
        queue.store(&range, &bytes())?;
        Ok(Some(Pattern(range, buffer)))
    }
}

fn bytes() -> Vec<u8> {
    WORD.to_le_bytes().repeat(GUARD as usize / 4)
}

/// A buffer, with guards where they are asked for.
pub struct Held<D: Device> {
    buffer: D::Buffer,
    what: String,
    /// Bytes between the guards, in whole words; of a buffer without guards, all.
    room: u64,
    guarded: bool,
}

impl<D: Device> Held<D> {
    /// A buffer of at least so many bytes. One with guards begins as NaN.
    pub fn new(
        queue: &mut D::Queue,
        pattern: Option<&Pattern<D>>,
        bytes: u64,
        what: String,
    ) -> Result<Held<D>, BackendError> {
        let Some(pattern) = pattern else {
            let buffer = queue.allocate(&what, bytes)?;
            return Ok(Held { room: buffer.bytes(), buffer, what, guarded: false });
        };
        let room = bytes.next_multiple_of(4);
        let buffer = queue.allocate(&what, room.saturating_add(2 * GUARD))?;
        queue.poison(&buffer)?;
        let held = Held { buffer, what, room, guarded: true };
        held.fill(queue, pattern)?;
        // The host may write to it at once, which devices do in front of what is in the queue.
        queue.wait()?;
        Ok(held)
    }

    /// Bytes of its memory.
    pub fn bytes(&self) -> u64 {
        self.room
    }

    /// The first bytes of its memory. Where kernels cannot leave what is bound, the guard behind is bound as well.
    pub fn range(&self, bytes: u64) -> D::Range {
        match self.guarded {
            true if D::BINDS_RANGES => self.buffer.range(GUARD, self.room + GUARD),
            true => self.buffer.range(GUARD, bytes),
            false => self.buffer.range(0, bytes),
        }
    }

    /// The buffer around it.
    pub fn buffer(&self) -> &D::Buffer {
        &self.buffer
    }

    /// The buffer alone.
    pub fn into_buffer(self) -> D::Buffer {
        self.buffer
    }

    fn guards(&self) -> [(&'static str, D::Range); 2] {
        let at = |from| self.buffer.range(from, GUARD);
        [("in front of", at(0)), ("behind", at(GUARD + self.room))]
    }

    /// Writes the guards.
    pub fn fill(&self, queue: &mut D::Queue, pattern: &Pattern<D>) -> Result<(), BackendError> {
        if !self.guarded {
            return Ok(());
        }
        self.guards().iter().try_for_each(|(_, guard)| queue.copy(&pattern.0, guard, GUARD))
    }

    /// Reads the guards of buffers, and returns the first that a kernel has written to.
    pub fn check<'a>(queue: &mut D::Queue, all: impl Iterator<Item = &'a Held<D>>) -> Result<(), BackendError>
    where
        D: 'a,
    {
        let wanted = bytes();
        for held in all.filter(|h| h.guarded) {
            let guards = held.guards();
            let read = queue.read(&guards.clone().map(|(_, r)| (r, GUARD as usize)))?;
            for ((side, _), found) in guards.iter().zip(read) {
                let differ = |(a, b): (&u8, &u8)| a != b;
                let count = found.iter().zip(&wanted).filter(|p| differ(*p)).count();
                let Some(at) = found.iter().zip(&wanted).position(differ) else { continue };
                let at = if *side == "behind" { at as u64 } else { GUARD - at as u64 };
                return Err(BackendError::Internal(format!(
                    "a kernel wrote outside of the memory of {}: {count} bytes {side} it, the first {at} bytes away; correct the \
                     kernel, or the sizes that it is given",
                    held.what
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_are_no_numbers() {
        assert!(f32::from_bits(WORD).is_nan());
        assert_eq!(bytes().len() as u64, GUARD);
    }
}
