//! The container: fixed head, section table, sections.

use crate::PlanError;
use crate::parts::Parts;

/// The format that this build writes.
pub const FORMAT: u32 = 1;
/// The oldest format that this build reads.
pub const OLDEST_FORMAT: u32 = 1;

/// The first bytes of a plan file.
pub const MAGIC: &[u8; 8] = b"KILNPLAN";
pub(crate) const HEAD: usize = 128;
pub(crate) const ENTRY: usize = 64;
/// Bytes of the head before its hash.
const HASHED: usize = 48;
/// More sections than any plan has.
const MAX_SECTIONS: u32 = 64;
/// Alignment of sections and of weights inside theirs.
pub(crate) const ALIGN: u64 = 64;
/// Alignment of the weights section.
pub(crate) const PAGE: u64 = 4096;
/// Kinds from here on may be skipped.
const OPTIONAL: u32 = 0x8000_0000;

/// Kind of a section, by its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Target, inputs and outputs, profiles, requirements: CBOR.
    Header = 1,
    /// The program: CBOR; large tensors by index in the weight table.
    Program = 2,
    /// Compiled kernels, by index: a count, offsets and lengths, bytes.
    Blobs = 3,
    /// Offsets and lengths of weights, and hashes of chunks.
    WeightTable = 4,
    /// Bytes of weights.
    Weights = 5,
    /// The layer table: JSON.
    Layers = 6,
    /// The network before passes, for building again: CBOR.
    Network = 7,
    /// Plug-in libraries in the order of the header's list: a count, offsets and lengths, bytes.
    Plugins = 8,
}

impl Kind {
    const ALL: [Kind; 8] = [
        Kind::Header,
        Kind::Program,
        Kind::Blobs,
        Kind::WeightTable,
        Kind::Weights,
        Kind::Layers,
        Kind::Network,
        Kind::Plugins,
    ];

    /// The name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Header => "header",
            Kind::Program => "program",
            Kind::Blobs => "blobs",
            Kind::WeightTable => "weight table",
            Kind::Weights => "weights",
            Kind::Layers => "layers",
            Kind::Network => "network",
            Kind::Plugins => "plug-ins",
        }
    }

    /// The newest schema of the section's contents; a newer one is refused.
    fn schema(self) -> u32 {
        match self {
            // From 2 on, weights of zeros take no room.
            Kind::WeightTable => 2,
            _ => 1,
        }
    }

    fn alignment(self) -> u64 {
        if self == Kind::Weights { PAGE } else { ALIGN }
    }
}

/// Place of a section in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) hash: [u8; 32],
}

/// The sections of a file and the spaces before them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub(crate) entries: Vec<Entry>,
    pub(crate) gaps: Vec<(u64, u64)>,
}

/// The whole file from its sections, in this order.
/// The weight table has its newest schema only where `zeros` says that weights of zeros are left out.
pub(crate) fn assemble(sections: Vec<(Kind, Parts)>, zeros: bool) -> Parts {
    let mut at = (HEAD + ENTRY * sections.len()) as u64;
    let mut table = Vec::new();
    let mut body = Parts::default();
    let start = at;
    for (kind, data) in &sections {
        at = at.next_multiple_of(kind.alignment());
        table.extend((*kind as u32).to_le_bytes());
        let schema = if *kind == Kind::WeightTable && !zeros { 1 } else { kind.schema() };
        table.extend(schema.to_le_bytes());
        table.extend(at.to_le_bytes());
        table.extend(data.len().to_le_bytes());
        table.extend([0; 8]);
        table.extend(if *kind == Kind::Weights { [0; 32] } else { data.hash() });
        at += data.len();
    }
    let mut head = Vec::with_capacity(HEAD);
    head.extend(MAGIC);
    head.extend(FORMAT.to_le_bytes());
    head.extend((sections.len() as u32).to_le_bytes());
    head.extend(at.to_le_bytes());
    let mut writer = [0u8; 24];
    writer.iter_mut().zip(env!("CARGO_PKG_VERSION").bytes()).for_each(|(a, b)| *a = b);
    head.extend(writer);
    head.extend(table_hash(&head, &table));
    head.resize(HEAD, 0);
    body.push(head);
    body.push(table);
    debug_assert_eq!(body.len(), start);
    for (kind, data) in sections {
        body.align(kind.alignment());
        body.append(data);
    }
    body
}

/// Hash of the head's first bytes and of the section table, as the head stores it.
fn table_hash(start: &[u8], table: &[u8]) -> [u8; 32] {
    *blake3::Hasher::new().update(start).update(table).finalize().as_bytes()
}

/// Fields of the fixed head.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Head {
    pub(crate) sections: usize,
    pub(crate) size: u64,
    pub(crate) writer: String,
    table_hash: [u8; 32],
}

impl Head {
    /// Reads and checks the first bytes of a file.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Head, PlanError> {
        let magic = bytes.get(..8.min(bytes.len())).unwrap_or_default();
        if magic != MAGIC {
            let found = if bytes.is_empty() { "nothing".into() } else { format!("{:?}", text(magic)) };
            return Err(PlanError::Magic { found });
        }
        let head = bytes.get(..HEAD).ok_or_else(|| PlanError::Truncated {
            what: "the head".into(),
            wanted: HEAD as u64,
            found: bytes.len() as u64,
        })?;
        let version = u32_at(head, 8);
        if !(OLDEST_FORMAT..=FORMAT).contains(&version) {
            return Err(PlanError::Version { found: version, least: OLDEST_FORMAT, greatest: FORMAT });
        }
        let sections = u32_at(head, 12);
        if sections == 0 || sections > MAX_SECTIONS {
            return Err(PlanError::Layout(format!("{sections} sections; wants 1 to {MAX_SECTIONS}")));
        }
        if head.get(80..).unwrap_or_default().iter().any(|&b| b != 0) {
            return Err(PlanError::Layout("bytes 80 to 127 are not zero".into()));
        }
        let writer = head.get(24..48).unwrap_or_default();
        let writer = writer.split(|&b| b == 0).next().unwrap_or_default();
        Ok(Head {
            sections: sections as usize,
            size: u64_at(head, 16),
            writer: text(writer),
            table_hash: hash_at(head, 48),
        })
    }

    /// Size of head and table.
    pub(crate) fn table_end(&self) -> usize {
        HEAD + ENTRY * self.sections
    }

    /// Reads the section table, of which `bytes` holds at least head and table. Checks everything that needs no look
    /// at the sections: order, alignment, overlap, repetition, and that all end inside the file.
    pub(crate) fn table(&self, bytes: &[u8]) -> Result<Table, PlanError> {
        let end = self.table_end();
        let table = bytes.get(HEAD..end).ok_or_else(|| PlanError::Truncated {
            what: "the section table".into(),
            wanted: end as u64,
            found: bytes.len() as u64,
        })?;
        if table_hash(bytes.get(..HASHED).unwrap_or_default(), table) != self.table_hash {
            return Err(PlanError::Hash { what: "the head or the section table".into() });
        }
        let mut t = Table::default();
        let mut at = end as u64;
        for raw in table.as_chunks::<ENTRY>().0 {
            let (start, len) = (u64_at(raw, 8), u64_at(raw, 16));
            let kind = u32_at(raw, 0);
            let bad =
                |m: &str| PlanError::Layout(format!("section of kind {kind} at {start}, {len} bytes: {m}"));
            if start < at || start % ALIGN != 0 {
                return Err(bad("overlaps what is before it, or is not aligned"));
            }
            t.gaps.push((at, start));
            at = start
                .checked_add(len)
                .filter(|&e| e <= self.size)
                .ok_or_else(|| bad("ends after the file"))?;
            if u64_at(raw, 24) != 0 {
                return Err(bad("its reserved field is not zero"));
            }
            let Some(known) = Kind::ALL.into_iter().find(|&k| k as u32 == kind) else {
                if kind >= OPTIONAL {
                    continue;
                } else {
                    return Err(bad("this build does not know the kind"));
                }
            };
            if u32_at(raw, 4) > known.schema() {
                return Err(bad("its schema is newer than this build's; use a newer Kiln"));
            }
            if start % known.alignment() != 0 || t.entries.iter().any(|e| e.kind == known) {
                return Err(bad("is not aligned, or is there twice"));
            }
            let size = |x: u64| usize::try_from(x).map_err(|_| bad("is larger than the address space"));
            t.entries.push(Entry {
                kind: known,
                start: size(start)?,
                len: size(len)?,
                hash: hash_at(raw, 32),
            });
        }
        if at != self.size {
            return Err(PlanError::Layout(format!("sections end at {at}, the file at {}", self.size)));
        }
        Ok(t)
    }
}

impl Entry {
    /// Checks the hash of the section's bytes.
    pub(crate) fn check(&self, data: &[u8]) -> Result<(), PlanError> {
        if *blake3::hash(data).as_bytes() == self.hash {
            return Ok(());
        }
        Err(PlanError::Hash { what: format!("the {} section", self.kind.name()) })
    }
}

/// The sections of a whole file, the space between them checked to be zero. Hashes are not looked at.
pub(crate) fn parse(bytes: &[u8]) -> Result<(Head, Vec<Entry>), PlanError> {
    let head = Head::parse(bytes)?;
    if head.size > bytes.len() as u64 {
        return Err(PlanError::Truncated {
            what: "the file".into(),
            wanted: head.size,
            found: bytes.len() as u64,
        });
    }
    if head.size < bytes.len() as u64 {
        let extra = bytes.len() as u64 - head.size;
        return Err(PlanError::Layout(format!("{extra} bytes follow the plan's end")));
    }
    let table = head.table(bytes)?;
    for (start, end) in table.gaps {
        check_gap((start, end), bytes.get(start as usize..end as usize).unwrap_or_default())?;
    }
    Ok((head, table.entries))
}

/// Checks that the bytes between two sections are zero.
pub(crate) fn check_gap((start, end): (u64, u64), bytes: &[u8]) -> Result<(), PlanError> {
    match bytes.iter().all(|&b| b == 0) {
        true => Ok(()),
        false => Err(PlanError::Layout(format!("bytes {start} to {end}, between sections, are not zero"))),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn u64_at(b: &[u8], at: usize) -> u64 {
    b.get(at..).and_then(|b| b.first_chunk()).map_or(0, |c| u64::from_le_bytes(*c))
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    b.get(at..).and_then(|b| b.first_chunk()).map_or(0, |c| u32::from_le_bytes(*c))
}

pub(crate) fn hash_at(b: &[u8], at: usize) -> [u8; 32] {
    b.get(at..).and_then(|b| b.first_chunk()).copied().unwrap_or_default()
}
