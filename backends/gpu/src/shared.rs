//! Memory of weights by contents: programs with equal weights on one device share it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// Identifies the contents of a buffer.
pub type Contents = [u8; 32];

/// Bytes that are hashed as one piece.
const PIECE: usize = 1 << 20;
/// Bytes that are worth a thread of their own.
const BYTES_OF_A_THREAD: usize = 8 << 20;

/// Buffers of a device by their contents, which nobody writes any more. A buffer goes with its last user.
pub struct SharedBuffers<B> {
    known: Mutex<HashMap<Contents, Weak<B>>>,
}

impl<B> Default for SharedBuffers<B> {
    fn default() -> SharedBuffers<B> {
        SharedBuffers { known: Mutex::default() }
    }
}

impl<B> SharedBuffers<B> {
    /// A buffer with these contents, if there is one.
    pub fn get(&self, contents: &Contents) -> Option<Arc<B>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(contents)?.upgrade()
    }

    /// Adds a buffer whose contents are on the device. Returns the one to use: another thread may have added an equal one before.
    pub fn add(&self, contents: Contents, buffer: Arc<B>) -> Arc<B> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = known.get(&contents).and_then(Weak::upgrade) {
            return before;
        }
        known.insert(contents, Arc::downgrade(&buffer));
        buffer
    }

    /// Forgets buffers that are gone.
    pub fn sweep(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, buffer| buffer.strong_count() > 0);
    }
}

/// Contents of buffers, each of which is given by its length and by bytes at offsets. Many bytes are hashed by several threads.
pub fn contents(buffers: &[(u64, Vec<(u64, &[u8])>)]) -> Vec<Contents> {
    let parts = buffers.iter().flat_map(|(_, parts)| parts);
    let pieces: Vec<&[u8]> = parts.flat_map(|(_, bytes)| bytes.chunks(PIECE)).collect();
    let mut hashed = hashes(&pieces).into_iter();
    let one = |(size, parts): &(u64, Vec<(u64, &[u8])>)| {
        let mut all = blake3::Hasher::new();
        all.update(&size.to_le_bytes());
        for (offset, bytes) in parts {
            all.update(&offset.to_le_bytes()).update(&(bytes.len() as u64).to_le_bytes());
            hashed.by_ref().take(bytes.len().div_ceil(PIECE)).for_each(|h| _ = all.update(h.as_bytes()));
        }
        *all.finalize().as_bytes()
    };
    buffers.iter().map(one).collect()
}

/// The hash of each piece.
fn hashes(pieces: &[&[u8]]) -> Vec<blake3::Hash> {
    let bytes: usize = pieces.iter().map(|p| p.len()).sum();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = (bytes / BYTES_OF_A_THREAD).min(processors);
    let found: Vec<OnceLock<blake3::Hash>> = pieces.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((piece, place)) = {
            let i = next.fetch_add(1, Ordering::Relaxed);
            pieces.get(i).zip(found.get(i))
        } {
            place.get_or_init(|| blake3::hash(piece));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // Where the system refuses a thread, the others do its work.
            if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
    found
        .into_iter()
        .zip(pieces)
        .map(|(h, piece)| h.into_inner().unwrap_or_else(|| blake3::hash(piece)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_contents_share_a_buffer_until_its_last_user_goes() {
        let all = SharedBuffers::default();
        let key = [1; 32];
        assert!(all.get(&key).is_none());
        let first = all.add(key, Arc::new(5));
        let late = all.add(key, Arc::new(6));
        assert!(Arc::ptr_eq(&first, &late), "the buffer that was there first is used");
        assert!(all.get(&[2; 32]).is_none());
        drop((first, late));
        assert!(all.get(&key).is_none());
        all.sweep();
        assert!(all.known.lock().is_ok_and(|known| known.is_empty()));
    }

    #[test]
    fn contents_are_lengths_offsets_and_bytes() {
        let long = vec![7u8; 40 << 20];
        let mut other = long.clone();
        other[33 << 20] = 8;
        let of = |size: u64, parts: &[(u64, &[u8])]| contents(&[(size, parts.to_vec())])[0];
        let all = [
            of(64, &[(0, &[1, 2]), (16, &[3])]),
            of(64, &[(0, &[1, 2]), (32, &[3])]),
            of(64, &[(0, &[1]), (16, &[2, 3])]),
            of(80, &[(0, &[1, 2]), (16, &[3])]),
            of(64, &[(0, &long)]),
            of(64, &[(0, &other)]),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|b| a != b), "{i} equals another one");
        }
        assert_eq!(of(64, &[(0, &long)]), all[4]);
        let several = contents(&[(64, vec![(0, &long[..])]), (64, vec![(0, &other[..])])]);
        assert_eq!(several, all[4..], "alone or among others");
    }
}
