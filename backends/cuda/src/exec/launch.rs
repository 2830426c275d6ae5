//! Launches: commands of a step with their parameters.

use super::host::Places;
use super::kernel::{CudaGpu, HostCopy, ROUNDS};
use super::memory::Range;
use super::native;
use super::places::{Place, base};
use crate::driver::{Command, Launch, MAP_ALIGNMENT, Upload, at_layer, encode};
use crate::parameter::{ALIVE_AT, HEAD, MAP_THREADS, MARKS_AT, WORDS, may_be_cell};
use kiln_backend::BackendError;
use kiln_backend::launch::{self, word};
use kiln_gpu::{Launches, Operands, Planner, Work, lost};
use kiln_ir::ValueId;
use std::sync::Arc;

/// A command, its step, and the words that found no room in its parameter.
#[derive(Clone)]
pub struct Planned {
    pub step: usize,
    pub launch: Command,
    pub further: Vec<u32>,
    /// Places in its parameter that have addresses of bound memory.
    pub places: Vec<Place>,
    /// Whether it has such addresses elsewhere, where no other ones can be put.
    pub fixed: bool,
}

impl Planned {
    /// A command that has all that it needs.
    pub fn new(step: usize, launch: Command) -> Planned {
        Planned { step, launch, further: Vec::new(), places: Vec::new(), fixed: false }
    }
}

impl Launches for CudaGpu {
    type Launch = Planned;

    const MAP_THREADS: u64 = MAP_THREADS as u64;

    fn rounds(&self) -> usize {
        ROUNDS
    }

    fn library(
        plan: &mut Planner<'_, CudaGpu>,
        step: usize,
        operands: &Operands<CudaGpu>,
        counts: bool,
    ) -> Result<Option<Vec<Planned>>, BackendError> {
        let code = plan.kernel(step).code.as_ref();
        let native = code.and_then(|c| c.native.as_ref());
        let library = code.and_then(|c| c.library.as_ref());
        if native.is_none() && library.is_none() {
            return Ok(None);
        }
        let Operands { inputs, outputs, extras } = operands;
        let (mut void, mut fixed) = (false, false);
        for r in inputs.iter().chain(outputs).flatten().chain(extras) {
            void |= plan.memory.notes.fixed(*r).in_cell().is_some();
            fixed |= base(&plan.memory.bound, r).is_some();
        }
        if void {
            return Ok(Some(Vec::new()));
        }
        if let Some(native) = native {
            let command = native::command(plan, step, native, operands, counts);
            let layer = plan.kernel(step).layer(&plan.loaded.program, step);
            let command = command.map_err(|e| at_layer(e, layer))?;
            let planned = command.map(|launch| Planned { fixed, ..Planned::new(step, launch) });
            return Ok(Some(planned.into_iter().collect()));
        }
        let Some(library) = library.filter(|_| !counts) else { return Ok(Some(Vec::new())) };
        let places = Places {
            inputs: inputs.iter().map(|r| r.map(|r| r.address)).collect(),
            extras: extras.iter().map(|r| r.address).collect(),
            output: outputs.first().copied().flatten().map_or(0, |r| r.address),
            scratch: plan.scratch(step, library.workspace())?.address,
        };
        let launch = Command::Library(library.prepare(&places)?);
        Ok(Some(vec![Planned { fixed, ..Planned::new(step, launch) }]))
    }

    fn copy_weight(step: usize, weight: ValueId, from: &Arc<HostCopy>, to: Range) -> Option<Planned> {
        let (from, bytes) = (from.pinned.clone(), from.bytes);
        let upload = Upload { weight, from, to: to.address, bytes };
        Some(Planned::new(step, Command::Weight(upload)))
    }

    fn launch(
        plan: &mut Planner<'_, CudaGpu>,
        (step, _): (usize, usize),
        launch: launch::Launch,
        operands: &Operands<CudaGpu>,
        work: Work,
    ) -> Result<Option<Planned>, BackendError> {
        let loaded = plan.loaded;
        let k = plan.kernel(step);
        let code = k.code.as_ref().ok_or_else(|| lost(k))?;
        let Work { threads: count, elements: extent, groups: blocks } = work;
        let blocks = u32::try_from(blocks).ok().filter(|b| *b <= i32::MAX as u32);
        let blocks = blocks.ok_or_else(|| {
            let name = &loaded.program.steps[step].name;
            BackendError::Unsupported(format!("\"{name}\" has {extent} elements, a launch spans fewer"))
        })?;
        let mut words = launch.words.clone();
        let extras_at = words.len();
        words.extend(plan.extra_words(step)?);
        let further = words.split_off(words.len().min(WORDS));
        words.resize(WORDS, 0);
        let mut parameter = Vec::with_capacity(HEAD + WORDS * 4 + code.bindings.len() * 8);
        for n in [word(count as usize)?, word(extras_at)?, word(extent as usize)?, 0, 0, 0, 0, 0] {
            parameter.extend(n.to_le_bytes());
        }
        words.iter().for_each(|w| parameter.extend(w.to_le_bytes()));
        let (mut cells, mut places) = (0u32, Vec::new());
        for (s, &binding) in code.bindings.iter().enumerate() {
            let range = plan.bound(step, binding, &launch, operands)?;
            places.extend(Place::of(&plan.memory.bound, &range, parameter.len(), None));
            match range.in_cell() {
                Some(at) if may_be_cell(code.cells, s) => {
                    cells |= 1 << s;
                    parameter.extend(at.to_le_bytes());
                }
                _ => parameter.extend(plan.memory.notes.fixed(range).address.to_le_bytes()),
            }
        }
        parameter.splice(MARKS_AT..MARKS_AT + 4, cells.to_le_bytes());
        if !launch.maps.is_empty() {
            parameter.resize(parameter.len().next_multiple_of(MAP_ALIGNMENT), 0);
        }
        for map in &launch.maps {
            let range = match map.scratch {
                true => plan.scratch(step, launch.scratch)?,
                false => operands.inputs.get(map.input).copied().flatten().ok_or_else(|| lost(k))?,
            };
            let range = plan.memory.notes.fixed(range);
            if range.in_cell().is_some() {
                return Ok(None);
            }
            places.extend(Place::of(&plan.memory.bound, &range, parameter.len(), Some(map)));
            let encoded = encode(&loaded.device.gpu, range.address, map);
            parameter.extend(encoded.map_err(|e| at_layer(e.into(), k.layer(&loaded.program, step)))?);
        }
        let function = code.module.as_ref().and_then(|m| m.functions().get(launch.entry).copied());
        let function = function.ok_or_else(|| lost(k))?;
        let maps = k.maps.get(launch.entry).copied().flatten().is_some();
        let shared = if maps { 0 } else { code.shared };
        let of_entry = |all: &[bool]| all.get(launch.entry).copied().unwrap_or(false);
        let (together, early) = (of_entry(&code.together), of_entry(&code.early));
        let launch = Launch {
            function,
            blocks,
            shared,
            parameter,
            waits: code.waits,
            together,
            early,
            decides: false,
            marks_at: Some(MARKS_AT),
            alive_at: ALIVE_AT,
        };
        let launch = Command::Kernel(launch);
        Ok(Some(Planned { further, places, ..Planned::new(step, launch) }))
    }
}
