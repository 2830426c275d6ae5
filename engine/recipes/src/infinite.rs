//! Elements that became infinite.

use kiln_ir::{DType, Tensor};
use rayon::prelude::*;

/// Elements that are worth a thread.
const SHARE: usize = 1 << 17;

/// Whether a tensor of f16 or bf16 has elements that are infinite; false for other types.
pub fn has_infinity(t: &Tensor) -> bool {
    let infinite: u16 = match t.dtype() {
        DType::F16 => 0x7c00,
        DType::BF16 => 0x7f80,
        _ => return false,
    };
    let (all, _) = t.bytes().as_chunks::<2>();
    let found = |bytes: &[u8; 2]| u16::from_le_bytes(*bytes) & 0x7fff == infinite;
    // No early end within a share, so that the loop is one over vectors.
    all.par_chunks(SHARE).any(|share| share.iter().fold(false, |any, e| any | found(e)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed test panics")]
mod tests {
    use super::*;
    use kiln_ir::Elems;

    #[test]
    fn only_infinity_is_found() {
        for t in [DType::F16, DType::BF16] {
            let of = |x: f64| {
                let mut all = vec![1.0; 3 * SHARE];
                all[2 * SHARE + 5] = x;
                has_infinity(&Tensor::from_elems(t, &[all.len()], &Elems::F(all)).unwrap())
            };
            assert!(of(f64::INFINITY) && of(f64::NEG_INFINITY) && of(1e39));
            assert!(!of(f64::NAN) && !of(0.0) && !of(65_000.0));
        }
        assert!(!has_infinity(&Tensor::f32(&[1], &[f32::INFINITY]).unwrap()));
    }
}
