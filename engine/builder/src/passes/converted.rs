//! Casts of constants from f32 to narrower floats, by all processors, and of bytes to halves of bytes: large weights get no second
//! form in 64 bits on the way.

use kiln_ir::{DType, Node, Tensor, float};
use kiln_ops::cast::CAST;
use rayon::prelude::*;

/// Elements that are worth a thread.
const SHARE: usize = 1 << 18;

/// Result of a `cast` of a constant from f32 to f16 or bf16, or from bytes to i4, bit by bit as the oracle; `None` for other layers.
pub fn converted(node: &Node, x: &Tensor) -> Option<Tensor> {
    if node.op.is(CAST) && node.op.attrs().dtype("to") == Ok(DType::I4) {
        let bytes = matches!(x.dtype(), DType::U8 | DType::I8).then(|| x.bytes())?;
        let pairs = bytes.chunks(2).map(|p| p[0] & 15 | p.get(1).map_or(0, |high| high << 4));
        return Tensor::from_bytes(DType::I4, x.shape(), pairs.collect::<Vec<u8>>());
    }
    let to = node.op.attrs().dtype("to").ok().filter(|_| node.op.is(CAST) && x.dtype() == DType::F32)?;
    let bits: fn(f64) -> u16 = match to {
        DType::F16 => float::f16_bits,
        DType::BF16 => float::bf16_bits,
        _ => return None,
    };
    let (from, _) = x.bytes().as_chunks::<4>();
    let mut out = vec![0; from.len() * 2];
    from.par_chunks(SHARE).zip(out.par_chunks_mut(SHARE * 2)).for_each(|(from, to)| {
        for (x, y) in from.iter().zip(to.as_chunks_mut::<2>().0) {
            *y = bits(f32::from_le_bytes(*x).into()).to_le_bytes();
        }
    });
    Tensor::from_bytes(to, x.shape(), out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::problem::Rng;
    use kiln_ir::{Attrs, Fact, Graph, Op};

    /// Found, and the oracle's.
    fn cast(x: &Tensor, to: DType) -> (Option<Tensor>, Tensor) {
        let mut g = Graph::new("t");
        let v = g.add_input("x", Fact::of(x.ty()));
        let op = Op::new("cast", Attrs::new().with("to", to)).unwrap_or_else(|e| panic!("{e}"));
        let y = g.add_node("y", op, &[Some(v)]).unwrap_or_else(|e| panic!("{e}"));
        g.outputs = y;
        let found = g.nodes().next().and_then(|(_, n)| converted(n, x));
        let mut wanted = g.eval(std::slice::from_ref(x)).unwrap_or_else(|e| panic!("{e}"));
        (found, wanted.remove(0))
    }

    #[test]
    fn bytes_are_cut_as_the_oracle_cuts_them() {
        for (t, n) in [(DType::U8, 7), (DType::I8, 8), (DType::U8, 0)] {
            let x = Rng::new(3).tensor_in(t, &[n], 0.0, 0.0, 100);
            let (found, wanted) = cast(&x, DType::I4);
            assert_eq!(found.as_ref(), Some(&wanted), "{t}");
        }
    }

    #[test]
    fn it_gives_what_the_oracle_gives() {
        let mut rng = Rng::new(7);
        let odd =
            [f32::NAN, -f32::NAN, f32::INFINITY, -0.0, 1e-45, 6e-8, 65519.9, 65520.0, f32::MAX, 1.000_488_3];
        let odd = Tensor::f32(&[odd.len()], &odd).unwrap_or_else(|| panic!("{odd:?}"));
        let many = rng.tensor(DType::F32, &[3, SHARE / 2 + 1]);
        for x in [odd, many, rng.tensor(DType::F32, &[0, 2]), rng.tensor(DType::F32, &[])] {
            for to in [DType::F16, DType::BF16] {
                let (found, wanted) = cast(&x, to);
                assert_eq!(found.as_ref(), Some(&wanted), "{to}");
            }
        }
    }

    #[test]
    fn other_casts_are_left_to_the_oracle() {
        let mut rng = Rng::new(3);
        assert_eq!(cast(&rng.tensor(DType::F32, &[4]), DType::I32).0, None);
        assert_eq!(cast(&rng.tensor(DType::F16, &[4]), DType::BF16).0, None);
    }
}
