//! Tensor data in files beside the model.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use super::map::Access;
use super::path;
use super::path::Folders;
use crate::error::{ExternalFault, OnnxError};
use crate::proto::{StringStringEntryProto, TensorProto};

/// Access to the external data of one model. Each file is read or mapped once.
#[derive(Debug)]
pub(crate) struct External {
    folders: Option<Folders>,
    access: Access,
    maps: Mutex<HashMap<PathBuf, Bytes>>,
}

impl External {
    /// Access to the files of a model's folders, or to none.
    pub fn new(folders: Option<Folders>, access: Access) -> Self {
        Self { folders, access, maps: Mutex::default() }
    }

    /// The bytes that the external-data entries of a tensor name, a slice of the file. Without a length it is
    /// the rest of the file; that the size fits the shape is for the caller to check.
    pub fn read(&self, tensor: &TensorProto, name: &str) -> Result<Bytes, OnnxError> {
        let entries = &tensor.external_data;
        let location = find(entries, "location").unwrap_or_default();
        self.slice(entries, location).map_err(|fault| OnnxError::External {
            tensor: name.to_owned(),
            location: location.to_owned(),
            fault,
        })
    }

    fn slice(&self, entries: &[StringStringEntryProto], location: &str) -> Result<Bytes, ExternalFault> {
        let offset = number(entries, "offset")?.unwrap_or(0);
        let length = number(entries, "length")?;
        let file = self.file(location)?;
        let size = file.len() as u64;
        let length = length.unwrap_or(size.saturating_sub(offset));
        match offset.checked_add(length) {
            Some(end) if end <= size => Ok(file.slice(offset as usize..end as usize)),
            _ => Err(ExternalFault::PastEnd { offset, length, size }),
        }
    }

    fn file(&self, location: &str) -> Result<Bytes, ExternalFault> {
        if location.is_empty() {
            return Err(ExternalFault::NoLocation);
        }
        let folders = self.folders.as_ref().ok_or(ExternalFault::NoFolder)?;
        let path = path::confine(folders, location)?;
        let mut maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = maps.get(&path) {
            return Ok(bytes.clone());
        }
        let bytes = self.access.read(&path).map_err(ExternalFault::Io)?;
        maps.insert(path, bytes.clone());
        Ok(bytes)
    }
}

fn find<'a>(entries: &'a [StringStringEntryProto], key: &str) -> Option<&'a str> {
    entries.iter().find(|entry| entry.key == key).map(|entry| entry.value.as_str())
}

fn number(entries: &[StringStringEntryProto], key: &'static str) -> Result<Option<u64>, ExternalFault> {
    let Some(text) = find(entries, key) else { return Ok(None) };
    text.parse().map(Some).map_err(|_| ExternalFault::BadNumber { key, found: text.to_owned() })
}
