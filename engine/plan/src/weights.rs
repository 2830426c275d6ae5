//! Weights of a plan: their table, and bytes that are checked chunk by chunk when they are taken.

use crate::layout::{ALIGN, hash_at, u64_at};
use crate::parts::Parts;
use crate::{PlanError, shared};
use kiln_ir::wire::{WeightList, WeightSource};
use kiln_ir::{Bytes, DType, IrError, Tensor};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Offset of weights of which all bytes are zero: they take no room in the file.
const ZEROS: u64 = u64::MAX;

/// Bytes hashed together.
pub(crate) const CHUNK: usize = 1 << 20;

/// The weight table and the weights of a list, and whether any are zeros, which are left out.
pub(crate) fn write(list: &WeightList) -> (Parts, Parts, bool) {
    let (mut table, mut zeros) = (Vec::new(), false);
    let mut data = Parts::default();
    table.extend((list.tensors().len() as u64).to_le_bytes());
    for t in list.tensors() {
        let zero = t.bytes().iter().all(|&b| b == 0);
        zeros |= zero;
        if !zero {
            data.align(ALIGN);
        }
        table.extend(if zero { ZEROS } else { data.len() }.to_le_bytes());
        table.extend((t.bytes().len() as u64).to_le_bytes());
        if !zero {
            data.push(t.shared_bytes());
        }
    }
    data.chunk_hashes(CHUNK).iter().for_each(|h| table.extend(h));
    let mut parts = Parts::default();
    parts.push(table);
    (parts, data, zeros)
}

/// The weight table of a file.
pub(crate) struct Table {
    bytes: Bytes,
    count: u64,
}

impl Table {
    /// Checks the table's size against the number of weights and of chunks of `size` bytes of data, and that all weights
    /// are inside the data.
    pub(crate) fn new(bytes: Bytes, size: usize) -> Result<Table, PlanError> {
        let bad = |m: String| PlanError::Layout(format!("weight table: {m}"));
        let t = bytes.as_slice();
        let (count, len) = (u64_at(t, 0), t.len());
        let chunks = size.div_ceil(CHUNK);
        let wanted = count.checked_mul(16).and_then(|n| n.checked_add(8 + 32 * chunks as u64));
        if len < 8 || wanted != Some(len as u64) {
            return Err(bad(format!("{len} bytes for {count} weights and {chunks} chunks")));
        }
        let table = Table { bytes, count };
        for i in 0..count {
            let (start, len) = table.entry(i);
            if start == ZEROS {
                continue;
            }
            if start % ALIGN != 0 || start.checked_add(len).is_none_or(|end| end > size as u64) {
                return Err(bad(format!("weight {i} is {len} bytes at {start}, of {size}")));
            }
        }
        Ok(table)
    }

    fn entry(&self, i: u64) -> (u64, u64) {
        let at = 8 + 16 * i as usize;
        (u64_at(self.bytes.as_slice(), at), u64_at(self.bytes.as_slice(), at + 8))
    }

    /// The place of a weight, which is inside of the data.
    pub(crate) fn place(&self, index: u64) -> Result<Place, IrError> {
        if index >= self.count {
            let count = self.count;
            return Err(refuse(format!("weight {index} does not exist; the plan has {count}")));
        }
        let (start, len) = self.entry(index);
        Ok(if start == ZEROS { Place::Zeros(len) } else { Place::At(start as usize, len as usize) })
    }

    /// Checks the hash of a chunk.
    pub(crate) fn check_chunk(&self, i: usize, chunk: &[u8]) -> Result<(), PlanError> {
        let at = 8 + 16 * self.count as usize + 32 * i;
        match *blake3::hash(chunk).as_bytes() == hash_at(self.bytes.as_slice(), at) {
            true => Ok(()),
            false => Err(PlanError::Hash { what: format!("chunk {i} of the weights") }),
        }
    }

    /// Checks that the table lists weights of the sizes of these.
    pub(crate) fn check_lengths(&self, list: &WeightList) -> Result<(), PlanError> {
        let wanted: Vec<u64> = list.tensors().iter().map(|t| t.bytes().len() as u64).collect();
        let found: Vec<u64> = (0..self.count).map(|i| self.entry(i).1).collect();
        match wanted == found {
            true => Ok(()),
            false => Err(PlanError::Layout("weight table: other sizes than those of the weights".into())),
        }
    }
}

/// Place of a weight: so many zeros, or an offset and a length.
pub(crate) enum Place {
    Zeros(u64),
    At(usize, usize),
}

pub(crate) fn refuse(message: String) -> IrError {
    IrError::Payload(message)
}

/// Bytes of zeros.
pub(crate) fn zeros(len: u64) -> Result<Bytes, IrError> {
    let len = usize::try_from(len).map_err(|_| refuse(format!("a weight of {len} bytes")))?;
    Ok(Tensor::zeros(DType::U8, &[len]).map_err(|e| refuse(e.to_string()))?.shared_bytes())
}

/// The weights of a file that is in memory.
pub(crate) struct Store {
    table: Table,
    data: Bytes,
    known: Option<[u8; 32]>,
    checked: Vec<AtomicBool>,
    zeros: Mutex<Bytes>,
}

impl Store {
    /// Checks the table against the size of the data, and reads nothing of it.
    /// `known` is the hash of the table, by which plans of one process find weights of each other; without it they are not shared.
    pub(crate) fn new(table: Bytes, data: Bytes, known: Option<[u8; 32]>) -> Result<Store, PlanError> {
        let size = data.as_slice().len();
        let checked = (0..size.div_ceil(CHUNK)).map(|_| AtomicBool::new(false)).collect();
        let zeros = Mutex::new(Bytes::from(Vec::new()));
        shared::forget_dropped();
        Ok(Store { table: Table::new(table, size)?, data, known, checked, zeros })
    }

    /// Zero bytes, which all weights of zeros share.
    fn zeros(&self, len: u64) -> Result<Bytes, IrError> {
        let mut shared = self.zeros.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slice) = usize::try_from(len).ok().and_then(|len| shared.slice(0, len)) {
            return Ok(slice);
        }
        *shared = zeros(len)?;
        Ok(shared.clone())
    }

    /// Checks the chunks that hold these bytes, each once.
    fn check(&self, start: usize, len: usize) -> Result<(), PlanError> {
        if len == 0 {
            return Ok(());
        }
        for i in start / CHUNK..=(start + len - 1) / CHUNK {
            let Some(done) = self.checked.get(i).filter(|c| !c.load(Ordering::Acquire)) else { continue };
            let data = self.data.as_slice();
            let chunk = data.get(i * CHUNK..data.len().min((i + 1) * CHUNK)).unwrap_or_default();
            self.table.check_chunk(i, chunk)?;
            done.store(true, Ordering::Release);
        }
        Ok(())
    }
}

impl WeightSource for Store {
    fn get(&self, index: u64) -> Result<Bytes, IrError> {
        let (start, len) = match self.table.place(index)? {
            Place::Zeros(len) => return self.zeros(len),
            Place::At(start, len) => (start, len),
        };
        self.check(start, len).map_err(|e| refuse(e.to_string()))?;
        let own = self.data.slice(start, len);
        let own = own.ok_or_else(|| refuse(format!("weight {index} lies outside the plan")))?;
        let Some(known) = self.known else { return Ok(own) };
        Ok(shared::find(&(known, index), len).unwrap_or_else(|| {
            shared::share((known, index), &own);
            own
        }))
    }
}
