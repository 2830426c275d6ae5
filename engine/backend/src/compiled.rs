//! Compiled form of a region: code, and everything that an executor must know of it.
//!
//! A plan stores it whole as a step's blob, so that loading writes no kernel's text again.

use crate::BackendError;
use crate::launch::{KernelOperands, LaunchProgram};
use minicbor::{Decode, Encode};
use std::ops::Not;

/// The form of blobs: a backend refuses those of another one.
const VERSION: u32 = 4;
/// The form whose kernels store whole results only.
const WITHOUT_PARTS: u32 = 3;
/// The form before that, whose index checks read other argument words: kernels without checks are the same in both.
const WITHOUT_CHECKS: u32 = 2;
const MOST_ENTRIES: usize = 256;
const MOST_BINDINGS: usize = 1024;
const MOST_THREADS: u32 = 1024;

/// A compiled kernel. The blob is the CBOR form: a map with the numbers of fields as keys, in which unknown fields are
/// skipped.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct CompiledKernel {
    /// The form of the blob, which [`CompiledKernel::of`] sets.
    #[n(0)]
    pub version: u32,
    /// The architecture that the code was made for; empty where any runs it.
    #[n(1)]
    pub arch: String,
    /// Entry points, in the order in which launches name them.
    #[n(2)]
    pub entries: Vec<EntryPoint>,
    /// Bindings, in the order in which the code takes them.
    #[n(3)]
    pub bindings: Vec<Binding>,
    /// Contents of the parameter beside bindings and argument words.
    #[n(4)]
    pub parameter: Parameter,
    /// Dynamic shared memory in bytes of entry points that map nothing.
    #[n(5)]
    pub shared: u32,
    /// Outputs that are bound, but not written.
    #[n(6)]
    pub unwritten: Vec<u32>,
    /// Index inputs that the last entry points check, in this order.
    #[n(7)]
    pub checks: Vec<u32>,
    /// The code: a cubin, or text.
    #[cbor(n(8), with = "minicbor::bytes")]
    pub code: Vec<u8>,
    /// The operands; none in blobs of versions that analysed the region again when they loaded it.
    #[n(9)]
    pub operands: Option<KernelOperands>,
    /// The launches, where they depend on nothing that only a run knows; else code of the backend plans them.
    #[n(10)]
    pub launches: Option<LaunchProgram>,
    /// A digest of the backend's code that plans launches, of the build that compiled the kernel. Kernel and code agree on the
    /// order and meaning of argument words.
    #[n(11)]
    pub launch_code: Option<String>,
    /// Whether launches of a result with elements check the index inputs themselves.
    #[cbor(n(12), skip_if = "Not::not")]
    pub checking: bool,
}

/// One entry point.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct EntryPoint {
    /// Name in the code.
    #[n(0)]
    pub name: String,
    /// Threads of a block; 0 where the code says so by itself.
    #[n(1)]
    pub threads: u32,
    /// The output whose elements its threads compute, one each; none of other entry points.
    #[n(2)]
    pub maps: Option<u32>,
    /// Blocks of a cluster; 1 where there are no clusters.
    #[n(3)]
    pub cluster: u32,
    /// Whether all of its blocks run at once, or none.
    #[n(4)]
    pub together: bool,
    /// Whether it has work that does not depend on the kernel in front, so that it should begin before that one is done.
    #[n(5)]
    #[cbor(default)]
    pub early: bool,
}

/// Tensor or memory of one binding. Tensors of more bytes than a binding spans are bound in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Encode, Decode)]
pub enum Binding {
    /// The argument words.
    #[n(0)]
    Arguments,
    /// An input of the anchor by position, and the piece of it.
    #[n(1)]
    Input(#[n(0)] u32, #[n(1)] u32),
    /// An operand of the pointwise layers by position, and the piece of it.
    #[n(2)]
    Extra(#[n(0)] u32, #[n(1)] u32),
    /// A stored output by position, and the piece of it.
    #[n(3)]
    Output(#[n(0)] u32, #[n(1)] u32),
    /// Scratch memory.
    #[n(4)]
    Scratch,
    /// Sizes for the host.
    #[n(5)]
    Sizes,
    /// The record of an index out of range.
    #[n(6)]
    Faults,
}

/// Contents of the parameter beside bindings and argument words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct Parameter {
    /// Bindings, by bits, that may be addresses of cells which hold the address.
    #[n(0)]
    pub cells: u32,
    /// Tensor maps behind the bindings.
    #[n(1)]
    pub maps: u32,
}

impl CompiledKernel {
    /// A kernel of this code, for any architecture, without entry points and bindings.
    pub fn of(code: Vec<u8>) -> CompiledKernel {
        CompiledKernel {
            version: VERSION,
            arch: String::new(),
            entries: Vec::new(),
            bindings: Vec::new(),
            parameter: Parameter::default(),
            shared: 0,
            unwritten: Vec::new(),
            checks: Vec::new(),
            code,
            operands: None,
            launches: None,
            launch_code: None,
            checking: false,
        }
    }

    /// Refuses a kernel whose launches are not data, if the code that plans them is not of the build that compiled the kernel.
    /// `own` is the digest of the available code.
    pub fn check_launch_code(&self, own: &str) -> Result<(), BackendError> {
        if self.launch_code.as_deref() == Some(own) {
            return Ok(());
        }
        let built = self.launch_code.as_deref().unwrap_or("unknown");
        Err(BackendError::Incompatible(format!(
            "the launches of its kernel depend on shapes or contents that only a run knows, so that code of the backend plans them, \
             and the plan was built with other code (digest {built}, this backend has {own}): build the plan again with this \
             version, or version-compatible or with fixed shapes, so that the plan holds its launches"
        )))
    }

    /// The kernel as a step's blob.
    pub fn to_blob(&self) -> Result<Vec<u8>, BackendError> {
        minicbor::to_vec(self)
            .map_err(|e| BackendError::Internal(format!("a kernel could not be stored: {e}")))
    }

    /// The kernel of a step's blob; refuses what [`CompiledKernel::to_blob`] of this version did not write.
    pub fn from_blob(blob: &[u8]) -> Result<CompiledKernel, BackendError> {
        let refused = |why: String| {
            BackendError::Incompatible(format!(
                "a step's blob is not a compiled kernel of this version of Kiln ({why}); build the plan again"
            ))
        };
        let k: CompiledKernel = minicbor::decode(blob).map_err(|e| refused(e.to_string()))?;
        let known = match k.version {
            WITHOUT_CHECKS => k.checks.is_empty(),
            version => [WITHOUT_PARTS, VERSION].contains(&version),
        };
        if !known {
            return Err(refused(format!("its form is {}, wanted {VERSION}", k.version)));
        }
        if k.entries.len() > MOST_ENTRIES || k.bindings.len() > MOST_BINDINGS {
            let found = format!("{} entry points and {} bindings", k.entries.len(), k.bindings.len());
            return Err(refused(format!("{found}, at most {MOST_ENTRIES} and {MOST_BINDINGS} are possible")));
        }
        if let Some(e) = k.entries.iter().find(|e| e.threads > MOST_THREADS) {
            return Err(refused(format!(
                "blocks of {} threads, at most {MOST_THREADS} are possible",
                e.threads
            )));
        }
        if k.checks.len() > k.entries.len() {
            return Err(refused(format!("{} checks by {} entry points", k.checks.len(), k.entries.len())));
        }
        if k.launches.as_ref().is_some_and(|p| !p.is_whole()) {
            return Err(refused("a table of its launches lacks rows or columns".into()));
        }
        let mut launches = k.launches.iter().flat_map(|p| &p.cases).flat_map(|c| &c.launches);
        if let Some(l) = launches.find(|l| l.entry >= k.entries.len()) {
            return Err(refused(format!("a launch of entry point {} of {}", l.entry, k.entries.len())));
        }
        Ok(k)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::{Condition, Grid, Launch, Map, RegionValue, Windows};

    fn launch() -> Launch {
        let windows = Windows { lower: [-1, 0], upper: [i32::MIN, 2], steps: [2, 1] };
        let (dims, strides, block) = (vec![64, 1 << 33], vec![64], vec![64, 8]);
        let map = Map { input: 1, size: 2, dims, strides, block, windows: Some(windows), scratch: false };
        let base = Launch::map(1, vec![0, u32::MAX]).scratch(1 << 33);
        Launch { swap: Some((0, 1)), span: (3, 9), counts: true, maps: vec![map], ..base }
    }

    fn kernel() -> CompiledKernel {
        let entry = |name: &str, maps| EntryPoint {
            name: name.into(),
            threads: 256,
            maps,
            cluster: 1,
            together: false,
            early: false,
        };
        CompiledKernel {
            arch: "sm_90a".into(),
            entries: vec![entry("main0", Some(0)), entry("rows", None)],
            bindings: vec![Binding::Arguments, Binding::Input(0, 1), Binding::Output(0, 0), Binding::Scratch],
            parameter: Parameter { cells: 2, maps: 1 },
            shared: 1024,
            unwritten: vec![1],
            checks: vec![1],
            operands: Some(KernelOperands {
                anchor: Some(1),
                moves: vec![vec![0], Vec::new()],
                extras: vec![2],
                extra_shapes: vec![RegionValue::Result(0, 0)],
                lanes: vec![8],
                ..KernelOperands::default()
            }),
            launches: LaunchProgram::record(usize::MAX, |holds| {
                let grid = if holds(Condition::Weight(1)) { Grid::Groups(7) } else { Grid::Threads(1 << 40) };
                Ok(vec![launch().on(grid), Launch::map(0, Vec::new())])
            }),
            launch_code: Some("0123456789abcdef".into()),
            ..CompiledKernel::of(b"\x7fELF...".to_vec())
        }
    }

    #[test]
    fn blobs_are_read_back() {
        let blob = kernel().to_blob().unwrap();
        assert_eq!(CompiledKernel::from_blob(&blob), Ok(kernel()));
        for cut in 0..blob.len() {
            let e = CompiledKernel::from_blob(&blob[..cut]).unwrap_err();
            assert!(e.to_string().contains("build the plan again"), "{cut} bytes: {e}");
        }
    }

    /// Blobs of versions before have none of the optional fields, which are the last of the map.
    #[test]
    fn blobs_without_optional_fields_are_read() {
        let old = CompiledKernel { operands: None, launches: None, launch_code: None, ..kernel() };
        let blob = old.to_blob().unwrap();
        assert_eq!(blob[0], 0xa9, "a map of the nine fields of that version");
        assert_eq!(CompiledKernel::from_blob(&blob), Ok(old));
    }

    #[test]
    fn launches_are_planned_by_the_code_of_the_same_build_only() {
        assert_eq!(kernel().check_launch_code("0123456789abcdef"), Ok(()));
        for built in [Some("fedcba9876543210".to_owned()), None] {
            let names = built.clone().unwrap_or("unknown".into());
            let e = CompiledKernel { launch_code: built, ..kernel() }.check_launch_code("0123456789abcdef");
            let Err(BackendError::Incompatible(why)) = e else { panic!("{e:?}") };
            let says = ["build the plan again", "0123456789abcdef", &names];
            assert!(says.iter().all(|s| why.contains(s)), "{why}");
        }
    }

    #[test]
    fn what_is_no_kernel_of_this_version_is_refused() {
        for old in [&b"kiln-cuda-3 sm_80 3 main0:256\n\x7fELF"[..], b"// kiln 3 main0\n", b""] {
            let e = CompiledKernel::from_blob(old).unwrap_err();
            assert!(matches!(&e, BackendError::Incompatible(m) if m.contains("build the plan again")), "{e}");
        }
        let refused = |change: fn(&mut CompiledKernel), says: &str| {
            let mut k = kernel();
            change(&mut k);
            let e = CompiledKernel::from_blob(&k.to_blob().unwrap()).unwrap_err().to_string();
            assert!(e.contains(says), "{e}");
        };
        refused(|k| k.version = 1, "its form is 1, wanted 4");
        refused(|k| k.version = 2, "its form is 2, wanted 4");
        refused(|k| k.entries[0].threads = 4096, "blocks of 4096 threads");
        refused(|k| k.checks = vec![0; 3], "3 checks by 2 entry points");
        refused(|k| k.bindings = vec![Binding::Sizes; 1025], "1025 bindings");
        refused(|k| drop(k.entries.pop()), "a launch of entry point 1 of 1");
    }

    #[test]
    fn kernels_of_forms_before_are_read() {
        let old = CompiledKernel { version: WITHOUT_PARTS, ..kernel() };
        assert_eq!(CompiledKernel::from_blob(&old.to_blob().unwrap()), Ok(old));
        let old = CompiledKernel { version: WITHOUT_CHECKS, checks: Vec::new(), ..kernel() };
        assert_eq!(CompiledKernel::from_blob(&old.to_blob().unwrap()), Ok(old));
    }
}
