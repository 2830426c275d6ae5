//! Plug-in libraries that a plan holds, in the order of the header's list.

use crate::header::PlanHeader;
use crate::layout::Kind;
use crate::parts::Parts;
use crate::{PlanError, blobs};
use kiln_backend::wire::BlobList;
use kiln_ir::Bytes;
use std::collections::BTreeMap;

/// The section; none of a plan that holds no library.
pub(crate) fn write(header: &PlanHeader, all: &BTreeMap<String, Bytes>) -> Result<Option<Parts>, PlanError> {
    let mut list = Vec::new();
    for r in header.plugins.iter().filter(|r| r.embedded > 0) {
        let bytes = all.get(&r.digest).filter(|b| b.as_slice().len() as u64 == r.embedded);
        list.push(bytes.ok_or_else(|| PlanError::Library { digest: r.digest.clone() })?.clone());
    }
    Ok((!list.is_empty()).then(|| blobs::write(&BlobList::new(list))))
}

/// The libraries of a section, whose hashes are those of the header.
pub(crate) fn read(
    header: &PlanHeader,
    section: Option<&Bytes>,
) -> Result<BTreeMap<String, Bytes>, PlanError> {
    let named: Vec<_> = header.plugins.iter().filter(|r| r.embedded > 0).collect();
    let list = match section {
        Some(section) => blobs::read(section)?,
        None if named.is_empty() => return Ok(BTreeMap::new()),
        None => return Err(PlanError::MissingSection(Kind::Plugins.name())),
    };
    if list.blobs().len() != named.len() {
        let found = list.blobs().len();
        return Err(PlanError::Layout(format!("{found} plug-in libraries, the header has {}", named.len())));
    }
    let mut all = BTreeMap::new();
    for (r, bytes) in named.into_iter().zip(list.blobs()) {
        let same = bytes.as_slice().len() as u64 == r.embedded
            && blake3::hash(bytes.as_slice()).to_hex().as_str() == r.digest;
        if !same {
            return Err(PlanError::Hash { what: format!("the plug-in library \"{}\"", r.name) });
        }
        all.insert(r.digest.clone(), bytes.clone());
    }
    Ok(all)
}
