//! Programs that watch their memory.
//!
//! The program of one operator starts with a step that fills the whole arena with a pattern, by a value
//! whose place spans all others. The pattern is NaN in every float type and a large number in every integer
//! type. So it poisons memory that is read before it is written. After the run every byte outside the outputs
//! must still hold it. The inputs are outputs of the program too, so that writes to them are found.

use kiln_backend::{BackendError, MemoryPlan, MemoryRules, Place, Program, Step, Tactic};
use kiln_ir::problem::Problem;
use kiln_ir::{Attrs, Bytes, DType, Elems, Fact, Op, Source, Tensor, TensorType, ValueId};

/// The four bytes of the pattern, a NaN of f32, of f16 and bf16 twice, and with 0x7f of f8e4m3.
const PATTERN: i32 = 0x7fff_7fff;

/// Bytes that are watched before, between and behind outputs.
const MARGIN: u64 = 256;

/// The program of a problem, with tensors to run it with.
pub struct Guarded {
    /// The steps: the pattern, and the operator.
    pub program: Program,
    /// Inputs of the program.
    pub inputs: Vec<Tensor>,
    /// Number of the operator's outputs.
    outputs: usize,
    /// Byte ranges of the arena that the operator may write.
    own: Vec<(usize, usize)>,
}

impl Guarded {
    /// The position of the operator's step.
    pub const STEP: usize = 1;

    /// The program without tactics.
    pub fn new(p: &Problem, rules: &MemoryRules) -> Result<Guarded, BackendError> {
        let (Program { mut graph, .. }, mut inputs) = Program::single(&p.op, &p.inputs)?;
        let op_node = graph.order()[0];
        let outputs = graph.outputs.clone();
        let (mut places, own, size) = lay_out(&graph, rules);
        let words = size as usize / 4;
        let from = graph.add_input("guard.from", Fact::of(TensorType::new(DType::I32, [words as i64])));
        let guard = graph.insert_node(0, "guard", Op::new("bit_not", Attrs::new())?, &[Some(from)])?;
        let guard_node = graph.order()[0];
        places.push(Place::Input(inputs.len() as u32));
        places.extend(guard.iter().map(|_| Place::Arena { offset: 0, size }));
        let pattern = Elems::I(vec![i64::from(!PATTERN); words]);
        let pattern = Tensor::from_elems(DType::I32, &[words], &pattern);
        inputs.push(pattern.ok_or_else(|| BackendError::Internal("the pattern could not be made".into()))?);
        graph.outputs = outputs.iter().copied().chain(graph.inputs.clone()).chain(guard).collect();
        let step = |name: &str, node| Step::new(name, vec![node], Tactic::plain(""), Bytes::from(Vec::new()));
        let steps = vec![step("guard", guard_node), step(p.op.name(), op_node)];
        let memory = MemoryPlan { places, arena: size, scratch: size };
        Ok(Guarded { program: Program::new(graph, steps, memory), inputs, outputs: outputs.len(), own })
    }

    /// The operator's results out of the program's outputs; the error says what was written that must not be.
    pub fn take(&self, mut outputs: Vec<Tensor>) -> Result<Vec<Tensor>, String> {
        let wanted = self.outputs + self.inputs.len() + 1;
        if outputs.len() != wanted {
            return Err(format!("{} outputs of the program, wants {wanted}", outputs.len()));
        }
        let rest = outputs.split_off(self.outputs);
        for (i, (given, after)) in self.inputs.iter().zip(&rest).enumerate() {
            if given.bytes() != after.bytes() {
                return Err(format!("input {i} was written: {given:?} became {after:?}"));
            }
        }
        let arena = rest.last().map(Tensor::bytes).unwrap_or_default();
        let pattern = PATTERN.to_le_bytes();
        let own = |at: usize| self.own.iter().any(|&(from, to)| (from..to).contains(&at));
        match (0..arena.len()).find(|&at| arena[at] != pattern[at % 4] && !own(at)) {
            Some(at) => Err(format!("byte {at} of the arena was written; outputs lie at {:?}", self.own)),
            None => Ok(outputs),
        }
    }
}

/// Places of a graph's values with margins around outputs, the ranges that may be written (whole words), and the size.
fn lay_out(graph: &kiln_ir::Graph, rules: &MemoryRules) -> (Vec<Place>, Vec<(usize, usize)>, u64) {
    let align = rules.alignment.max(4);
    let mut end = 0u64;
    let mut own = Vec::new();
    let mut place = |v: ValueId| match &graph.value(v).source {
        Source::Input => {
            graph.inputs.iter().position(|&i| i == v).map_or(Place::None, |i| Place::Input(i as u32))
        }
        Source::Weight(_) => Place::Weight,
        Source::Dead => Place::None,
        Source::Node(..) => {
            let ty = graph.ty(v);
            let Some(size) = ty.static_volume().and_then(|n| ty.dtype.bytes_for(n as u64)) else {
                return Place::Dynamic;
            };
            let offset = (end + MARGIN).next_multiple_of(align);
            end = offset + size.next_multiple_of(4);
            own.push((offset as usize, end as usize));
            Place::Arena { offset, size }
        }
    };
    let places = graph.value_ids().map(&mut place).collect();
    (places, own, (end + MARGIN).next_multiple_of(align))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem() -> Problem {
        let x = Tensor::from_elems(DType::U8, &[5], &Elems::I(vec![1, 2, 3, 4, 5])).unwrap();
        Problem::new("odd", Op::new("identity", Attrs::new()).unwrap(), [x])
    }

    fn outputs(g: &Guarded) -> Vec<Tensor> {
        g.program.graph.eval(&g.inputs).unwrap()
    }

    #[test]
    fn a_write_beyond_an_output_and_into_an_input_is_found() {
        let rules = MemoryRules { alignment: 64, max_binding: u64::MAX, in_place: true, total: 0 };
        let p = problem();
        let g = Guarded::new(&p, &rules).unwrap();
        assert_eq!(g.own, [(256, 264)]);
        let good = outputs(&g);
        assert_eq!(g.take(good.clone()).unwrap(), [p.inputs[0].clone().unwrap()]);
        let spoiled = |which: usize, at: usize| {
            let mut all = good.clone();
            let mut bytes = all[which].bytes().to_vec();
            bytes[at] ^= 1;
            all[which] = Tensor::from_bytes(all[which].dtype(), all[which].shape(), bytes).unwrap();
            g.take(all)
        };
        let arena = good.len() - 1;
        assert!(spoiled(arena, 255).unwrap_err().contains("byte 255"));
        assert!(spoiled(arena, 264).unwrap_err().contains("byte 264"));
        assert!(spoiled(arena, 263).is_ok(), "the last word of an output is its own");
        assert!(spoiled(1, 0).unwrap_err().contains("input 0"));
    }

    #[test]
    fn the_pattern_is_no_number_in_any_float_type() {
        let bytes: Vec<u8> = PATTERN.to_le_bytes().repeat(2);
        for t in [DType::F32, DType::F16, DType::BF16] {
            let n = 64 / t.bits() as usize;
            let x = Tensor::from_bytes(t, &[n], bytes.clone()).unwrap();
            assert!(x.to_f64().iter().all(|v| v.is_nan()), "{t}");
        }
    }
}
