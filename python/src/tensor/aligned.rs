//! Host memory on addresses that vector instructions like, and other libraries expect.

use std::sync::Arc;

/// Bytes of a line of the cache.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Bytes that begin at a multiple of 64.
pub struct Aligned {
    lines: Vec<Line>,
    len: usize,
}

impl Aligned {
    /// So many zeros.
    pub fn zeroed(len: usize) -> Aligned {
        Aligned { lines: vec![Line([0; 64]); len.div_ceil(64)], len }
    }

    /// A copy.
    pub fn copied(bytes: &[u8]) -> Aligned {
        let mut all = Aligned::zeroed(bytes.len());
        all.as_mut_slice().copy_from_slice(bytes);
        all
    }

    /// The bytes, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: lines are arrays of bytes without padding, of which there are at least `len`.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }

    /// The bytes as a tensor holds them.
    pub fn into_bytes(self) -> kiln_ir::Bytes {
        let len = self.len;
        kiln_ir::Bytes::window(Arc::new(self), 0, len).unwrap_or_else(|| Vec::new().into())
    }
}

impl AsRef<[u8]> for Aligned {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: as of `as_mut_slice`.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}
