//! A quick look at the contents of index inputs, which almost always are in range.

use super::simd::vectorized;
use crate::value::Val;
use kiln_ir::DType;
use kiln_ir::range::IndexRange;

/// Whether all elements are within the bounds. False of some that are excepted, and of types that are not read here.
pub fn all_inside(range: &IndexRange, v: &Val) -> bool {
    match (v.dtype(), &range.bounds[..], v.view::<i64>(), v.view::<i32>()) {
        (DType::I64, [(low, high)], Some(x), _) => inside(x, *low, *high),
        (DType::I64, bounds, Some(x), _) => x
            .chunks(bounds.len().max(1))
            .all(|x| x.iter().zip(bounds).all(|(x, (low, high))| (low..=high).contains(&x))),
        (DType::I32, [(low, high)], _, Some(x)) => inside_short(x, *low, *high),
        _ => false,
    }
}

vectorized! {
    fn inside(x: &[i64], low: i64, high: i64) -> bool {
        let mut outside = 0;
        for x in x {
            outside |= i64::from(*x < low) | i64::from(*x > high);
        }
        outside == 0
    }
}

vectorized! {
    fn inside_short(x: &[i32], low: i64, high: i64) -> bool {
        let mut outside = 0;
        for x in x {
            outside |= i64::from(i64::from(*x) < low) | i64::from(i64::from(*x) > high);
        }
        outside == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_ir::Tensor;

    #[test]
    fn one_element_beyond_a_bound_is_found() {
        let of = |x: &[i64]| {
            Val::shared(
                Tensor::from_bytes(DType::I64, &[x.len()], bytemuck::cast_slice::<i64, u8>(x).to_vec())
                    .unwrap(),
            )
        };
        let short = |x: &[i32]| {
            Val::shared(
                Tensor::from_bytes(DType::I32, &[x.len()], bytemuck::cast_slice::<i32, u8>(x).to_vec())
                    .unwrap(),
            )
        };
        let one = IndexRange::signed(1, 7);
        let mut x: Vec<i64> = (0..50).map(|i| i % 14 - 7).collect();
        assert!(all_inside(&one, &of(&x)) && all_inside(&one, &of(&[])));
        assert!(
            all_inside(&one, &short(&[6, -7]))
                && !all_inside(&one, &short(&[0, 7]))
                && !all_inside(&one, &short(&[-8]))
        );
        for bad in [7, -8, i64::MAX, i64::MIN] {
            x[31] = bad;
            assert!(!all_inside(&one, &of(&x)), "{bad}");
        }
        let pairs = IndexRange::tuples(1, &[3, 9]);
        assert!(all_inside(&pairs, &of(&[2, 8, -3, -9])) && !all_inside(&pairs, &of(&[0, 0, 3, 0])));
    }
}
