//! Launches that are kept from run to run.

use kiln_backend::Shapes;
use kiln_ir::Tensor;
use std::sync::Arc;

/// A dependency of the launches of a run: the shape of each input, and the contents of those that the host plans by. Memory that is
/// bound to inputs and outputs is one, too, and the case of a program that has several.
#[derive(Clone, Debug, PartialEq)]
pub struct Key<R>(pub Vec<usize>, pub Option<Tensor>, pub Option<R>);

impl<R> Key<R> {
    /// Whether only memory differs.
    pub fn is_like(&self, other: &Key<R>) -> bool {
        (&self.0, &self.1) == (&other.0, &other.1)
    }
}

/// The launches of a run that needs no host in between.
pub struct Prepared<R, B> {
    /// The dependencies of its launches.
    pub key: Vec<Key<R>>,
    /// The launches.
    pub batch: B,
    /// The shapes, with what became known.
    pub shapes: Arc<Shapes>,
    /// Sizes that the run leaves open.
    pub open: crate::extent::Open,
}

impl<R, B> Prepared<R, B> {
    /// Whether it is of equal shapes, maybe in other memory.
    fn is_like(&self, key: &[Key<R>]) -> bool {
        self.key.len() == key.len() && self.key.iter().zip(key).all(|(a, b)| a.is_like(b))
    }
}

/// Prepared runs, the latest last, and the launches of runs that wait for the host.
pub struct Launches<R, B> {
    /// Number of prepared runs that are kept.
    most: usize,
    prepared: Vec<Prepared<R, B>>,
    /// Whether the latest prepared run is the last run.
    pub is_last: bool,
    /// Parts of the present run.
    parts: Vec<B>,
    /// Parts of the run before, whose memory is used again in the same order.
    spare: Vec<B>,
}

impl<R: PartialEq, B> Launches<R, B> {
    /// None yet; keeps `most` prepared runs.
    pub fn new(most: usize) -> Launches<R, B> {
        Launches { most, prepared: Vec::new(), is_last: false, parts: Vec::new(), spare: Vec::new() }
    }

    /// Forgets prepared runs, as their launches name memory that is gone.
    pub fn clear(&mut self) {
        self.prepared.clear();
        self.is_last = false;
    }

    /// A run starts; the one before is done.
    pub fn begin(&mut self) {
        self.spare.clear();
        self.spare.append(&mut self.parts);
        self.is_last = false;
    }

    /// A part of the last run, whose memory the next part may use.
    pub fn take_spare(&mut self) -> Option<B> {
        (!self.spare.is_empty()).then(|| self.spare.remove(0))
    }

    /// Keeps a part until the run is done.
    pub fn keep_part(&mut self, part: B) {
        self.parts.push(part);
    }

    /// Takes the prepared run of these inputs out.
    pub fn take(&mut self, key: &[Key<R>]) -> Option<Prepared<R, B>> {
        let at = self.prepared.iter().position(|p| p.key == key)?;
        Some(self.prepared.remove(at))
    }

    /// Takes out the run used longest ago among those of equal shapes in other memory: where there are `enough` of them, or where a
    /// further one would be kept in the place of another.
    pub fn take_like(&mut self, key: &[Key<R>], enough: usize) -> Option<Prepared<R, B>> {
        let mut all = self.prepared.iter().enumerate().filter(|(_, p)| p.is_like(key)).map(|(i, _)| i);
        let first = all.next()?;
        let enough = all.count() + 1 >= enough || self.prepared.len() >= self.most && enough < usize::MAX;
        enough.then(|| self.prepared.remove(first))
    }

    /// Puts back what was taken out and not used: it is the first one that is given up.
    pub fn put_back(&mut self, prepared: Prepared<R, B>) {
        self.prepared.insert(0, prepared);
    }

    /// Takes the last run out, if it was a prepared one.
    pub fn take_last(&mut self) -> Option<Prepared<R, B>> {
        if self.is_last { self.prepared.pop() } else { None }
    }

    /// The prepared run that is given up for another, if no more are kept.
    pub fn give_up(&mut self) -> Option<Prepared<R, B>> {
        (self.prepared.len() >= self.most).then(|| self.prepared.remove(0))
    }

    /// Whether a run of equal shapes is prepared, maybe in other memory.
    pub fn has_like(&self, key: &[Key<R>]) -> bool {
        self.shapes_like(key).is_some()
    }

    /// The shapes of a prepared run of equal input shapes, maybe in other memory.
    pub fn shapes_like(&self, key: &[Key<R>]) -> Option<Arc<Shapes>> {
        self.prepared.iter().find(|p| p.is_like(key)).map(|p| p.shapes.clone())
    }

    /// Keeps the last run.
    pub fn keep(&mut self, prepared: Prepared<R, B>) {
        self.prepared.push(prepared);
        self.is_last = true;
    }

    /// The launches of all prepared runs.
    pub fn batches(&mut self) -> impl Iterator<Item = &mut B> {
        self.prepared.iter_mut().map(|p| &mut p.batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(shape: usize, at: u64) -> Vec<Key<u64>> {
        vec![Key(vec![shape], None, Some(at))]
    }

    fn run(all: &mut Launches<u64, u64>, shape: usize, at: u64) {
        all.begin();
        if let Some(p) = all.take(&key(shape, at)) {
            return all.keep(p);
        }
        all.give_up();
        let shapes = Arc::new(Shapes::new(Vec::new()));
        all.keep(Prepared { key: key(shape, at), batch: at, shapes, open: Default::default() });
    }

    #[test]
    fn the_run_used_longest_ago_is_given_up() {
        let mut all = Launches::new(2);
        for (shape, at) in [(1, 10), (2, 20), (1, 10), (3, 30)] {
            run(&mut all, shape, at);
        }
        assert!(all.take(&key(2, 20)).is_none());
        assert_eq!(all.batches().map(|b| *b).collect::<Vec<_>>(), [10, 30]);
        assert!(all.has_like(&key(1, 11)) && !all.has_like(&key(2, 20)));
    }

    #[test]
    fn a_run_of_equal_shapes_is_taken_where_there_are_enough_or_no_room() {
        let mut all = Launches::new(4);
        for (shape, at) in [(1, 10), (1, 11), (2, 20)] {
            run(&mut all, shape, at);
        }
        let taken = |all: &mut Launches<u64, u64>, enough| {
            let p = all.take_like(&key(1, 12), enough)?;
            let batch = p.batch;
            all.put_back(p);
            Some(batch)
        };
        assert_eq!((taken(&mut all, 3), taken(&mut all, 2)), (None, Some(10)));
        run(&mut all, 3, 30);
        assert_eq!((taken(&mut all, 3), taken(&mut all, usize::MAX)), (Some(10), None));
        assert!(all.take_like(&key(4, 40), 1).is_none());
    }

    #[test]
    fn a_run_with_stops_is_not_the_last_prepared_one() {
        let mut all = Launches::new(2);
        run(&mut all, 1, 10);
        all.begin();
        all.keep_part(7);
        assert!(all.take_last().is_none());
        all.begin();
        assert_eq!((all.take_spare(), all.take_spare()), (Some(7), None));
    }
}
