//! Dispatches: launches of the device.

use super::commands::fold;
use super::kernel::Code;
use super::memory::Range;
use super::native::{self, NativeWork};
use crate::gpu::Gpu;
use crate::wgsl::array::piece_bytes;
use crate::wgsl::{self, HEADER_WORDS, MAP_THREADS};
use kiln_backend::BackendError;
use kiln_backend::launch::{Launch, word};
use kiln_gpu::{Launches, Operands, Planner, Work, lost};
use std::sync::Arc;

/// One dispatch with all that it needs.
#[derive(Clone)]
pub struct Dispatch {
    pub step: usize,
    /// Position of its kernel in the loaded program.
    pub kernel: usize,
    /// Number among the dispatches of its step, for the cache of bind groups.
    pub number: usize,
    pub entry: usize,
    pub groups: (u32, u32),
    /// Argument words, `args[0]` first.
    pub args: Vec<u32>,
    /// Bindings in order, the arguments left out.
    pub ranges: Vec<Range>,
    /// The call of a plug-in's library in the place of a dispatch.
    pub native: Option<Arc<NativeWork>>,
}

impl Launches for Gpu {
    type Launch = Dispatch;

    const MAP_THREADS: u64 = MAP_THREADS;

    fn rounds(&self) -> usize {
        self.rounds
    }

    fn library(
        plan: &mut Planner<'_, Gpu>,
        step: usize,
        operands: &Operands<Gpu>,
        counts: bool,
    ) -> Result<Option<Vec<Dispatch>>, BackendError> {
        let kernel = plan.loaded.kernel(step, plan.shapes.case());
        let Some(native) = plan.kernel(step).code.as_ref().and_then(|c| c.native.as_ref()) else {
            return Ok(None);
        };
        let layer = plan.kernel(step).layer(&plan.loaded.program, step);
        let work = native::work(plan, step, native, operands, counts).map_err(|e| e.inside(layer))?;
        let dispatch = work.map(|work| Dispatch {
            step,
            kernel,
            number: 0,
            entry: 0,
            groups: (0, 0),
            args: Vec::new(),
            ranges: Vec::new(),
            native: Some(Arc::new(work)),
        });
        Ok(Some(dispatch.into_iter().collect()))
    }

    fn launch(
        plan: &mut Planner<'_, Gpu>,
        (step, number): (usize, usize),
        launch: Launch,
        operands: &Operands<Gpu>,
        work: Work,
    ) -> Result<Option<Dispatch>, BackendError> {
        let loaded = plan.loaded;
        let kernel = loaded.kernel(step, plan.shapes.case());
        let k = plan.kernel(step);
        let code = k.code.as_ref().ok_or_else(|| lost(k))?;
        let extra = word(HEADER_WORDS + launch.words.len())?;
        let mut args = vec![word(work.elements as usize)?, extra, launch.span.0, launch.span.1, word(step)?];
        args.extend(&launch.words);
        args.extend(plan.extra_words(step)?);
        let limit = loaded.device.target.memory.max_binding;
        let mut ranges = Vec::new();
        for &slot in code.slots.iter().skip(1) {
            let mut bind = || plan.bound(step, slot.binding(), &launch, operands);
            ranges.push(match slot {
                wgsl::Slot::Args => continue,
                wgsl::Slot::Faults => plan.memory.records().ok_or_else(|| lost(k))?,
                wgsl::Slot::Scratch | wgsl::Slot::Sizes => bind()?,
                wgsl::Slot::Output(j, _) if operands.outputs.get(j).is_none_or(Option::is_none) => bind()?,
                wgsl::Slot::Input(_, p) | wgsl::Slot::Extra(_, p) | wgsl::Slot::Output(_, p) => {
                    piece(&k.name, code, slot, p, bind()?, limit)?
                }
            });
        }
        if let Some(r) = ranges.iter().find(|r| r.size > limit) {
            let name = &loaded.program.steps[step].name;
            return Err(BackendError::Unsupported(format!(
                "\"{name}\" needs a tensor of {} bytes, one binding spans {limit} at most",
                r.size
            )));
        }
        let (entry, groups) = (launch.entry, fold(work.groups)?);
        Ok(Some(Dispatch { step, kernel, number, entry, groups, args, ranges, native: None }))
    }
}

/// Piece `p` of the tensor of a slot. Pieces but the last of a tensor in several bindings are full; a tensor in one is bound as a
/// whole.
fn piece(
    kernel: &str,
    code: &Code,
    slot: wgsl::Slot,
    p: usize,
    range: Range,
    limit: u64,
) -> Result<Range, BackendError> {
    let (pieces, bytes) = (code.pieces(slot) as u64, piece_bytes(limit));
    match pieces {
        1 => Ok(range),
        _ if range.size > pieces * bytes => Err(BackendError::Unsupported(format!(
            "{kernel}: a tensor of {} bytes, its {pieces} bindings span {bytes} each",
            range.size
        ))),
        _ => Ok(range.piece(p as u64, bytes)),
    }
}
