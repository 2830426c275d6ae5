//! A bounded cache of shared objects: what is in use stays, of the rest what was used last.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

/// Objects by key, up to a total size. Those that are in use elsewhere count, but are never dropped; of the others the ones
/// that were not asked for the longest go first.
#[derive(Debug)]
pub struct Recent<K, T: ?Sized> {
    limit: u64,
    inner: Mutex<Inner<K, T>>,
}

#[derive(Debug)]
struct Inner<K, T: ?Sized> {
    entries: HashMap<K, Entry<T>>,
    clock: u64,
    size: u64,
}

#[derive(Debug)]
struct Entry<T: ?Sized> {
    object: Arc<T>,
    size: u64,
    used: u64,
}

impl<K: Hash + Eq + Clone, T: ?Sized> Recent<K, T> {
    /// An empty cache of objects of this size in all.
    pub fn new(limit: u64) -> Recent<K, T> {
        let inner = Inner { entries: HashMap::new(), clock: 0, size: 0 };
        Recent { limit, inner: Mutex::new(inner) }
    }

    /// The object of a key.
    pub fn get(&self, key: &K) -> Option<Arc<T>> {
        let mut all = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        all.clock += 1;
        let now = all.clock;
        all.entries.get_mut(key).map(|e| {
            e.used = now;
            e.object.clone()
        })
    }

    /// Keeps an object of this size, and drops others beyond the limit.
    pub fn insert(&self, key: K, object: Arc<T>, size: u64) {
        let dropped = {
            let mut all = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            all.clock += 1;
            let entry = Entry { object, size, used: all.clock };
            let old = all.entries.insert(key, entry);
            all.size = all.size.saturating_add(size).saturating_sub(old.as_ref().map_or(0, |o| o.size));
            let mut dropped: Vec<Entry<T>> = old.into_iter().collect();
            while all.size > self.limit
                && let Some(e) = all.drop_oldest()
            {
                dropped.push(e);
            }
            dropped
        };
        // Objects may take long to be dropped: not under the lock.
        drop(dropped);
    }

    /// Number of objects that it keeps.
    pub fn len(&self) -> usize {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).entries.len()
    }

    /// Whether it keeps none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: Hash + Eq + Clone, T: ?Sized> Inner<K, T> {
    /// Takes out what is in use nowhere and was asked for the longest ago; the newest entry stays.
    fn drop_oldest(&mut self) -> Option<Entry<T>> {
        let free =
            self.entries.iter().filter(|(_, e)| Arc::strong_count(&e.object) == 1 && e.used < self.clock);
        let key = free.min_by_key(|(_, e)| e.used).map(|(k, _)| k.clone())?;
        let e = self.entries.remove(&key)?;
        self.size = self.size.saturating_sub(e.size);
        Some(e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_first_and_what_is_in_use_stays() {
        let all: Recent<u32, u32> = Recent::new(3);
        let held = Arc::new(0);
        all.insert(0, held.clone(), 1);
        for k in 1..4 {
            all.insert(k, Arc::new(k), 1);
        }
        assert_eq!((all.len(), all.get(&1)), (3, None), "0 is in use, 1 is the oldest of the rest");
        assert!(all.get(&2).is_some());
        all.insert(4, Arc::new(4), 1);
        assert_eq!((all.get(&3), all.get(&2).as_deref()), (None, Some(&2)), "2 was asked for since");
        drop(held);
        all.insert(5, Arc::new(5), 3);
        assert_eq!((all.len(), all.get(&5).as_deref()), (1, Some(&5)));
    }

    #[test]
    fn an_object_larger_than_the_limit_is_kept_until_the_next() {
        let all: Recent<u32, [u8]> = Recent::new(4);
        all.insert(1, vec![0; 9].into(), 9);
        assert_eq!(all.len(), 1);
        all.insert(1, vec![0; 2].into(), 2);
        all.insert(2, vec![0; 2].into(), 2);
        assert_eq!(all.len(), 2, "replaced objects no longer count");
    }
}
