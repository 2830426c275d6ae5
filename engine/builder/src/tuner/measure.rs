//! Times of candidates on the device.

use super::freed::return_freed;
use super::{Site, Tuner};
use crate::BuildError;
use crate::cache::{Candidate, Entry, describe};
use crate::inputs::random_inputs;
use kiln_backend::{BackendError, Device, Region, Tactic, TimeRequest};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

/// Rounds in which candidates are timed.
const ROUNDS: usize = 3;

/// A candidate is out once its least time is this many times the best.
const ELIMINATE: f64 = 1.5;

impl Tuner<'_> {
    /// The blob of a candidate.
    fn blob(&mut self, key: &str, region: &Region, tactic: &Tactic) -> Result<Vec<u8>, BackendError> {
        if let Some(blob) = self.blobs.remove(&(key.to_owned(), tactic.id())) {
            return Ok(blob);
        }
        let start = Instant::now();
        let blob = self.backend.compile(region, tactic, self.target);
        self.spent.compiling += start.elapsed();
        blob
    }

    /// The blobs of candidates by number. Those are left out that the backend refuses when it compiles them, as libraries do
    /// that tell only then, unless it refuses all.
    fn blobs_of(
        &mut self,
        key: &str,
        region: &Region,
        candidates: &[Tactic],
    ) -> Result<HashMap<usize, Vec<u8>>, BackendError> {
        let (mut blobs, mut refused) = (HashMap::new(), None);
        for (i, t) in candidates.iter().enumerate() {
            match self.blob(key, region, t) {
                Err(source @ BackendError::Unsupported(_)) => {
                    tracing::info!("{} is left out: {source}", t.id());
                    refused = Some(source);
                }
                blob => drop(blobs.insert(i, blob?)),
            }
        }
        match refused.filter(|_| blobs.is_empty()) {
            Some(source) => Err(source),
            None => Ok(blobs),
        }
    }

    /// Times all candidates round-robin, dropping the slow ones between rounds. A candidate that fails with these inputs is
    /// dropped and noted, and remembered as one without samples, so that a warm build chooses alike; a lack of memory for all
    /// of them is not remembered.
    pub(super) fn measure(&mut self, layer: &str, region: &Region, site: &Site) -> Result<(), BuildError> {
        let Site { key, concrete, candidates, .. } = site;
        let backend = self.backend;
        let wrap = |source| BuildError::Backend { backend: backend.name().to_owned(), source };
        let blobs = self.blobs_of(key, region, candidates).map_err(wrap)?;
        let inputs = match random_inputs(concrete) {
            Ok(inputs) => inputs,
            Err(e) => {
                self.note(format!("\"{layer}\" is not timed: {e}"));
                return Ok(());
            }
        };
        let _turn = self.store.as_ref().and_then(|store| store.turn());
        let device = self.opened()?;
        let phase = self.progress.start(format!("timing \"{layer}\""), ROUNDS * blobs.len())?;
        let start = Instant::now();
        let mut samples: Vec<Vec<f64>> = vec![Vec::new(); candidates.len()];
        let mut alive: Vec<usize> = (0..candidates.len()).filter(|i| blobs.contains_key(i)).collect();
        let (mut out, mut short) = (Vec::new(), false);
        // The first round warms up; after two samples the slow ones are out.
        let early = self.config.samples.min(2);
        for (round, count) in [1, early, self.config.samples - early].into_iter().enumerate() {
            for &i in alive.iter().filter(|_| count > 0) {
                let Some(blob) = blobs.get(&i) else { continue };
                let request = TimeRequest {
                    graph: concrete,
                    tactic: &candidates[i],
                    blob,
                    inputs: &inputs,
                    samples: count,
                };
                return_freed(&inputs);
                match device.time(&request) {
                    Ok(t) if round > 0 => samples[i].extend(t),
                    Ok(_) => {}
                    // Another candidate may want less memory; random contents may be none that the layer takes.
                    Err(source) if of_this_run(&source) => {
                        let tactic = candidates[i].id();
                        self.note(format!("\"{layer}\" by {tactic} is not timed: {source}"));
                        out.push(i);
                        short |= matches!(source, BackendError::OutOfMemory { .. });
                    }
                    Err(source) => return Err(wrap(source)),
                }
                self.progress.step()?;
            }
            alive.retain(|i| !out.contains(i));
            out.iter().for_each(|&i| samples[i].clear());
            // The least of a few samples: one that was disturbed puts nobody out.
            let least = |i: &usize| samples[*i].iter().copied().fold(f64::INFINITY, f64::min);
            let best = alive.iter().map(least).fold(f64::INFINITY, f64::min);
            if round > 0 && best.is_finite() {
                alive.retain(|i| least(i) <= best * ELIMINATE);
            }
        }
        self.spent.timing += start.elapsed();
        self.progress.finish(phase);
        self.timed += candidates.len();
        if !(short && samples.iter().all(Vec::is_empty)) {
            self.remember(key, describe(concrete), candidates, samples);
        }
        Ok(())
    }

    /// The device, opened at the first timing.
    pub(super) fn opened(&mut self) -> Result<Arc<dyn Device>, BuildError> {
        if let Some(d) = &*self.device {
            return Ok(d.clone());
        }
        let backend = || self.backend.name().to_owned();
        let opened = self.backend.open(self.own_target);
        let opened = opened.map_err(|source| BuildError::Backend { backend: backend(), source })?;
        Ok(self.device.insert(opened).clone())
    }

    /// Adds what was measured of each candidate to the cache.
    pub(super) fn remember(
        &mut self,
        key: &str,
        region: String,
        candidates: &[Tactic],
        samples: Vec<Vec<f64>>,
    ) {
        let times = candidates
            .iter()
            .zip(samples)
            .map(|(t, samples)| (t.id(), Candidate { source_hash: t.source_hash.clone(), samples }));
        let entry = Entry {
            region,
            target: self.target.fingerprint(),
            device: self.target.device.clone(),
            driver: self.target.driver.clone(),
            candidates: times.collect::<BTreeMap<_, _>>(),
            pinned: None,
        };
        if let Some(store) = &mut self.store {
            store.add(key, entry.clone());
        }
        self.cache.insert(key, entry);
    }
}

/// Whether another way to run a layer, or the same with other elements, may work.
pub(super) fn of_this_run(e: &BackendError) -> bool {
    use BackendError::{Execution, InvalidArgument, OutOfMemory, Unsupported};
    matches!(e, Unsupported(_) | OutOfMemory { .. } | Execution { .. } | InvalidArgument(_))
}
