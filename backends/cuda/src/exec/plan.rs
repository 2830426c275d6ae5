//! From a step and the shapes of a run to launches.

use super::device::Loaded;
use super::memory::{Memory, Range};
use crate::dialect::CUDA;
use crate::driver::{Command, Launch, MAP_ALIGNMENT, at_layer, encode};
use crate::frame::{ALIVE_AT, CELLS_AT, MAP_THREADS, PARAMETER_HEAD, WORDS, lanes, may_be_cell};
use crate::vendor::Places;
use kiln_backend::{BackendError, Shapes};
use kiln_codegen::expression::{Slot, extra_words};
use kiln_codegen::site::{Cx, check_sizes};
use kiln_codegen::views::View;
use kiln_codegen::{Grid, word};
use kiln_ir::{NodeId, ValueId};

/// A command, its step, and the words that found no room in its parameter.
#[derive(Clone)]
pub struct Planned {
    pub step: usize,
    pub launch: Command,
    pub further: Vec<u32>,
}

/// Plans the launches of one step.
pub struct Planner<'a> {
    pub loaded: &'a Loaded,
    pub memory: &'a mut Memory,
    pub shapes: &'a Shapes,
}

impl Planner<'_> {
    /// Where a value lies.
    pub fn place(&mut self, v: ValueId) -> Result<Range, BackendError> {
        let bytes = self.shapes.bytes(&self.loaded.program, v)?;
        self.memory.place(&self.loaded.program, &self.loaded.weights, v, bytes)
    }

    /// The launches of a step; `counts` picks those before or after sizes are read.
    pub fn step(&mut self, index: usize, counts: bool) -> Result<Vec<Planned>, BackendError> {
        let Some(k) = self.loaded.steps.get(index) else { return Ok(Vec::new()) };
        let mut outputs = Vec::new();
        for (j, &(v, _)) in k.stored.iter().enumerate() {
            if k.unwritten.contains(&j) {
                outputs.push(None);
                continue;
            }
            // The sizes of data-dependent outputs are not known when they are counted.
            outputs.push(if counts && self.shapes.shape(v).is_none() { None } else { Some(self.place(v)?) });
        }
        let mut inputs = Vec::new();
        let mut views = Vec::new();
        for (i, v) in k.inputs.iter().enumerate() {
            let moves = k.moves.get(i).map_or(&[][..], Vec::as_slice);
            let v = v.map(|v| self.source(moves, v)).transpose()?;
            let on_device = v.filter(|&v| self.shapes.shape(v).is_some());
            inputs.push(on_device.map(|v| self.place(v)).transpose()?);
            views.push(match v {
                Some(v) if !moves.is_empty() => Some(self.view(moves, v)?),
                _ => None,
            });
        }
        if let Some(library) = k.library.as_ref().filter(|_| !counts) {
            let extras = k.extras.iter().map(|&v| self.place(v)).collect::<Result<Vec<_>, _>>()?;
            let mut void = false;
            for r in inputs.iter().chain(&outputs).flatten().chain(&extras) {
                void |= self.memory.fixed(*r).in_cell().is_some();
            }
            if void {
                return Ok(Vec::new());
            }
            let places = Places {
                inputs: inputs.iter().map(|r| r.map(|r| r.address)).collect(),
                extras: extras.iter().map(|r| r.address).collect(),
                output: outputs.first().copied().flatten().map_or(0, |r| r.address),
                scratch: self.memory.scratch(library.workspace().max(16))?.address,
            };
            let launch = Command::Library(library.prepare(&places)?);
            return Ok(vec![Planned { step: index, launch, further: Vec::new() }]);
        }
        let aliased = (0..inputs.len())
            .flat_map(|i| (0..outputs.len()).map(move |j| (i, j)))
            .filter(|&(i, j)| match (&inputs[i], &outputs[j]) {
                (Some(a), Some(b)) => a.address == b.address,
                _ => false,
            })
            .collect();
        let graph = &self.loaded.program.graph;
        let cx = Cx {
            op: k.anchor.and_then(|n| self.loaded.program.graph.get(n)).map(|n| &n.op),
            tactic: &self.loaded.program.steps[index].tactic,
            inputs: k.inputs.iter().map(|v| v.map(|v| self.shapes.fact(v))).collect(),
            outputs: k.results.iter().map(|&v| self.shapes.fact(v)).collect(),
            fused: k.fused,
            constant: k.inputs.iter().map(|v| v.is_some_and(|v| graph.weight(v).is_some())).collect(),
            aliased,
            views,
            wanted: k.wanted.clone(),
            rounds: usize::MAX,
            lanes: 1,
            dialect: &CUDA,
        };
        let mut out = Vec::new();
        let layer = k.layer(&self.loaded.program, index);
        check_sizes(&cx, layer)?;
        let launches = k.kernel.launches(&cx, k.maps.len(), &k.checks, layer)?;
        for launch in launches.into_iter().filter(|l| l.counts == counts) {
            out.extend(self.launch(index, launch, &inputs, &outputs)?);
        }
        Ok(out)
    }

    /// What is bound for an input: what the moves in front of it begin with.
    fn source(&self, moves: &[NodeId], v: ValueId) -> Result<ValueId, BackendError> {
        let Some(&first) = moves.first() else { return Ok(v) };
        let from = self.loaded.program.graph.get(first).and_then(|n| n.inputs.first().copied().flatten());
        from.ok_or_else(|| BackendError::Internal("a move of nothing".into()))
    }

    /// Where the elements of an input lie in what is bound for it.
    fn view(&self, moves: &[NodeId], from: ValueId) -> Result<View, BackendError> {
        let lost = || BackendError::Internal("a move whose shapes are not known".into());
        let mut view = View::whole(&self.shapes.shape(from).ok_or_else(lost)?);
        for &id in moves {
            let node = self.loaded.program.graph.get(id).ok_or_else(lost)?;
            let facts: Vec<_> = node.inputs.iter().map(|v| v.map(|v| self.shapes.fact(v))).collect();
            let to = node.outputs.first().and_then(|&v| self.shapes.shape(v)).ok_or_else(lost)?;
            view = view.through(&node.op, &facts, &to)?;
        }
        Ok(view)
    }

    fn launch(
        &mut self,
        step: usize,
        launch: kiln_codegen::Launch,
        inputs: &[Option<Range>],
        outputs: &[Option<Range>],
    ) -> Result<Option<Planned>, BackendError> {
        let k = &self.loaded.steps[step];
        let lost = || BackendError::Internal(format!("{}: a launch names what is not there", k.kernel.name));
        let per_block = u64::from(MAP_THREADS);
        // Threads or blocks, elements, blocks.
        let (count, extent, blocks) = match launch.grid {
            Grid::Threads(n) => (n, n, n.div_ceil(per_block)),
            Grid::Groups(n) => (n, n, n),
            Grid::Output => {
                let j = k.maps.get(launch.entry).copied().flatten().ok_or_else(lost)?;
                let &(v, t) = k.stored.get(j).ok_or_else(lost)?;
                let n = self.shapes.fact(v).ty.static_volume().ok_or_else(lost)? as u64;
                let threads = n.div_ceil(u64::from(lanes(t, k.anchor.is_some())));
                (threads, n, threads.div_ceil(per_block))
            }
        };
        if blocks == 0 {
            return Ok(None);
        }
        let blocks = u32::try_from(blocks).ok().filter(|b| *b <= i32::MAX as u32);
        let blocks = blocks.ok_or_else(|| {
            let name = &self.loaded.program.steps[step].name;
            BackendError::Unsupported(format!("\"{name}\" has {extent} elements, a launch spans fewer"))
        })?;
        let mut words = launch.words;
        let extras_at = words.len();
        words.extend(self.extra_words(step)?);
        let further = words.split_off(words.len().min(WORDS));
        words.resize(WORDS, 0);
        let mut parameter = Vec::with_capacity(PARAMETER_HEAD + WORDS * 4 + k.slots.len() * 8);
        for n in [word(count as usize)?, word(extras_at)?, word(extent as usize)?, 0, 0, 0, 0, 0] {
            parameter.extend(n.to_le_bytes());
        }
        words.iter().for_each(|w| parameter.extend(w.to_le_bytes()));
        let mut cells = 0u32;
        for (s, slot) in k.slots.iter().enumerate() {
            let range = match *slot {
                Slot::Input(i) => {
                    let i = launch.swap.filter(|s| s.0 == i).map_or(i, |s| s.1);
                    inputs.get(i).copied().flatten().ok_or_else(lost)?
                }
                Slot::Extra(e) => {
                    let v = *k.extras.get(e).ok_or_else(lost)?;
                    self.place(v)?
                }
                Slot::Output(j) => match outputs.get(j).copied().flatten() {
                    Some(r) => r,
                    // Nothing is written there: sizes are counted, or nobody reads it.
                    None => self.memory.sizes()?,
                },
                Slot::Scratch => self.memory.scratch(launch.scratch.max(16))?,
                Slot::Sizes => self.memory.sizes()?,
                Slot::Faults => self.memory.record(step)?,
            };
            match range.in_cell() {
                Some(at) if may_be_cell(k.cells, s) => {
                    cells |= 1 << s;
                    parameter.extend(at.to_le_bytes());
                }
                _ => parameter.extend(self.memory.fixed(range).address.to_le_bytes()),
            }
        }
        parameter.splice(CELLS_AT..CELLS_AT + 4, cells.to_le_bytes());
        if !launch.maps.is_empty() {
            parameter.resize(parameter.len().next_multiple_of(MAP_ALIGNMENT), 0);
        }
        for map in &launch.maps {
            let range = self.memory.fixed(inputs.get(map.input).copied().flatten().ok_or_else(lost)?);
            if range.in_cell().is_some() {
                return Ok(None);
            }
            let encoded = encode(&self.loaded.gpu, range.address, map);
            parameter.extend(encoded.map_err(|e| at_layer(e.into(), k.layer(&self.loaded.program, step)))?);
        }
        let function = k.module.as_ref().and_then(|m| m.functions().get(launch.entry).copied());
        let function = function.ok_or_else(lost)?;
        let maps = k.maps.get(launch.entry).copied().flatten().is_some();
        let shared = if maps { 0 } else { k.shared };
        let together = k.together.get(launch.entry).copied().unwrap_or(false);
        let launch = Launch {
            function,
            blocks,
            shared,
            parameter,
            waits: true,
            together,
            decides: false,
            alive_at: ALIVE_AT,
        };
        let launch = Command::Kernel(launch);
        Ok(Some(Planned { step, launch, further }))
    }

    /// The words of the fused expression's operands.
    fn extra_words(&self, step: usize) -> Result<Vec<u32>, BackendError> {
        let k = &self.loaded.steps[step];
        let Some(&(out, _)) = k.stored.first().filter(|_| !k.extras.is_empty()) else {
            return Ok(Vec::new());
        };
        let shape = |v| {
            let s = self.shapes.shape(v);
            s.ok_or_else(|| BackendError::Internal("a shape that is not known".into()))
        };
        let extras = k.extras.iter().map(|&v| shape(v)).collect::<Result<Vec<_>, _>>()?;
        extra_words(&shape(out)?, &extras)
    }
}
