//! Functions that are compiled for several instruction sets, of which the processor's best runs.

/// Instruction sets that functions are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Instructions that every processor of the architecture has.
    Base,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
}

/// The greatest level that this processor has.
pub fn level() -> Level {
    #[cfg(target_arch = "x86_64")]
    {
        use std::is_x86_feature_detected as has;
        if has!("avx2") && has!("fma") && has!("f16c") {
            let wide = has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
            return if wide { Level::Avx512 } else { Level::Avx2 };
        }
    }
    Level::Base
}

/// Defines a function that is compiled for each [`Level`]. Its body is plain Rust whose loops the compiler turns into vectors.
/// `FMA` in it says whether the level has fused multiply-add.
macro_rules! vectorized {
    ($(#[$m:meta])* $vis:vis fn $name:ident $(<$($g:ident : $b:path),+>)? ($($a:ident : $t:ty),* $(,)?) $(-> $r:ty)? $body:block) => {
        $(#[$m])*
        #[allow(clippy::too_many_arguments, reason = "loops over several tensors")]
        $vis fn $name $(<$($g: $b),+>)? ($($a: $t),*) $(-> $r)? {
            #[allow(clippy::too_many_arguments, reason = "as above")]
            #[inline(always)]
            fn body<const FMA: bool $($(, $g: $b)+)?> ($($a: $t),*) $(-> $r)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[allow(clippy::too_many_arguments, reason = "as above")]
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
                fn avx512 $(<$($g: $b),+>)? ($($a: $t),*) $(-> $r)? {
                    body::<true $($(, $g)+)?>($($a),*)
                }
                #[allow(clippy::too_many_arguments, reason = "as above")]
                #[target_feature(enable = "avx2,fma,f16c")]
                fn avx2 $(<$($g: $b),+>)? ($($a: $t),*) $(-> $r)? {
                    body::<true $($(, $g)+)?>($($a),*)
                }
                match $crate::fast::simd::level() {
                    // SAFETY: the processor has these features, as `level` says.
                    $crate::fast::simd::Level::Avx512 => return unsafe { avx512($($a),*) },
                    // SAFETY: as above.
                    $crate::fast::simd::Level::Avx2 => return unsafe { avx2($($a),*) },
                    $crate::fast::simd::Level::Base => {}
                }
            }
            body::<false $($(, $g)+)?>($($a),*)
        }
    };
}
pub(crate) use vectorized;
