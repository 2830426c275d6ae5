//! Casts from f32 to narrower floats, and of bytes to halves of bytes.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use kiln_ir::{DType, Op, Tensor};
use kiln_ops::cast::CAST;
use rayon::prelude::*;

/// Elements that are worth a thread.
const SHARE: usize = 1 << 16;
/// Elements that are converted at once.
const SOME: usize = 256;

/// Result of a `cast` from f32 to f16 or bf16, or from bytes to i4; none of other operators.
pub fn converted(op: &Op, x: &Tensor) -> Option<Tensor> {
    let to = op.attrs().dtype("to").ok().filter(|_| op.is(CAST))?;
    match (x.dtype(), to) {
        (DType::U8 | DType::I8, DType::I4) => {
            let pairs = x.bytes().chunks(2).map(|p| p[0] & 15 | p.get(1).map_or(0, |high| high << 4));
            Tensor::from_bytes(DType::I4, x.shape(), pairs.collect::<Vec<u8>>())
        }
        (DType::F32, DType::F16) => narrowed(x, to, |from, to: &mut [f16]| to.convert_from_f32_slice(from)),
        (DType::F32, DType::BF16) => narrowed(x, to, |from, to: &mut [bf16]| {
            from.iter().zip(to).for_each(|(x, y)| *y = bf16::from_f32(*x));
        }),
        _ => None,
    }
}

/// The elements by a function of equally many elements.
fn narrowed<T>(x: &Tensor, to: DType, convert: impl Fn(&[f32], &mut [T]) + Sync) -> Option<Tensor>
where
    T: bytemuck::Pod + Default,
{
    let (from, _) = x.bytes().as_chunks::<4>();
    let mut out = vec![0; from.len() * 2];
    from.par_chunks(SHARE).zip(out.par_chunks_mut(SHARE * 2)).for_each(|(from, to)| {
        let (mut wide, mut narrow) = ([0f32; SOME], [T::default(); SOME]);
        for (from, to) in from.chunks(SOME).zip(to.chunks_mut(SOME * 2)) {
            let n = from.len();
            wide.iter_mut().zip(from).for_each(|(x, bytes)| *x = f32::from_le_bytes(*bytes));
            convert(&wide[..n], &mut narrow[..n]);
            to.copy_from_slice(bytemuck::cast_slice(&narrow[..n]));
        }
    });
    Tensor::from_bytes(to, x.shape(), out)
}
