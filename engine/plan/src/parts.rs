//! Bytes of a file that is being written: pieces in order, without putting them together in memory.

use kiln_ir::Bytes;
use std::io::{self, Write};

/// Pieces in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    pieces: Vec<Bytes>,
    len: u64,
}

const ZEROS: [u8; 4096] = [0; 4096];

impl Parts {
    /// Appends a piece.
    pub(crate) fn push(&mut self, piece: impl Into<Bytes>) {
        let piece = piece.into();
        self.len += piece.as_slice().len() as u64;
        self.pieces.push(piece);
    }

    /// Appends all pieces of another.
    pub(crate) fn append(&mut self, other: Parts) {
        self.len += other.len;
        self.pieces.extend(other.pieces);
    }

    /// Appends zeros up to a multiple of `alignment` (at most 4096).
    pub(crate) fn align(&mut self, alignment: u64) {
        let want = self.len.next_multiple_of(alignment) - self.len;
        self.push(ZEROS[..want as usize].to_vec());
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Hash of all bytes.
    pub(crate) fn hash(&self) -> [u8; 32] {
        let mut h = blake3::Hasher::new();
        self.pieces.iter().for_each(|p| {
            h.update(p.as_slice());
        });
        *h.finalize().as_bytes()
    }

    /// Hashes of successive chunks; the last may be shorter.
    pub(crate) fn chunk_hashes(&self, chunk: usize) -> Vec<[u8; 32]> {
        let mut out = Vec::new();
        let (mut h, mut filled) = (blake3::Hasher::new(), 0);
        for piece in &self.pieces {
            let mut rest = piece.as_slice();
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(chunk - filled));
                h.update(now);
                filled += now.len();
                rest = later;
                if filled == chunk {
                    out.push(*h.finalize().as_bytes());
                    (h, filled) = (blake3::Hasher::new(), 0);
                }
            }
        }
        if filled > 0 {
            out.push(*h.finalize().as_bytes());
        }
        out
    }

    /// Writes all bytes.
    pub(crate) fn write_to(&self, w: &mut dyn Write) -> io::Result<()> {
        self.pieces.iter().try_for_each(|p| w.write_all(p.as_slice()))
    }

    /// All bytes in one piece.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        self.pieces.iter().flat_map(|p| p.as_slice()).copied().collect()
    }
}
