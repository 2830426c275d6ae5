//! The weights of a program on the device.

use crate::device::{Buffer, Device, Queue};
use crate::shared::{Contents, contents};
use kiln_backend::{BackendError, Program, StreamPlan};
use kiln_ir::ValueId;
use std::collections::HashMap;
use std::sync::Arc;

/// Weights of more bytes have buffers of their own, so that each is shared. Smaller ones are packed.
const PACKED: usize = 64 << 10;

/// Memory that the weights of a program are loaded into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residency {
    /// Memory that programs of equal weights on the device share.
    Shared,
    /// Memory of the program's own, for programs that are only timed.
    Own,
    /// Shared memory, of so many bytes at most. Further weights are streamed.
    Within(u64),
}

impl Residency {
    /// The residency of bodies of control flow, all of whose weights stay on the device.
    pub(crate) fn of_bodies(self) -> Residency {
        match self {
            Residency::Within(_) => Residency::Shared,
            other => other,
        }
    }
}

/// The weights of a program on the device.
pub struct Weights<D: Device> {
    ranges: HashMap<ValueId, D::Range>,
    _buffers: Vec<Arc<D::Buffer>>,
    /// Weights that are copied before the steps that read them, where not all may stay.
    pub streamed: Option<StreamPlan>,
    /// Such weights where the device reads them while kernels run: all of them, or none.
    pub copies: HashMap<ValueId, Arc<D::HostCopy>>,
}

/// A buffer to be filled: its length, the bytes at offsets, and the weights that these are.
#[derive(Default)]
struct Pack<'a> {
    size: u64,
    parts: Vec<(u64, &'a [u8])>,
    weights: Vec<ValueId>,
}

impl<'a> Pack<'a> {
    fn add(&mut self, v: ValueId, bytes: &'a [u8], size: u64) {
        self.parts.push((self.size, bytes));
        self.weights.push(v);
        self.size += size;
    }
}

/// The buffers for these weights.
fn packs<'a>(
    weights: impl Iterator<Item = (ValueId, &'a [u8])>,
    alignment: u64,
    largest: u64,
) -> Vec<Pack<'a>> {
    let (mut all, mut small) = (Vec::new(), Pack::default());
    for (v, bytes) in weights {
        let size = (bytes.len() as u64).max(16).next_multiple_of(alignment);
        if bytes.len() > PACKED {
            let mut alone = Pack::default();
            alone.add(v, bytes, size);
            all.push(alone);
            continue;
        }
        if small.size + size > largest {
            all.push(std::mem::take(&mut small));
        }
        small.add(v, bytes, size);
    }
    all.extend(Some(small).filter(|pack| pack.size > 0));
    all
}

impl<D: Device> Weights<D> {
    /// Uploads those that are not on the device yet, within a budget where there is one.
    pub fn upload(
        device: &D,
        queue: &mut D::Queue,
        program: &Program,
        residency: Residency,
    ) -> Result<Weights<D>, BackendError> {
        let alignment = device.target().memory.alignment.max(1);
        let streamed = match residency {
            Residency::Within(bytes) => StreamPlan::new(program, alignment, bytes)?,
            Residency::Shared | Residency::Own => None,
        };
        let stays = |v: &ValueId| streamed.as_ref().is_none_or(|plan| !plan.slots.contains_key(v));
        let weights = program.weights().filter(|(v, _)| stays(v)).map(|(v, t)| (v, t.bytes()));
        let packs = packs(weights, alignment, D::WEIGHTS_CHUNK);
        let buffers = match residency {
            Residency::Own => filled::<D>(queue, &packs.iter().collect::<Vec<_>>())?,
            Residency::Shared | Residency::Within(_) => shared(device, queue, &packs)?,
        };
        let mut copies = HashMap::new();
        for (v, t) in program.weights().filter(|(v, _)| !stays(v)) {
            let Some(copy) = device.host_copy(queue, t.bytes())? else { break };
            copies.insert(v, Arc::new(copy));
        }
        let mut ranges = HashMap::new();
        for (pack, buffer) in packs.iter().zip(&buffers) {
            let parts = pack.parts.iter().map(|(offset, bytes)| buffer.range(*offset, bytes.len() as u64));
            ranges.extend(pack.weights.iter().copied().zip(parts));
        }
        Ok(Weights { ranges, _buffers: buffers, streamed, copies })
    }

    /// The memory of a weight that stays on the device.
    pub fn range(&self, v: ValueId) -> Option<&D::Range> {
        self.ranges.get(&v)
    }
}

/// New buffers that hold the packs, once the uploads are done.
fn filled<D: Device>(queue: &mut D::Queue, packs: &[&Pack<'_>]) -> Result<Vec<Arc<D::Buffer>>, BackendError> {
    let (mut buffers, mut stored) = (Vec::with_capacity(packs.len()), Vec::new());
    for pack in packs {
        let buffer = queue.allocate("weights", pack.size)?;
        let parts = pack.parts.iter();
        let parts = parts.map(|(offset, bytes)| (buffer.range(*offset, bytes.len() as u64), *bytes));
        stored.push(parts.collect::<Vec<_>>());
        buffers.push(Arc::new(buffer));
    }
    queue.store_all(&stored)?;
    queue.wait()?;
    Ok(buffers)
}

/// Buffers that hold the packs: those of equal contents that are on the device, and new ones.
fn shared<D: Device>(
    device: &D,
    queue: &mut D::Queue,
    packs: &[Pack<'_>],
) -> Result<Vec<Arc<D::Buffer>>, BackendError> {
    let keys = contents(&packs.iter().map(|p| (p.size, p.parts.clone())).collect::<Vec<_>>());
    let all = device.shared_weights();
    all.sweep();
    let mut known: HashMap<&Contents, Arc<D::Buffer>> =
        keys.iter().filter_map(|key| Some((key, all.get(key)?))).collect();
    let mut missing: Vec<(&Contents, &Pack<'_>)> = Vec::new();
    for (key, pack) in keys.iter().zip(packs) {
        if !known.contains_key(key) && missing.iter().all(|(other, _)| *other != key) {
            missing.push((key, pack));
        }
    }
    let new = filled::<D>(queue, &missing.iter().map(|(_, pack)| *pack).collect::<Vec<_>>())?;
    // Others may use a buffer from now on: its contents are there.
    let new = missing.iter().zip(new).map(|((key, _), buffer)| (*key, all.add(**key, buffer)));
    known.extend(new);
    let lost = || BackendError::Internal("a pack of weights has no buffer".into());
    keys.iter().map(|key| known.get(key).cloned().ok_or_else(lost)).collect()
}
