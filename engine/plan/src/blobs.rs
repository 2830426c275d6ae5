//! Compiled kernels of a plan, by index.

use crate::PlanError;
use crate::layout::u64_at;
use crate::parts::Parts;
use kiln_backend::wire::BlobList;
use kiln_ir::Bytes;

/// A count, offset and length of each, and the bytes. Offsets count from the section's start.
pub(crate) fn write(list: &BlobList) -> Parts {
    let mut table = Vec::new();
    table.extend((list.blobs().len() as u64).to_le_bytes());
    let mut at = 8 + 16 * list.blobs().len() as u64;
    for b in list.blobs() {
        let len = b.as_slice().len() as u64;
        table.extend(at.to_le_bytes());
        table.extend(len.to_le_bytes());
        at += len;
    }
    let mut parts = Parts::default();
    parts.push(table);
    list.blobs().iter().for_each(|b| parts.push(b.clone()));
    parts
}

/// The blobs of a section.
pub(crate) fn read(section: &Bytes) -> Result<BlobList, PlanError> {
    let b = section.as_slice();
    let bad = |m: String| PlanError::Layout(format!("blobs: {m}"));
    let count = u64_at(b, 0);
    let fits = count.checked_mul(16).and_then(|n| n.checked_add(8)).is_some_and(|n| n <= b.len() as u64);
    if b.len() < 8 || !fits {
        return Err(bad(format!("{count} blobs in {} bytes", b.len())));
    }
    let mut blobs = Vec::new();
    for i in 0..count as usize {
        let (start, len) = (u64_at(b, 8 + 16 * i), u64_at(b, 16 + 16 * i));
        let window = usize::try_from(start).ok().zip(usize::try_from(len).ok());
        let blob = window.and_then(|(s, n)| section.slice(s, n));
        blobs.push(blob.ok_or_else(|| bad(format!("blob {i} is {len} bytes at {start}, of {}", b.len())))?);
    }
    Ok(BlobList::new(blobs))
}
