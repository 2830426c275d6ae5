//! A look over the encoded bytes before anything is decoded: damage, depth and the memory that decoding would take.

use super::layout::{Field, Layout};
use crate::error::OnnxError;

/// Messages may nest so deep: about thirty graphs in graphs.
pub(crate) const MAX_DEPTH: usize = 96;

/// The decoded form may take so many bytes for each of the file, and so many beside.
const MEMORY_RATIO: u64 = 64;
const MEMORY_BASE: u64 = 64 * 1024;

/// Checks that `bytes` can hold a message of this layout. Time is linear in the number of fields; nothing is allocated.
pub(crate) fn check(bytes: &[u8], layout: &'static Layout) -> Result<(), OnnxError> {
    if bytes.is_empty() {
        return Err(OnnxError::NotOnnx { reason: "the file is empty".into() });
    }
    if bytes.starts_with(b"version https://git-lfs") {
        return Err(OnnxError::NotOnnx { reason: "it is a Git LFS pointer (run git lfs pull)".into() });
    }
    let mut walk = Walk { bytes, at: 0, memory: layout.size as u64 };
    walk.message(layout, bytes.len(), 1).map_err(|error| foreign(error, layout, bytes))?;
    let limit = MEMORY_BASE + MEMORY_RATIO * bytes.len() as u64;
    if walk.memory > limit {
        return Err(OnnxError::TooLarge { what: "the decoded file", wanted: walk.memory, limit });
    }
    Ok(())
}

/// A model begins with its IR version, field 1: one that does not, and ends early too, is not a model at all.
fn foreign(error: OnnxError, layout: &Layout, bytes: &[u8]) -> OnnxError {
    match error {
        OnnxError::Truncated { .. } if layout.name == "ModelProto" && bytes[0] != 8 => {
            OnnxError::NotOnnx { reason: "it does not begin like a model".into() }
        }
        error => error,
    }
}

/// A place in the file and what the messages before it take in memory.
struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
    memory: u64,
}

impl Walk<'_> {
    /// Walks over the fields of a message that ends at `end`.
    fn message(&mut self, layout: &'static Layout, end: usize, depth: usize) -> Result<(), OnnxError> {
        if depth > MAX_DEPTH {
            return Err(OnnxError::NestingTooDeep { what: "messages of the file", limit: MAX_DEPTH });
        }
        while self.at < end {
            self.field(layout, end, depth)?;
        }
        Ok(())
    }

    fn field(&mut self, layout: &'static Layout, end: usize, depth: usize) -> Result<(), OnnxError> {
        let start = self.at;
        let tag = self.varint(layout, start, end, depth)?;
        let number = u32::try_from(tag >> 3).unwrap_or(0);
        let known = layout.fields.iter().find(|(field, _)| *field == number).map(|(_, field)| *field);
        if number == 0 || number >= 1 << 29 {
            return Err(self.damaged(layout, start, depth, "has a field with an impossible number"));
        }
        match tag & 7 {
            0 => drop(self.varint(layout, start, end, depth)?),
            1 => self.skip(layout, start, 8, end)?,
            2 => return self.delimited(layout, known, start, end, depth),
            5 => self.skip(layout, start, 4, end)?,
            _ => return Err(self.damaged(layout, start, depth, "has a field of an impossible kind")),
        }
        match known {
            Some(Field::Numbers(size, _)) => self.memory += size as u64,
            Some(_) => {
                return Err(self.damaged(layout, start, depth, "has a number where another kind belongs"));
            }
            None => {}
        }
        Ok(())
    }

    fn delimited(
        &mut self,
        layout: &'static Layout,
        known: Option<Field>,
        start: usize,
        end: usize,
        depth: usize,
    ) -> Result<(), OnnxError> {
        let length = self.varint(layout, start, end, depth)?;
        let field_end = self.reach(layout, start, length, end)?;
        match known {
            Some(Field::Message(inner)) => {
                self.memory += inner.size as u64;
                return self.message(inner, field_end, depth + 1);
            }
            Some(Field::List(size)) => self.memory += size as u64,
            Some(Field::Numbers(size, packed)) => self.memory += length / packed as u64 * size as u64,
            None => {}
        }
        self.at = field_end;
        Ok(())
    }

    /// Reads a number of the variable-length encoding.
    fn varint(&mut self, layout: &Layout, start: usize, end: usize, depth: usize) -> Result<u64, OnnxError> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            if self.at >= end {
                return Err(truncated(layout, start, 1));
            }
            let byte = self.bytes[self.at];
            self.at += 1;
            value |= u64::from(byte & 127).checked_shl(shift).unwrap_or(0);
            if byte < 128 {
                return Ok(value);
            }
        }
        Err(self.damaged(layout, start, depth, "has a number of more than ten bytes"))
    }

    fn skip(&mut self, layout: &Layout, start: usize, length: u64, end: usize) -> Result<(), OnnxError> {
        self.at = self.reach(layout, start, length, end)?;
        Ok(())
    }

    /// End of a part of the given length, which is inside the part that holds it.
    fn reach(&self, layout: &Layout, start: usize, length: u64, end: usize) -> Result<usize, OnnxError> {
        let left = (end - self.at) as u64;
        if length > left {
            return Err(truncated(layout, start, length - left));
        }
        Ok(self.at + length as usize)
    }

    /// Damage in the outermost message means that the file is something else.
    fn damaged(&self, layout: &Layout, start: usize, depth: usize, what: &str) -> OnnxError {
        let reason = format!("{} {what} at byte {start}", layout.name);
        if depth == 1 { OnnxError::NotOnnx { reason } } else { OnnxError::Malformed { reason } }
    }
}

fn truncated(layout: &Layout, offset: usize, missing: u64) -> OnnxError {
    OnnxError::Truncated { message: layout.name, offset, missing }
}
