//! Whole plans: writing and reading.

use crate::header::{PlanHeader, Requirement, Verbosity};
use crate::inspect::LayerTable;
use crate::io::io_tensors;
use crate::layout::{self, ENTRY, Entry, HEAD, Head, Kind, Table};
use crate::limit::DeviceLimit;
use crate::parts::Parts;
use crate::plugins::requirements;
use crate::profile::Profile;
use crate::weight_file::FileWeights;
use crate::weights::{CHUNK, Store};
use crate::{PlanError, blobs, libraries, verify, weights};
use kiln_backend::wire::BlobList;
use kiln_backend::{Program, Target};
use kiln_files::{Content, Replacement};
use kiln_ir::wire::{WeightList, WeightSource};
use kiln_ir::{Bytes, Graph};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

/// A built network with all that is needed to run it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Header: target, versions and inputs and outputs.
    pub header: PlanHeader,
    /// Steps and memory plan.
    pub program: Program,
    /// Table of layers, in the detail that was chosen at the build.
    pub layers: LayerTable,
    /// The network before passes, so that the builder can build it again for another device.
    pub network: Option<Graph>,
    /// Plug-in libraries that the plan holds, by their hash.
    pub libraries: BTreeMap<String, Bytes>,
}

impl Plan {
    /// A plan of a program, with layers told by name.
    pub fn new(program: Program, profiles: Vec<Profile>, target: Target) -> Plan {
        let weight_is_named = |g: &Graph| {
            g.value_ids().any(|v| g.weight(v).is_some_and(|w| w.name.is_some() || w.recipe.is_some()))
        };
        let header = PlanHeader {
            name: program.graph.name.clone(),
            target: target.of_any_device(),
            io: io_tensors(&program),
            profiles,
            plugins: requirements(&program),
            verbosity: Verbosity::default(),
            refittable: weight_is_named(&program.graph),
            identical: false,
            version_compatible: false,
            absent: Vec::new(),
            limit: DeviceLimit::default(),
            context_memory: program.memory.arena,
        };
        let layers = LayerTable::of(&program, header.verbosity);
        Plan { header, program, layers, network: None, libraries: BTreeMap::new() }
    }

    /// Sets how much the plan records of its layers.
    pub fn with_verbosity(mut self, verbosity: Verbosity) -> Plan {
        self.header.verbosity = verbosity;
        self.layers = LayerTable::of(&self.program, verbosity);
        self
    }

    /// Keeps the network before passes in the plan.
    pub fn with_network(mut self, network: Graph) -> Plan {
        self.network = Some(network);
        self
    }

    /// Puts a plug-in library into the plan: one of those that its layers come from.
    ///
    /// # Errors
    /// [`PlanError::Library`] if the plan needs no library with the hash of these bytes.
    pub fn with_library(mut self, library: impl Into<Bytes>) -> Result<Plan, PlanError> {
        let bytes = library.into();
        let digest = blake3::hash(bytes.as_slice()).to_hex().to_string();
        let of = self.header.plugins.iter_mut().filter(|r| r.digest == digest);
        let count = of.map(|r| r.embedded = bytes.as_slice().len() as u64).count();
        if count == 0 || bytes.as_slice().is_empty() {
            return Err(PlanError::Library { digest });
        }
        self.libraries.insert(digest, bytes);
        Ok(self)
    }

    /// Records the plug-in libraries that the plan needs.
    pub fn with_plugins(mut self, mut plugins: Vec<Requirement>) -> Plan {
        plugins.sort();
        plugins.dedup();
        self.header.plugins = plugins;
        self
    }

    /// The file's bytes. Equal plans give equal bytes.
    pub fn write(&self) -> Result<Vec<u8>, PlanError> {
        Ok(self.parts()?.0.to_vec())
    }

    /// Replaces a file by this plan, as a whole or not at all: see [`Replacement`]. A file that is there must be an engine.
    pub fn write_file(&self, path: &Path) -> Result<(), PlanError> {
        let new = Plan::replacement(path)?;
        self.write_into(new)
    }

    /// Checks that an engine can be written to a path, and reserves it until [`Plan::write_into`]: asked before a build, so
    /// that a long one does not fail at its end.
    pub fn replacement(path: &Path) -> Result<Replacement, PlanError> {
        let engine = Content { name: "an engine", magic: layout::MAGIC };
        Replacement::create(path, Some(engine)).map_err(|e| io_error(path, e))
    }

    /// Writes the plan to its reserved place, once it was read back and verified: a plan that cannot be loaded replaces
    /// nothing.
    pub fn write_into(&self, mut new: Replacement) -> Result<(), PlanError> {
        let path = new.target().to_owned();
        let (parts, weights) = self.parts()?;
        parts.write_to(&mut new).map_err(|e| io_error(&path, e))?;
        drop(parts);
        read_back(new.temporary(), &weights).map_err(|e| PlanError::Unloadable(Box::new(e)))?;
        new.commit().map_err(|e| io_error(&path, e))
    }

    /// The file in pieces, and the weights that they share.
    fn parts(&self) -> Result<(Parts, WeightList), PlanError> {
        let (mut weights, mut kernels) = (WeightList::default(), BlobList::default());
        let program =
            self.program.to_cbor(&mut weights, &mut kernels).map_err(|e| payload(Kind::Program, e))?;
        let network = match &self.network {
            Some(g) => Some(g.to_cbor(&mut weights).map_err(|e| payload(Kind::Network, e))?),
            None => None,
        };
        let (table, data, zeros) = weights::write(&weights);
        let mut sections = vec![
            (Kind::Header, one(self.header.to_cbor()?)),
            (Kind::Program, one(program)),
            (Kind::Blobs, blobs::write(&kernels)),
            (Kind::WeightTable, table),
            (Kind::Layers, one(self.layers.to_json().into_bytes())),
        ];
        sections.extend(network.map(|n| (Kind::Network, one(n))));
        sections.extend(libraries::write(&self.header, &self.libraries)?.map(|l| (Kind::Plugins, l)));
        sections.push((Kind::Weights, data));
        Ok((layout::assemble(sections, zeros), weights))
    }

    /// Reads a plan and verifies its program. Weights share the memory of `bytes`, or of a plan of this process that has the same.
    pub fn read(bytes: impl Into<Bytes>) -> Result<Plan, PlanError> {
        Plan::read_with(Image { bytes: bytes.into() }, true)
    }

    /// Reads a plan whose weights may be shared with other plans.
    fn read_with(file: Image, share: bool) -> Result<Plan, PlanError> {
        let (_, entries) = layout::parse(file.bytes.as_slice())?;
        let table = file.section(&entries, Kind::WeightTable)?;
        let weights = file.unchecked(&entries, Kind::Weights)?;
        let known = find(&entries, Kind::WeightTable)?.hash;
        let store = Store::new(table, weights, share.then_some(known))?;
        Plan::decode(&entries, &|kind| file.section(&entries, kind), &store)
    }

    /// Decodes the sections, whose hashes `section` checks, and verifies the program.
    fn decode(
        entries: &[Entry],
        section: &dyn Fn(Kind) -> Result<Bytes, PlanError>,
        weights: &dyn WeightSource,
    ) -> Result<Plan, PlanError> {
        let header = PlanHeader::from_cbor(section(Kind::Header)?.as_slice())?;
        let kernels = blobs::read(&section(Kind::Blobs)?)?;
        let program = section(Kind::Program)?;
        let program = Program::from_cbor(program.as_slice(), weights, &kernels)
            .map_err(|e| payload(Kind::Program, e))?;
        verify(&program, &header.target.memory)?;
        if io_tensors(&program) != header.io {
            return Err(PlanError::Program("its inputs and outputs are not those of the header".into()));
        }
        let layers = section(Kind::Layers)?;
        let layers = LayerTable::from_json(layers.as_slice()).map_err(|e| payload(Kind::Layers, e))?;
        let network = match entries.iter().any(|e| e.kind == Kind::Network) {
            true => {
                let n = section(Kind::Network)?;
                Some(Graph::from_cbor(n.as_slice(), weights).map_err(|e| payload(Kind::Network, e))?)
            }
            false => None,
        };
        let held = entries.iter().any(|e| e.kind == Kind::Plugins);
        let held = held.then(|| section(Kind::Plugins)).transpose()?;
        let libraries = libraries::read(&header, held.as_ref())?;
        Ok(Plan { header, program, layers, network, libraries })
    }

    /// Reads a file into memory and verifies its program. What becomes of the file afterwards does not matter. Deploy
    /// new engines by renaming them to their place, as [`Plan::write_file`] does, so that nobody reads half of one. Weights that
    /// another plan of this process holds are not read again: all plans and engines of one file share them.
    pub fn open(path: &Path) -> Result<Plan, PlanError> {
        let mut file = kiln_files::open_regular(path).map_err(|e| io_error(path, e))?;
        let size = file.metadata().map_err(|e| io_error(path, e))?.len();
        kiln_files::check_size(size, kiln_ir::budget::left()).map_err(|e| io_error(path, e))?;
        let Table { entries, gaps } = table_of(&mut file, path)?;
        check_gaps(&file, gaps, path)?;
        let section = |kind| section_of(&file, &entries, kind, path);
        let data = find(&entries, Kind::Weights)?;
        let table = (section(Kind::WeightTable)?, find(&entries, Kind::WeightTable)?.hash);
        let weights = FileWeights::new(&file, table, (data.start as u64, data.len))?;
        Plan::decode(&entries, &section, &weights)
    }

    /// Maps a file and reads it: weights stay in the file until they are used, and processes share their memory.
    ///
    /// # Safety
    /// The file must be neither truncated nor written in place while the plan, or anything that was made from it (engines,
    /// contexts, tensors), lives: a truncated file ends the process with SIGBUS, and an overwritten one changes weights
    /// whose hashes were checked. Replacing the file by a rename is fine.
    pub unsafe fn open_mapped(path: &Path) -> Result<Plan, PlanError> {
        let file = kiln_files::open_regular(path).map_err(|e| io_error(path, e))?;
        if file.metadata().map_err(|e| io_error(path, e))?.len() == 0 {
            return Err(PlanError::Magic { found: "nothing".into() });
        }
        // SAFETY: the map is read only, and nobody changes the file, as the caller says.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(|e| io_error(path, e))?;
        let len = map.len();
        let bytes = Bytes::window(Arc::new(map), 0, len);
        let bytes =
            bytes.ok_or_else(|| PlanError::Layout("the map has another size than the file".into()))?;
        // Nobody vouches for the file to those who open other plans.
        Plan::read_with(Image { bytes }, false)
    }
}

impl PlanHeader {
    /// Reads the header of a file and nothing else.
    pub fn peek(path: &Path) -> Result<PlanHeader, PlanError> {
        let fail = |e| io_error(path, e);
        let mut file = kiln_files::open_regular(path).map_err(fail)?;
        let table = table_of(&mut file, path)?;
        let entry = find(&table.entries, Kind::Header)?;
        let section = read_part(&file, entry.start as u64, entry.len as u64).map_err(fail)?;
        entry.check(&section)?;
        PlanHeader::from_cbor(&section)
    }
}

/// The section table of a file that is as long as its head says.
fn table_of(file: &mut File, path: &Path) -> Result<Table, PlanError> {
    let fail = |e| io_error(path, e);
    let size = file.metadata().map_err(fail)?.len();
    let mut start = read_part(file, 0, HEAD as u64).map_err(fail)?;
    let head = Head::parse(&start)?;
    if size > head.size {
        return Err(PlanError::Layout(format!("{} bytes follow the plan's end", size - head.size)));
    }
    if head.size != size {
        return Err(PlanError::Truncated { what: "the file".into(), wanted: head.size, found: size });
    }
    start.extend(read_part(file, HEAD as u64, (ENTRY * head.sections) as u64).map_err(fail)?);
    head.table(&start)
}

/// At most `len` bytes from `start` on.
fn read_part(mut file: &File, start: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut part = Vec::new();
    file.seek(SeekFrom::Start(start))?;
    file.take(len).read_to_end(&mut part)?;
    Ok(part)
}

/// Checks that a file which was written just now can be loaded, in little memory: weights are hashed in pieces, and the
/// program is decoded with those that were written, which are the same.
fn read_back(path: &Path, written: &WeightList) -> Result<(), PlanError> {
    let fail = |e| io_error(path, e);
    let mut file = kiln_files::open_regular(path).map_err(fail)?;
    let Table { entries, gaps } = table_of(&mut file, path)?;
    check_gaps(&file, gaps, path)?;
    let section = |kind| section_of(&file, &entries, kind, path);
    let data = find(&entries, Kind::Weights)?;
    let table = weights::Table::new(section(Kind::WeightTable)?, data.len)?;
    for (i, at) in (0..data.len).step_by(CHUNK).enumerate() {
        let len = CHUNK.min(data.len - at) as u64;
        table.check_chunk(i, &read_part(&file, (data.start + at) as u64, len).map_err(fail)?)?;
    }
    table.check_lengths(written)?;
    Plan::decode(&entries, &section, written).map(drop)
}

/// Checks that the space between the sections of a file is zero.
fn check_gaps(file: &File, gaps: Vec<(u64, u64)>, path: &Path) -> Result<(), PlanError> {
    gaps.into_iter().try_for_each(|(start, end)| {
        let bytes = read_part(file, start, end - start).map_err(|e| io_error(path, e))?;
        layout::check_gap((start, end), &bytes)
    })
}

/// A section of a file whose hash is right.
fn section_of(file: &File, entries: &[Entry], kind: Kind, path: &Path) -> Result<Bytes, PlanError> {
    let entry = find(entries, kind)?;
    let bytes = read_part(file, entry.start as u64, entry.len as u64).map_err(|e| io_error(path, e))?;
    entry.check(&bytes)?;
    Ok(bytes.into())
}

/// A file in memory.
struct Image {
    bytes: Bytes,
}

impl Image {
    fn unchecked(&self, entries: &[Entry], kind: Kind) -> Result<Bytes, PlanError> {
        let e = find(entries, kind)?;
        let cut = || PlanError::Truncated {
            what: format!("the {} section", kind.name()),
            wanted: (e.start + e.len) as u64,
            found: self.bytes.as_slice().len() as u64,
        };
        self.bytes.slice(e.start, e.len).ok_or_else(cut)
    }

    /// A section whose hash is right.
    fn section(&self, entries: &[Entry], kind: Kind) -> Result<Bytes, PlanError> {
        let data = self.unchecked(entries, kind)?;
        find(entries, kind)?.check(data.as_slice())?;
        Ok(data)
    }
}

fn find(entries: &[Entry], kind: Kind) -> Result<&Entry, PlanError> {
    entries.iter().find(|e| e.kind == kind).ok_or(PlanError::MissingSection(kind.name()))
}

fn one(bytes: Vec<u8>) -> Parts {
    let mut p = Parts::default();
    p.push(bytes);
    p
}

fn payload(kind: Kind, e: impl std::fmt::Display) -> PlanError {
    PlanError::Payload { section: kind.name(), message: e.to_string() }
}

fn io_error(path: &Path, e: std::io::Error) -> PlanError {
    PlanError::Io { path: path.display().to_string(), message: e.to_string() }
}
