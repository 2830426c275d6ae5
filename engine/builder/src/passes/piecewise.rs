//! Pointwise layers of large constants, evaluated piece by piece: the oracle widens all elements to 64 bits, and would take
//! several times the memory of a weight at once.

use kiln_ir::{Node, OpError, Tensor};

/// Bytes of a result that are made at once.
const PIECE: usize = 1 << 20;

/// The result of a pointwise layer; `None` where it is small or cannot be cut along its first dimension.
pub fn piecewise(node: &Node, inputs: &[Option<Tensor>], shape: &[usize]) -> Option<Result<Tensor, OpError>> {
    let (&rows, rest) = shape.split_first()?;
    let given: Vec<&Tensor> = inputs.iter().map(Option::as_ref).collect::<Option<_>>()?;
    let largest = given.iter().map(|t| t.bytes().len()).max()?;
    if !node.op.is_pointwise() || rows < 2 || largest <= PIECE {
        return None;
    }
    let each = PIECE.checked_div(largest / rows)?.clamp(1, rows);
    // Cut are those that have all rows; others are the same for each row.
    let cut = |t: &Tensor| t.shape().len() == shape.len() && t.shape().first() == Some(&rows);
    if !given.iter().all(|t| if cut(t) { t.dtype().bits() % 8 == 0 } else { t.bytes().len() <= PIECE }) {
        return None;
    }
    let mut whole: Option<(kiln_ir::DType, Vec<u8>)> = None;
    for from in (0..rows).step_by(each) {
        let count = each.min(rows - from);
        let part = |t: &&Tensor| -> Option<Tensor> {
            if !cut(t) {
                return Some((*t).clone());
            }
            let row = t.bytes().len() / rows;
            let own = [&[count], t.shape().get(1..)?].concat();
            Tensor::from_bytes(t.dtype(), &own, t.shared_bytes().slice(from * row, count * row)?)
        };
        let parts: Vec<Option<Tensor>> =
            given.iter().map(part).map(|t| t.map(Some)).collect::<Option<_>>()?;
        let made = match node.op.eval(&parts) {
            Ok(outs) => outs.into_iter().next()?,
            Err(e) => return Some(Err(e)),
        };
        if made.dtype().bits() % 8 != 0 || made.shape() != [&[count], rest].concat() {
            return None;
        }
        let (_, bytes) = whole.get_or_insert_with(|| {
            let row = made.bytes().len() / count;
            (made.dtype(), Vec::with_capacity(row * rows))
        });
        bytes.extend_from_slice(made.bytes());
    }
    let (dtype, bytes) = whole?;
    Tensor::from_bytes(dtype, shape, bytes).map(Ok)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a failed test panics")]
mod tests {
    use super::*;
    use kiln_ir::problem::Rng;
    use kiln_ir::{DType, Graph};

    #[test]
    fn pieces_are_what_the_oracle_makes_of_the_whole() {
        let mut rng = Rng::new(5);
        for (layer, inputs) in [
            ("mul(%a, %b)", [(DType::F32, vec![1001, 700]), (DType::F32, vec![1001, 1])]),
            ("add(%a, %b)", [(DType::F32, vec![700]), (DType::F32, vec![1001, 700])]),
            ("less(%a, %b)", [(DType::F16, vec![1001, 700]), (DType::F16, vec![1, 700])]),
            ("max(%a, %b)", [(DType::I64, vec![3, 99_999]), (DType::I64, vec![])]),
        ] {
            let ty = |(t, s): &(DType, Vec<usize>)| {
                let dims: Vec<String> = s.iter().map(ToString::to_string).collect();
                format!("{t}[{}]", dims.join(","))
            };
            let [a, b] = [0, 1].map(|i| ty(&inputs[i]));
            let text = format!("graph \"g\" {{ input %a: {a} input %b: {b} %y = {layer} output %y }}");
            let g = Graph::from_text(&text).unwrap_or_else(|e| panic!("{e}"));
            let (_, node) = g.nodes().next().unwrap();
            let given: Vec<_> = inputs.iter().map(|(t, s)| Some(rng.tensor(*t, s))).collect();
            let wanted = node.op.eval(&given).unwrap().remove(0);
            let found = piecewise(node, &given, wanted.shape()).unwrap().unwrap();
            assert_eq!(found, wanted, "{layer}");
        }
        let g = Graph::from_text("graph \"g\" { input %a: f32[2,2] %y = neg(%a) output %y }").unwrap();
        let small = [Some(rng.tensor(DType::F32, &[2, 2]))];
        assert!(piecewise(g.nodes().next().unwrap().1, &small, &[2, 2]).is_none());
    }
}
