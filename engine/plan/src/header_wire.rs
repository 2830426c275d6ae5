//! The header section: a CBOR map with integer keys, in the conventions of `kiln_ir::wire`.
//!
//! | map     | fields |
//! |---------|--------|
//! | header  | 0 name: text · 1 target: bytes (its own map) · 2 tensors: bytes (a graph whose inputs they are) · 3 \[1 if output + 2 if shape input\] · 4 profiles: \[profile\] · 5 plug-ins: \[requirement\] · 6 verbosity: 0 none, 1 names, 2 detailed · 7 refittable: bool · 8 bytes of memory of a context · 9? refittable by identical weights only: bool · 10? absent weights: \[absent\] · 11? formats: \[packing\] · 12? version-compatible: bool · 13? limit: 0? multiprocessors · 1? bytes of memory |
//! | packing | 0 format: code · 1 channels, 0 of formats without vectors: unsigned |
//! | absent  | 0 name: text · 1 BLAKE3 of its bytes: bytes |
//! | profile | 0 shapes: \[range\] · 1 values: \[range\] |
//! | range   | 0 input: text · 1 min · 2 opt · 3 max: \[integer\] |
//! | requirement | 0 name: text · 1 version: text · 2 hash: text · 3 layers: \[text\] · 4 called in runs: bool · 5? bytes of the library, if the plan holds it: unsigned |
//!
//! In the graph of tensors their names have the prefix `i` or `o`, because an output may be called as an input is.

use crate::PlanError;
use crate::header::{AbsentWeight, PlanHeader, Requirement, Verbosity};
use crate::io::{IoMode, IoTensor};
use crate::limit::DeviceLimit;
use crate::profile::Profile;
use kiln_backend::Target;
use kiln_ir::wire::{WeightList, check_keys};
use kiln_ir::{Fact, Graph, Packing};
use minicbor::bytes::ByteVec;
use minicbor::{Decode, Decoder, Encode};

/// The header as it is stored.
#[derive(Encode, Decode)]
#[cbor(map)]
struct StoredHeader {
    #[n(0)]
    name: String,
    #[n(1)]
    target: ByteVec,
    #[n(2)]
    tensors: ByteVec,
    #[n(3)]
    flags: Vec<u8>,
    #[n(4)]
    profiles: Vec<Profile>,
    #[n(5)]
    plugins: Vec<Requirement>,
    #[n(6)]
    verbosity: Verbosity,
    #[n(7)]
    refittable: bool,
    #[n(8)]
    context_memory: u64,
    #[n(9)]
    identical: Option<bool>,
    #[n(10)]
    absent: Option<Vec<AbsentWeight>>,
    #[n(11)]
    packings: Option<Vec<Packing>>,
    #[n(12)]
    version_compatible: Option<bool>,
    #[n(13)]
    limit: Option<DeviceLimit>,
}

fn payload(e: impl std::fmt::Display) -> PlanError {
    PlanError::Payload { section: "header", message: e.to_string() }
}

impl PlanHeader {
    /// The section's bytes.
    pub(crate) fn to_cbor(&self) -> Result<Vec<u8>, PlanError> {
        let PlanHeader { name, target, io, profiles, plugins, verbosity, refittable, .. } = self;
        let mut tensors = Graph::new("");
        for t in io {
            tensors.add_input(&prefixed(t), Fact::of(t.ty()));
        }
        let flag = |t: &IoTensor| u8::from(t.mode == IoMode::Output) + 2 * u8::from(t.is_shape_input);
        let stored = StoredHeader {
            name: name.clone(),
            target: target.to_cbor().map_err(payload)?.into(),
            tensors: tensors.to_cbor(&mut WeightList::default()).map_err(payload)?.into(),
            flags: io.iter().map(flag).collect(),
            profiles: profiles.clone(),
            plugins: plugins.clone(),
            verbosity: *verbosity,
            refittable: *refittable,
            context_memory: self.context_memory,
            identical: self.identical.then_some(true),
            absent: Some(self.absent.clone()).filter(|a| !a.is_empty()),
            packings: Some(io.iter().map(|t| t.packing).collect::<Vec<_>>())
                .filter(|all| all.iter().any(|p| !p.is_linear())),
            version_compatible: self.version_compatible.then_some(true),
            limit: Some(self.limit).filter(|l| !l.is_none()),
        };
        minicbor::to_vec(stored).map_err(payload)
    }

    /// The header of a section.
    pub(crate) fn from_cbor(bytes: &[u8]) -> Result<PlanHeader, PlanError> {
        check_keys(bytes).map_err(payload)?;
        let mut d = Decoder::new(bytes);
        let stored: StoredHeader = d.decode().map_err(payload)?;
        if d.position() < bytes.len() {
            return Err(payload(format!("{} bytes follow its end", bytes.len() - d.position())));
        }
        let tensors = Graph::from_cbor(&stored.tensors, &WeightList::default()).map_err(payload)?;
        Ok(PlanHeader {
            name: stored.name,
            target: Target::from_cbor(&stored.target).map_err(payload)?,
            io: io(&tensors, &stored.flags, stored.packings.as_deref()).map_err(payload)?,
            profiles: stored.profiles,
            plugins: stored.plugins,
            verbosity: stored.verbosity,
            refittable: stored.refittable,
            context_memory: stored.context_memory,
            identical: stored.identical.unwrap_or_default(),
            version_compatible: stored.version_compatible.unwrap_or_default(),
            absent: stored.absent.unwrap_or_default(),
            limit: stored.limit.unwrap_or_default(),
        })
    }
}

fn prefixed(t: &IoTensor) -> String {
    let prefix = if t.mode == IoMode::Input { "i" } else { "o" };
    format!("{prefix}{}", t.name)
}

fn io(tensors: &Graph, flags: &[u8], packings: Option<&[Packing]>) -> Result<Vec<IoTensor>, String> {
    if packings.is_some_and(|p| p.len() != tensors.inputs.len()) {
        return Err(format!("formats of another number than {} tensors", tensors.inputs.len()));
    }
    if flags.len() != tensors.inputs.len() {
        return Err(format!("{} flags for {} tensors", flags.len(), tensors.inputs.len()));
    }
    tensors
        .inputs
        .iter()
        .zip(flags)
        .enumerate()
        .map(|(i, (&v, &flag))| {
            let def = tensors.value(v);
            let mode = if flag & 1 == 0 { IoMode::Input } else { IoMode::Output };
            let prefix = if mode == IoMode::Input { 'i' } else { 'o' };
            let name = def
                .name
                .strip_prefix(prefix)
                .ok_or_else(|| format!("tensor \"{}\" has no prefix", def.name))?;
            let ty = def.fact.ty.clone();
            Ok(IoTensor {
                name: name.into(),
                mode,
                dtype: ty.dtype,
                dims: ty.dims,
                packing: packings.and_then(|p| p.get(i)).copied().unwrap_or_default(),
                is_shape_input: flag & 2 != 0,
            })
        })
        .collect()
}
