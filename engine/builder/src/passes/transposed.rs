//! Transposes of constants byte by byte: large weights get no second form in f64 on the way.

use super::transposes::order;
use kiln_ir::{DType, Node, Tensor};
use kiln_ops::transpose::TRANSPOSE;

/// Result of a `transpose` of a constant; `None` for other layers.
pub fn transposed(node: &Node, x: &Tensor) -> Option<Tensor> {
    if x.dtype() == DType::I4 && node.op.is(TRANSPOSE) {
        // Elements that share bytes get one each on the way.
        let each = x.bytes().iter().flat_map(|b| [b & 15, b >> 4]).take(x.len());
        let turned = transposed(node, &Tensor::from_bytes(DType::U8, x.shape(), each.collect::<Vec<u8>>())?)?;
        let pairs = turned.bytes().chunks(2).map(|p| p[0] | p.get(1).map_or(0, |high| high << 4));
        return Tensor::from_bytes(DType::I4, turned.shape(), pairs.collect::<Vec<u8>>());
    }
    let width = usize::try_from(x.dtype().bits()).ok().filter(|b| b % 8 == 0)? / 8;
    let perm = order(node.op.attrs(), x.shape().len()).filter(|_| node.op.is(TRANSPOSE))?;
    let mut stride = width;
    let mut strides = vec![0; perm.len()];
    for (s, &n) in strides.iter_mut().zip(x.shape()).rev() {
        *s = stride;
        stride *= n;
    }
    let axes: Vec<(usize, usize)> = perm.iter().map(|&p| (x.shape()[p], strides[p])).collect();
    let shape: Vec<usize> = axes.iter().map(|a| a.0).collect();
    let mut out = Vec::with_capacity(x.bytes().len());
    let mut index = vec![0; axes.len()];
    let mut at = 0;
    while out.len() < x.bytes().len() {
        out.extend_from_slice(x.bytes().get(at..at + width)?);
        for (i, &(n, step)) in index.iter_mut().zip(&axes).rev() {
            *i += 1;
            at += step;
            if *i < n {
                break;
            }
            at -= n * step;
            *i = 0;
        }
    }
    Tensor::from_bytes(x.dtype(), &shape, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::problem::Rng;
    use kiln_ir::{Attrs, Fact, Graph, Op};

    #[test]
    fn it_gives_what_the_oracle_gives() {
        let mut rng = Rng::new(7);
        for t in [DType::F32, DType::F16, DType::I8, DType::I64, DType::I4] {
            for (shape, perm) in [
                (&[2, 3, 5, 7][..], &[0i64, 2, 3, 1][..]),
                (&[3, 4], &[]),
                (&[4, 0, 2], &[2, 0, 1]),
                (&[], &[]),
                (&[5, 1, 2], &[-1, 0, 1]),
            ] {
                let x = rng.tensor(t, shape);
                let mut g = Graph::new("t");
                let v = g.add_input("x", Fact::of(x.ty()));
                let op = Op::new("transpose", Attrs::new().with("perm", perm.to_vec()))
                    .unwrap_or_else(|e| panic!("{e}"));
                assert!(g.add_node("y", op, &[Some(v)]).is_ok());
                let node = g.nodes().next().map(|n| n.1);
                let found = node.and_then(|n| transposed(n, &x));
                let wanted = node.and_then(|n| n.eval(&[Some(x.clone())]).ok()).and_then(|mut o| o.pop());
                assert!(found.is_some() && found == wanted, "{t}{shape:?} by {perm:?}");
            }
        }
    }
}
