//! Inputs for readers: weight stores that need no weights, plan files whose hashes are put right, and ONNX models that are
//! changed ([`models`]) or cut down ([`cuts`]).

pub mod cuts;
pub mod models;

use kiln_ir::wire::WeightSource;
use kiln_ir::{Bytes, IrError};

/// A weight store in which the tensor at index i has i bytes, all one, up to 4 KiB: seeds and mutants of payloads find
/// tensors of the size that they want.
pub struct Sized;

impl WeightSource for Sized {
    fn get(&self, index: u64) -> Result<Bytes, IrError> {
        if index > 4096 {
            return Err(IrError::Payload(format!("weight {index} does not exist")));
        }
        Ok(Bytes::from(vec![1; index as usize]))
    }
}

/// Stores no bytes: a tensor's index is its size, from which [`Sized`] makes a tensor.
pub struct BySize;

impl kiln_ir::wire::WeightSink for BySize {
    fn put(&mut self, tensor: &kiln_ir::Tensor, _: Option<&str>) -> Result<u64, IrError> {
        Ok(tensor.bytes().len() as u64)
    }
}

const HEAD: usize = 128;
const ENTRY: usize = 64;
const CHUNK: usize = 1 << 20;
const WEIGHT_TABLE: u32 = 4;
const WEIGHTS: u32 = 5;

/// Writes the right hashes and the right size into a plan file whose bytes were changed, as far as its table
/// can be found. So readers after the hash check are reached.
pub fn repair(file: &mut [u8]) {
    let size = file.len() as u64;
    let Some(count) = file.get(12..16).and_then(|b| b.try_into().ok()).map(u32::from_le_bytes) else {
        return;
    };
    put(file, 16, &size.to_le_bytes());
    let count = (count as usize).min(64);
    let sections: Vec<(u32, usize, usize)> =
        (0..count).filter_map(|i| section(file, HEAD + ENTRY * i)).collect();
    repair_weights(file, &sections);
    for i in 0..count {
        let at = HEAD + ENTRY * i;
        let Some((kind, start, len)) = section(file, at) else { continue };
        let hash = match file.get(start..start.saturating_add(len)) {
            Some(data) if kind != WEIGHTS => *blake3::hash(data).as_bytes(),
            _ => [0; 32],
        };
        put(file, at + 32, &hash);
    }
    if let (Some(start), Some(table)) = (file.get(..48), file.get(HEAD..HEAD + ENTRY * count)) {
        let hash = *blake3::Hasher::new().update(start).update(table).finalize().as_bytes();
        put(file, 48, &hash);
    }
}

/// The hashes of chunks of weights, which end the weight table.
fn repair_weights(file: &mut [u8], sections: &[(u32, usize, usize)]) {
    let find = |kind| sections.iter().find(|s| s.0 == kind).map(|s| (s.1, s.2));
    let (Some((table, table_len)), Some((data, data_len))) = (find(WEIGHT_TABLE), find(WEIGHTS)) else {
        return;
    };
    let Some(weights) = data.checked_add(data_len).and_then(|end| file.get(data..end)) else { return };
    let hashes: Vec<u8> = weights.chunks(CHUNK).flat_map(|c| *blake3::hash(c).as_bytes()).collect();
    if let Some(at) = table.checked_add(table_len).and_then(|end| end.checked_sub(hashes.len())) {
        put(file, at.max(table), &hashes);
    }
}

fn section(file: &[u8], at: usize) -> Option<(u32, usize, usize)> {
    let kind = u32::from_le_bytes(file.get(at..at + 4)?.try_into().ok()?);
    let number = |at: usize| Some(u64::from_le_bytes(file.get(at..at + 8)?.try_into().ok()?));
    Some((kind, usize::try_from(number(at + 8)?).ok()?, usize::try_from(number(at + 16)?).ok()?))
}

fn put(file: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(to) = file.get_mut(at..at.saturating_add(bytes.len())) {
        to.copy_from_slice(bytes);
    }
}
