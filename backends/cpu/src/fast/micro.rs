//! The innermost loop of matrix products, for the widest vectors that the processor has.

/// A kernel that multiplies packed panels of `mr` rows and `nr` columns.
#[derive(Clone, Copy)]
pub struct Micro {
    /// Rows of a tile.
    pub mr: usize,
    /// Columns of a tile.
    pub nr: usize,
    run: fn(&[f32], &[f32], &mut [f32]),
}

/// Room for a tile of any kernel.
pub const TILE: usize = 12 * 32;

impl Micro {
    /// The best kernel of this processor.
    pub fn best() -> Micro {
        #[cfg(target_arch = "x86_64")]
        {
            if std::is_x86_feature_detected!("avx512f") {
                return Micro { mr: 12, nr: 32, run: x86::avx512 };
            }
            if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
                return Micro { mr: 6, nr: 16, run: x86::avx2 };
            }
        }
        Micro { mr: 4, nr: 8, run: tile::<4, 8, false> }
    }

    /// `out[i·nr + j] = Σₖ a[k·mr + i] · b[k·nr + j]`, k in order.
    pub fn run(&self, a: &[f32], b: &[f32], out: &mut [f32]) {
        (self.run)(a, b, out);
    }
}

#[inline(always)]
fn tile<const MR: usize, const NR: usize, const FMA: bool>(a: &[f32], b: &[f32], out: &mut [f32]) {
    let mut c = [[0f32; NR]; MR];
    for (x, y) in a.as_chunks::<MR>().0.iter().zip(b.as_chunks::<NR>().0) {
        for i in 0..MR {
            for j in 0..NR {
                c[i][j] = if FMA { x[i].mul_add(y[j], c[i][j]) } else { x[i] * y[j] + c[i][j] };
            }
        }
    }
    for (row, c) in out.as_chunks_mut::<NR>().0.iter_mut().zip(&c) {
        *row = *c;
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::tile;

    pub fn avx512(a: &[f32], b: &[f32], out: &mut [f32]) {
        #[target_feature(enable = "avx512f,avx2,fma")]
        fn run(a: &[f32], b: &[f32], out: &mut [f32]) {
            tile::<12, 32, true>(a, b, out);
        }
        // SAFETY: this kernel is chosen only where the processor has AVX-512 (which contains AVX2 and FMA).
        unsafe { run(a, b, out) }
    }

    pub fn avx2(a: &[f32], b: &[f32], out: &mut [f32]) {
        #[target_feature(enable = "avx2,fma")]
        fn run(a: &[f32], b: &[f32], out: &mut [f32]) {
            tile::<6, 16, true>(a, b, out);
        }
        // SAFETY: this kernel is chosen only where the processor has AVX2 and FMA.
        unsafe { run(a, b, out) }
    }
}
