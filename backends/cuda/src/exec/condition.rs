//! Conditions of single elements that the deciding kernel computes itself: comparisons, and what combines these.

use super::memory::Range;
use kiln_ir::{DType, Graph, ValueId};
use kiln_ops::cast::IDENTITY;

/// Elements and operations of one condition at most: as in `kernels/control/copies.cu`.
const LEAVES: usize = 4;
const STEPS: usize = 8;
const FLOATS: u8 = 16;

/// A condition: the last of some operations on elements; the only element, where there are no operations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceCondition {
    leaves: Vec<(u64, u32)>,
    /// Operation and operands: elements come first, then earlier operations from number [`LEAVES`] on.
    steps: Vec<[u8; 3]>,
}

/// The kernel's numbers of element types.
fn number(t: DType) -> Option<u32> {
    Some(match t {
        DType::Bool | DType::U8 => 0,
        DType::I8 => 1,
        DType::I32 => 2,
        DType::I64 => 3,
        DType::F16 => 4,
        DType::BF16 => 5,
        DType::F32 => 6,
        _ => return None,
    })
}

fn operation(op: &str) -> Option<u8> {
    let all = ["less", "less_equal", "greater", "greater_equal", "equal", "and", "or", "xor", "not"];
    all.iter().position(|&name| name == op).map(|n| n as u8)
}

impl DeviceCondition {
    /// Condition that is a truth value at an address.
    pub fn flag(at: u64) -> DeviceCondition {
        DeviceCondition { leaves: vec![(at, 0)], steps: Vec::new() }
    }

    /// The first output of a graph, if it is made of such operations alone; `place` returns the addresses of
    /// values.
    pub fn of<E>(
        graph: &Graph,
        mut place: impl FnMut(ValueId) -> Result<Range, E>,
    ) -> Result<Option<DeviceCondition>, E> {
        let mut test = DeviceCondition::default();
        let Some(&v) = graph.outputs.first() else { return Ok(None) };
        let mut known = Vec::new();
        Ok(test.result(graph, v, &mut known, &mut place)?.map(|_| test))
    }

    /// The number of a value's result.
    fn result<E>(
        &mut self,
        graph: &Graph,
        v: ValueId,
        known: &mut Vec<(ValueId, u8)>,
        place: &mut impl FnMut(ValueId) -> Result<Range, E>,
    ) -> Result<Option<u8>, E> {
        if let Some(k) = known.iter().find(|k| k.0 == v) {
            return Ok(Some(k.1));
        }
        let ty = graph.ty(v);
        let Some(t) = number(ty.dtype).filter(|_| ty.static_volume() == Some(1)) else { return Ok(None) };
        let at = match graph.producer(v) {
            None if self.leaves.len() < LEAVES => {
                self.leaves.push((place(v)?.address, t));
                self.leaves.len() - 1
            }
            Some((_, node)) if node.op.is(IDENTITY) => {
                let Some(x) = node.inputs.first().copied().flatten() else { return Ok(None) };
                return self.result(graph, x, known, place);
            }
            Some((_, node)) => {
                let Some(op) = operation(node.op.name()) else { return Ok(None) };
                let mut operands = [0; 2];
                for (to, x) in operands.iter_mut().zip(node.inputs.iter().flatten()) {
                    let Some(n) = self.result(graph, *x, known, place)? else { return Ok(None) };
                    *to = n;
                }
                let floats = node.inputs.iter().flatten().any(|&x| graph.ty(x).dtype.is_float());
                if self.steps.len() == STEPS {
                    return Ok(None);
                }
                self.steps.push([op + if floats { FLOATS } else { 0 }, operands[0], operands[1]]);
                LEAVES + self.steps.len() - 1
            }
            None => return Ok(None),
        };
        known.push((v, at as u8));
        Ok(Some(at as u8))
    }

    /// Addresses of the elements.
    pub fn reads(&self) -> impl Iterator<Item = u64> + '_ {
        self.leaves.iter().map(|l| l.0)
    }

    /// Whether it is an element without an operation.
    pub fn is_flag(&self) -> bool {
        self.steps.is_empty()
    }

    /// As the kernel's parameter has it, from the number of elements on.
    pub fn put(&self, to: &mut Vec<u8>) {
        to.extend((self.leaves.len() as u32).to_le_bytes());
        to.extend((self.steps.len() as u32).to_le_bytes());
        let mut leaves = self.leaves.clone();
        leaves.resize(LEAVES, (0, 0));
        for (at, t) in leaves {
            to.extend(at.to_le_bytes());
            to.extend(u64::from(t).to_le_bytes());
        }
        for [op, a, b] in &self.steps {
            to.extend([*op, *a, *b, 0]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::{Attrs, Fact, Op, TensorType};

    fn condition(dtype: DType, dims: &[i64], ops: &[(&str, &[usize])]) -> Option<DeviceCondition> {
        let mut g = Graph::new("condition");
        let ty = TensorType::new(dtype, dims.iter().copied());
        let mut all: Vec<ValueId> = ["a", "b"].iter().map(|n| g.add_input(n, Fact::of(ty.clone()))).collect();
        for (k, (op, of)) in ops.iter().enumerate() {
            let inputs: Vec<_> = of.iter().map(|&i| all[i]).collect();
            all.push(g.add(&format!("v{k}"), Op::new(op, Attrs::new()).unwrap(), &inputs).unwrap());
        }
        g.outputs = all.last().copied().into_iter().collect();
        let place = |v: ValueId| Ok::<_, ()>(Range { address: 0x100 + 16 * u64::from(v.0), size: 1 });
        DeviceCondition::of(&g, place).unwrap()
    }

    #[test]
    fn comparisons_and_what_combines_them_are_taken() {
        let test = condition(DType::F32, &[], &[("less", &[0, 1])]);
        assert_eq!(
            test,
            Some(DeviceCondition { leaves: vec![(0x100, 6), (0x110, 6)], steps: vec![[16, 0, 1]] })
        );
        let ops: [(&str, &[usize]); 4] =
            [("less", &[0, 1]), ("equal", &[1, 0]), ("not", &[3]), ("and", &[2, 4])];
        let test = condition(DType::I64, &[1], &ops).unwrap();
        assert_eq!(test.steps, [[0, 0, 1], [4, 1, 0], [8, 5, 0], [5, 4, 6]]);
        assert_eq!(condition(DType::Bool, &[], &[]).map(|t| t.is_flag()), Some(true));
    }

    #[test]
    fn everything_else_is_left_to_kernels() {
        assert_eq!(condition(DType::F32, &[2], &[("less", &[0, 1])]), None, "two elements");
        assert_eq!(condition(DType::F32, &[], &[("exp", &[0]), ("less", &[2, 1])]), None, "arithmetic");
        assert_eq!(condition(DType::F8E4M3, &[], &[]), None, "a type that it has not");
    }

    #[test]
    fn the_parameter_has_room_for_the_longest() {
        let mut p = Vec::new();
        DeviceCondition { leaves: vec![(1, 2)], steps: vec![[0; 3]; STEPS] }.put(&mut p);
        assert_eq!(p.len(), 8 + LEAVES * 16 + STEPS * 4);
    }
}
