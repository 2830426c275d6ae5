//! Loading the kernels of a program.

use super::memory::{Buffer, Range};
use super::queue::WgpuQueue;
use crate::adapter::ALIGNMENT;
use crate::dialect::WGSL;
use crate::gpu::{Gpu, Module};
use crate::wgsl::{Head, Slot};
use kiln_backend::flow::Decisions;
use kiln_backend::{BackendError, CompiledKernel, Step, Target};
use kiln_codegen::Dialect;
use kiln_codegen::site::Site;
use kiln_gpu::{Compiled, Device, Kernels, find};
use std::sync::Arc;

impl Device for Gpu {
    type Buffer = Buffer;
    type Range = Range;
    type Notes = ();
    type Queue = WgpuQueue;

    const KEEPS_REPLACED: bool = false;
    const ARENA_TAIL: u64 = ALIGNMENT;
    const WEIGHTS_CHUNK: u64 = 256 << 20;

    fn target(&self) -> &Target {
        &self.target
    }
}

/// How many bindings a module's text declares.
fn bindings(text: &str) -> Option<usize> {
    Some(Head::parse(text)?.bindings as usize)
}

/// The pipelines of a step and their bindings.
pub struct Code {
    pub module: Arc<Module>,
    pub slots: Vec<Slot>,
}

impl Code {
    /// How many pieces the tensor of a slot is bound in.
    pub fn pieces(&self, slot: Slot) -> usize {
        let same = |s: &&Slot| match (slot, **s) {
            (Slot::Input(a, _), Slot::Input(b, _))
            | (Slot::Extra(a, _), Slot::Extra(b, _))
            | (Slot::Output(a, _), Slot::Output(b, _)) => a == b,
            (a, b) => a == b,
        };
        self.slots.iter().filter(same).count()
    }
}

impl Kernels for Gpu {
    type Code = Code;

    const DECISIONS: Decisions = Decisions::All;

    fn dialect() -> &'static Dialect {
        &WGSL
    }

    fn load(&self, site: &Site<'_>, step: &Step) -> Result<Compiled<Code>, BackendError> {
        let kernel = find(&step.tactic.name, site)?;
        let stored = CompiledKernel::from_blob(step.blob.as_slice())?;
        let text = std::str::from_utf8(&stored.code).map_err(|_| {
            BackendError::Incompatible(format!("step \"{}\": the blob has no text", step.name))
        })?;
        let module = self.module(text)?;
        let slots: Vec<Slot> = stored.bindings.iter().map(Slot::of).collect();
        if module.pipelines.len() != stored.entries.len() || Some(slots.len()) != bindings(text) {
            return Err(BackendError::Incompatible(format!(
                "step \"{}\": its blob is of another version of \"{}\"; build the plan again",
                step.name, kernel.name
            )));
        }
        Ok(Compiled { kernel, stored, code: Code { module, slots } })
    }
}
