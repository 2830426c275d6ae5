//! From a step and the shapes of a run to dispatches.

use super::device::Loaded;
use super::kernel::StepKernel;
use super::memory::{Memory, Range};
use crate::dialect::WGSL;
use crate::wgsl::array::piece_bytes;
use crate::wgsl::{HEADER_WORDS, MAP_THREADS, Slot};
use kiln_backend::{BackendError, Shapes};
use kiln_codegen::expression::extra_words;
use kiln_codegen::site::{Cx, check_sizes};
use kiln_codegen::{Grid, Launch, word};
use kiln_ir::ValueId;

/// One dispatch with all that it needs.
pub struct Dispatch {
    pub step: usize,
    /// Number among the dispatches of its step, for the cache of bind groups.
    pub number: usize,
    pub entry: usize,
    pub groups: (u32, u32),
    /// Argument words, `args[0]` first.
    pub args: Vec<u32>,
    /// What is bound, in order, the arguments left out.
    pub ranges: Vec<Range>,
}

/// Most workgroups in one dimension of a dispatch.
const FOLD: u64 = 65_535;

/// Splits a number of workgroups into two dimensions.
pub fn fold(groups: u64) -> Result<(u32, u32), BackendError> {
    let x = groups.min(FOLD);
    let y = groups.div_ceil(x.max(1));
    if y > FOLD {
        return Err(BackendError::Unsupported(format!("a dispatch of {groups} workgroups")));
    }
    // Threads are counted in 32 bits, those of the last row beyond the grid too.
    if x * y * MAP_THREADS > 1 << 32 {
        return Err(BackendError::Unsupported(format!("a dispatch of {groups} workgroups of {MAP_THREADS}")));
    }
    Ok((x as u32, y as u32))
}

/// Plans the dispatches of one step.
pub struct Planner<'a> {
    pub loaded: &'a Loaded,
    pub memory: &'a mut Memory,
    pub shapes: &'a Shapes,
}

impl Planner<'_> {
    /// Where a value lies.
    pub fn place(&mut self, v: ValueId) -> Result<Range, BackendError> {
        let bytes = self.shapes.bytes(&self.loaded.program, v)?;
        let l = self.loaded;
        self.memory.place(&l.gpu, &l.program, &l.weights, v, bytes)
    }

    /// The dispatches of a step; `counts` picks those before or after sizes are read.
    pub fn step(&mut self, index: usize, counts: bool) -> Result<Vec<Dispatch>, BackendError> {
        let Some(k) = self.loaded.steps.get(index) else { return Ok(Vec::new()) };
        let mut outputs = Vec::new();
        for &(v, _) in &k.stored {
            // The sizes of data-dependent outputs are not known when they are counted.
            outputs.push(if counts && self.shapes.shape(v).is_none() { None } else { Some(self.place(v)?) });
        }
        let mut inputs = Vec::new();
        for v in &k.inputs {
            let on_device = v.filter(|&v| self.shapes.shape(v).is_some());
            inputs.push(on_device.map(|v| self.place(v)).transpose()?);
        }
        let aliased = (0..inputs.len())
            .flat_map(|i| (0..outputs.len()).map(move |j| (i, j)))
            .filter(|&(i, j)| match (&inputs[i], &outputs[j]) {
                (Some(a), Some(b)) => a.same_start(b),
                _ => false,
            })
            .collect();
        let cx = Cx {
            op: k.anchor.and_then(|n| self.loaded.program.graph.get(n)).map(|n| &n.op),
            tactic: &self.loaded.program.steps[index].tactic,
            inputs: k.inputs.iter().map(|v| v.map(|v| self.shapes.fact(v))).collect(),
            outputs: k.results.iter().map(|&v| self.shapes.fact(v)).collect(),
            fused: k.fused,
            constant: Vec::new(),
            aliased,
            views: Vec::new(),
            wanted: Vec::new(),
            rounds: self.loaded.gpu.rounds,
            lanes: k.lanes(0) as usize,
            dialect: &WGSL,
        };
        let layer = k.layer(&self.loaded.program, index);
        check_sizes(&cx, layer)?;
        let launches = k.kernel.launches(&cx, k.maps.len(), &k.checks, layer)?;
        let mut out = Vec::new();
        for (number, launch) in launches.into_iter().enumerate().filter(|(_, l)| l.counts == counts) {
            out.extend(self.dispatch(index, number, launch, &inputs, &outputs)?);
        }
        Ok(out)
    }

    /// Makes a dispatch of a launch, unless it is empty.
    fn dispatch(
        &mut self,
        step: usize,
        number: usize,
        launch: Launch,
        inputs: &[Option<Range>],
        outputs: &[Option<Range>],
    ) -> Result<Option<Dispatch>, BackendError> {
        let k = &self.loaded.steps[step];
        let lost = || BackendError::Internal(format!("{}: a launch names what is not there", k.kernel.name));
        let (count, groups) = match launch.grid {
            Grid::Threads(n) => (n, n.div_ceil(MAP_THREADS)),
            Grid::Groups(n) => (n, n),
            Grid::Output => {
                let j = k.maps.get(launch.entry).copied().flatten().ok_or_else(lost)?;
                let &(v, _) = k.stored.get(j).ok_or_else(lost)?;
                let n = self.shapes.fact(v).ty.static_volume().ok_or_else(lost)? as u64;
                (n, n.div_ceil(k.lanes(j)).div_ceil(MAP_THREADS))
            }
        };
        if groups == 0 {
            return Ok(None);
        }
        let extra = word(HEADER_WORDS + launch.words.len())?;
        let mut args = vec![word(count as usize)?, extra, launch.span.0, launch.span.1, word(step)?];
        args.extend(&launch.words);
        args.extend(self.extra_words(step)?);
        let limit = self.loaded.gpu.target.memory.max_binding;
        // Pieces but the last of a tensor in several bindings are full; a tensor in one is bound as a whole.
        let piece = |k: &StepKernel, slot: &Slot, p: usize, r: Range| {
            let (pieces, bytes) = (k.pieces(*slot) as u64, piece_bytes(limit));
            match pieces {
                1 => Ok(r),
                _ if r.size > pieces * bytes => Err(BackendError::Unsupported(format!(
                    "{}: a tensor of {} bytes, its {pieces} bindings span {bytes} each",
                    k.kernel.name, r.size
                ))),
                _ => Ok(r.piece(p as u64, bytes)),
            }
        };
        let mut ranges = Vec::new();
        for slot in k.slots.iter().skip(1) {
            let gpu = &self.loaded.gpu;
            ranges.push(match *slot {
                Slot::Args => continue,
                Slot::Input(i, p) => {
                    let i = launch.swap.filter(|s| s.0 == i).map_or(i, |s| s.1);
                    piece(k, slot, p, inputs.get(i).cloned().flatten().ok_or_else(lost)?)?
                }
                Slot::Extra(e, p) => {
                    let v = *k.extras.get(e).ok_or_else(lost)?;
                    piece(k, slot, p, self.place(v)?)?
                }
                Slot::Output(j, p) => match outputs.get(j).cloned().flatten() {
                    Some(r) => piece(k, slot, p, r)?,
                    // While sizes are counted nothing is written there.
                    None => self.memory.sizes(gpu)?,
                },
                Slot::Scratch => self.memory.scratch(gpu, launch.scratch.max(16))?,
                Slot::Sizes => self.memory.sizes(gpu)?,
                Slot::Faults => self.memory.faults(gpu, self.loaded.steps.len())?,
            });
        }
        if let Some(r) = ranges.iter().find(|r| r.size > limit) {
            let name = &self.loaded.program.steps[step].name;
            return Err(BackendError::Unsupported(format!(
                "\"{name}\" needs a tensor of {} bytes, one binding spans {limit} at most",
                r.size
            )));
        }
        Ok(Some(Dispatch { step, number, entry: launch.entry, groups: fold(groups)?, args, ranges }))
    }

    /// The shape of the fused expression's output and the strides of its extras.
    fn extra_words(&self, step: usize) -> Result<Vec<u32>, BackendError> {
        let k = &self.loaded.steps[step];
        let Some(&(out, _)) = k.stored.first().filter(|_| !k.extras.is_empty()) else {
            return Ok(Vec::new());
        };
        let shape = |v| {
            let s = self.shapes.shape(v);
            s.ok_or_else(|| BackendError::Internal("a shape that is not known".into()))
        };
        let dims = shape(out)?;
        let own = k.lies.iter().map(|&v| shape(v)).collect::<Result<Vec<_>, _>>()?;
        extra_words(&dims, &own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_groups_fold_into_two_dimensions() {
        assert_eq!(fold(65_536), Ok((65_535, 2)));
        assert!(fold(u64::from(u32::MAX) * 4).is_err());
    }
}
