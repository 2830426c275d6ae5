//! Uploads of many ranges, cut into pieces that fit page-locked memory. Ranges of a buffer that lie close together are one copy. Buffers
//! may be neighbours on the device, but the driver refuses copies to two of them.

use super::memory::Range;

/// Bytes between two ranges of a buffer that are copied with them, at most: what aligns the second.
const GAP: u64 = 255;

/// Parts of an upload that are in page-locked memory at the same time.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Bytes, with their place in page-locked memory.
    pub parts: Vec<(usize, &'a [u8])>,
    /// Copies: the place in page-locked memory, the address on the device, and the number of bytes.
    pub copies: Vec<(usize, u64, usize)>,
    filled: usize,
}

impl<'a> Piece<'a> {
    /// Adds bytes for an address, as many as there is room for, to the last copy if they are `near` it. Returns their number.
    fn add(&mut self, to: u64, bytes: &'a [u8], room: usize, near: bool) -> usize {
        let gap = self.copies.last().filter(|_| near).and_then(|&(at, from, n)| {
            let gap = to.checked_sub(from + n as u64).filter(|g| *g <= GAP)? as usize;
            (at + n == self.filled).then_some(gap)
        });
        let at = self.filled + gap.unwrap_or(0);
        let n = room.saturating_sub(at).min(bytes.len());
        if n == 0 {
            return 0;
        }
        match (gap, self.copies.last_mut()) {
            (Some(gap), Some(last)) => last.2 += gap + n,
            _ => self.copies.push((at, to, n)),
        }
        self.parts.extend(bytes.get(..n).map(|b| (at, b)));
        self.filled = at + n;
        n
    }
}

/// The pieces, each of at most `room` bytes, which is not 0. Each list is that of one buffer.
pub fn pieces<'a>(buffers: &[Vec<(Range, &'a [u8])>], room: usize) -> Vec<Piece<'a>> {
    let (mut out, mut last) = (Vec::new(), Piece::default());
    let parts = buffers.iter().flat_map(|parts| parts.iter().enumerate());
    for (k, &(to, bytes)) in parts {
        let (mut to, mut rest) = (to.address, bytes);
        while !rest.is_empty() {
            let n = last.add(to, rest, room, k > 0);
            (to, rest) = (to + n as u64, rest.get(n..).unwrap_or_default());
            if !rest.is_empty() {
                out.push(std::mem::take(&mut last));
            }
        }
    }
    if last.filled > 0 {
        out.push(last);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_one_copy_and_long_ranges_are_cut() {
        let bytes: Vec<u8> = (0..100).collect();
        let range = |address, n: u64| Range { address, size: n };
        let parts = vec![
            (range(1000, 10), &bytes[..10]),
            (range(1016, 4), &bytes[10..14]),
            (range(9000, 50), &bytes[14..64]),
            (range(500, 0), &bytes[..0]),
        ];
        let found = pieces(&[parts], 32);
        assert_eq!(found.len(), 3);
        assert_eq!(found[0].copies, [(0, 1000, 20), (20, 9000, 12)]);
        assert_eq!(found[0].parts, [(0, &bytes[..10]), (16, &bytes[10..14]), (20, &bytes[14..26])]);
        assert_eq!(found[1].copies, [(0, 9012, 32)]);
        assert_eq!(found[2].copies, [(0, 9044, 6)]);
        assert_eq!(found[2].parts, [(0, &bytes[58..64])]);
        assert!(pieces(&[], 8).is_empty());
    }
    #[test]
    fn neighbouring_buffers_are_copied_apart() {
        let bytes = [7u8; 24];
        let range = |address, n: u64| Range { address, size: n };
        let first = vec![(range(1024, 8), &bytes[..8]), (range(1040, 8), &bytes[8..16])];
        let second = vec![(range(1048, 8), &bytes[16..])];
        let found = pieces(&[first, second], 100);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].copies, [(0, 1024, 24), (24, 1048, 8)]);
    }
}
