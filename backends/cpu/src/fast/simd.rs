//! Functions that are compiled for several instruction sets, of which the processor's best runs.

use kiln_backend::BackendError;
use std::sync::OnceLock;

/// Variable of the environment that limits the level: "base", "avx2" or "avx512". "amx" allows all, as no text does.
const LIMIT: &str = "KILN_CPU_LEVEL";
/// The name of everything: AVX-512 and the matrix unit.
const ALL: &str = "amx";

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

/// The levels with their names.
const NAMES: [(&str, Level); 3] = [("base", Level::Base), ("avx2", Level::Avx2), ("avx512", Level::Avx512)];

impl Level {
    /// The levels that this processor has, from the lowest on.
    #[cfg(test)]
    pub fn all() -> impl Iterator<Item = Level> {
        NAMES.into_iter().map(|(_, l)| l).filter(|&l| l <= Level::of_processor())
    }

    /// Bits of the vectors.
    pub fn bits(self) -> u64 {
        128 << self as u64
    }

    fn of_processor() -> Level {
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

    /// The greatest level that this processor has, and that the text allows, if there is one; an error for a text that names none.
    fn limited(text: Option<&str>) -> Result<Level, BackendError> {
        let own = Level::of_processor();
        let Some(text) = text else { return Ok(own) };
        match NAMES.iter().find(|(name, _)| *name == text) {
            None if text == ALL => Ok(own),
            Some((_, limit)) => Ok(own.min(*limit)),
            None => Err(BackendError::InvalidArgument(format!(
                "{LIMIT} is {text:?}; it limits the instruction sets of the cpu backend to \"base\", \"avx2\", \"avx512\" or \"amx\""
            ))),
        }
    }
}

/// The level that the environment asks for, at most the processor's.
pub fn asked() -> Result<Level, BackendError> {
    Level::limited(limit().as_deref())
}

/// The text of the environment, if there is one.
fn limit() -> Option<String> {
    std::env::var_os(LIMIT).map(|v| v.to_string_lossy().into_owned())
}

/// Whether the environment allows the matrix unit. It has no level of its own, as few kernels have a form for it.
#[cfg(target_arch = "x86_64")]
pub fn allows_matrix_unit() -> bool {
    limit().is_none_or(|text| text == ALL)
}

/// The level that functions run at, found once. Devices are not opened where the environment's text is wrong.
pub fn level() -> Level {
    static LEVEL: OnceLock<Level> = OnceLock::new();
    *LEVEL.get_or_init(|| asked().unwrap_or_else(|_| Level::of_processor()))
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
                    $crate::fast::simd::Level::Avx512 => return unsafe { avx512 $(::<$($g),+>)? ($($a),*) },
                    // SAFETY: as above.
                    $crate::fast::simd::Level::Avx2 => return unsafe { avx2 $(::<$($g),+>)? ($($a),*) },
                    $crate::fast::simd::Level::Base => {}
                }
            }
            body::<false $($(, $g)+)?>($($a),*)
        }
    };
}
pub(crate) use vectorized;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_limited_by_name() {
        let own = Level::of_processor();
        assert_eq!(Level::limited(None).unwrap(), own);
        assert_eq!(Level::limited(Some("base")).unwrap(), Level::Base);
        assert_eq!(Level::limited(Some("avx2")).unwrap(), own.min(Level::Avx2));
        assert_eq!(Level::limited(Some("avx512")).unwrap(), own);
        assert_eq!(Level::limited(Some("amx")).unwrap(), own);
        let wrong = Level::limited(Some("sse9")).unwrap_err().to_string();
        assert!(wrong.contains("sse9") && wrong.contains("\"base\""), "{wrong}");
        assert_eq!([Level::Base, Level::Avx2, Level::Avx512].map(Level::bits), [128, 256, 512]);
    }
}
