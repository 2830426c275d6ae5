//! Weights of a file, read one by one: each has memory of its own, and a backend that keeps it in another form can let go of it.

use crate::PlanError;
use crate::shared;
use crate::weights::{CHUNK, Place, Table, refuse};
use kiln_ir::wire::WeightSource;
use kiln_ir::{Bytes, IrError};
use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

/// The weights of a file. Bytes are hashed as they are read.
pub(crate) struct FileWeights<'a> {
    file: &'a File,
    table: Table,
    /// Hash of the table, by which plans of one process find weights of each other.
    known: [u8; 32],
    /// Offset of the weights in the file, and their bytes.
    start: u64,
    size: usize,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    /// The chunk that was read last, and its number.
    chunk: Vec<u8>,
    number: Option<usize>,
    zeros: Option<Bytes>,
}

impl<'a> FileWeights<'a> {
    /// Weights at an offset of a file, `size` bytes. `known` is the hash of their table.
    pub(crate) fn new(
        file: &'a File,
        (table, known): (Bytes, [u8; 32]),
        (start, size): (u64, usize),
    ) -> Result<FileWeights<'a>, PlanError> {
        let table = Table::new(table, size)?;
        shared::forget_dropped();
        Ok(FileWeights { file, table, known, start, size, state: RefCell::default() })
    }

    /// Fills a part of the weights, from an offset on.
    fn read(&self, start: usize, to: &mut [u8]) -> Result<(), PlanError> {
        let mut state = self.state.borrow_mut();
        let mut at = start;
        let mut rest = to;
        while !rest.is_empty() {
            let number = at / CHUNK;
            let chunk = number * CHUNK..self.size.min((number + 1) * CHUNK);
            let len = rest.len().min(chunk.end - at);
            let (now, later) = rest.split_at_mut(len);
            if len == chunk.len() {
                self.fill(chunk.start, now)?;
                self.table.check_chunk(number, now)?;
            } else {
                if state.number != Some(number) {
                    state.number = None;
                    state.chunk.resize(chunk.len(), 0);
                    self.fill(chunk.start, &mut state.chunk)?;
                    self.table.check_chunk(number, &state.chunk)?;
                    state.number = Some(number);
                }
                now.copy_from_slice(&state.chunk[at - chunk.start..][..len]);
            }
            (at, rest) = (at + len, later);
        }
        Ok(())
    }

    fn fill(&self, start: usize, to: &mut [u8]) -> Result<(), PlanError> {
        let mut read = |mut file: &File| -> io::Result<()> {
            file.seek(SeekFrom::Start(self.start + start as u64))?;
            file.read_exact(to)
        };
        read(self.file).map_err(|e| PlanError::Layout(format!("the weights cannot be read: {e}")))
    }

    fn zeros(&self, len: u64) -> Result<Bytes, IrError> {
        let mut state = self.state.borrow_mut();
        let shared = state.zeros.take().filter(|z| z.len() as u64 >= len);
        let shared = match shared {
            Some(z) => z,
            None => crate::weights::zeros(len)?,
        };
        let all = shared.slice(0, len as usize).ok_or_else(|| refuse(format!("a weight of {len} bytes")));
        state.zeros = Some(shared);
        all
    }
}

impl WeightSource for FileWeights<'_> {
    fn get(&self, index: u64) -> Result<Bytes, IrError> {
        let (start, len) = match self.table.place(index)? {
            Place::Zeros(len) => return self.zeros(len),
            Place::At(start, len) => (start, len),
        };
        if let Some(known) = shared::find(&(self.known, index), len) {
            return Ok(known);
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).map_err(|_| refuse(format!("no memory for a weight of {len} bytes")))?;
        bytes.resize(len, 0);
        self.read(start, &mut bytes).map_err(|e| refuse(e.to_string()))?;
        let bytes = Bytes::from(bytes);
        shared::share((self.known, index), &bytes);
        Ok(bytes)
    }
}
