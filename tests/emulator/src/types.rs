//! Types of PTX, and values in registers: bits, from bit 0 on, with zeros above them.

/// Number of threads of a warp.
pub const LANES: usize = 32;

/// One register of a warp: a value of each thread.
pub type Lanes = [u64; LANES];

/// Type in the name of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Pred,
    Bits(u32),
    Unsigned(u32),
    Signed(u32),
    F16,
    Bf16,
    F32,
    F64,
    F16x2,
    Bf16x2,
    E4m3x2,
    E5m2x2,
    Tf32,
}

impl Type {
    /// Returns the type of a part of an instruction's name.
    pub fn of(text: &str) -> Option<Type> {
        Some(match text {
            "pred" => Type::Pred,
            "f16" => Type::F16,
            "bf16" => Type::Bf16,
            "f32" => Type::F32,
            "f64" => Type::F64,
            "f16x2" => Type::F16x2,
            "bf16x2" => Type::Bf16x2,
            "e4m3x2" => Type::E4m3x2,
            "e5m2x2" => Type::E5m2x2,
            "tf32" => Type::Tf32,
            _ => {
                let bits = text.get(1..)?.parse().ok().filter(|n| [8, 16, 32, 64].contains(n))?;
                match text.as_bytes().first()? {
                    b'b' => Type::Bits(bits),
                    b'u' => Type::Unsigned(bits),
                    b's' => Type::Signed(bits),
                    _ => return None,
                }
            }
        })
    }

    /// Number of bits.
    pub fn bits(self) -> u32 {
        match self {
            Type::Pred => 1,
            Type::Bits(n) | Type::Unsigned(n) | Type::Signed(n) => n,
            Type::F16 | Type::Bf16 | Type::E4m3x2 | Type::E5m2x2 => 16,
            Type::F32 | Type::F16x2 | Type::Bf16x2 | Type::Tf32 => 32,
            Type::F64 => 64,
        }
    }

    /// Number of bytes in memory.
    pub fn bytes(self) -> u32 {
        self.bits().div_ceil(8)
    }

    /// Whether values are negative where the highest bit is set.
    pub fn is_signed(self) -> bool {
        matches!(self, Type::Signed(_))
    }

    /// Whether the type has one floating-point number.
    pub fn is_float(self) -> bool {
        matches!(self, Type::F16 | Type::Bf16 | Type::F32 | Type::F64)
    }

    /// Bits of the type alone.
    pub fn mask(self) -> u64 {
        mask(self.bits())
    }
}

/// The lowest bits.
pub fn mask(bits: u32) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// An integer of so many bits with its sign.
pub fn signed(x: u64, bits: u32) -> i64 {
    let aside = 64 - bits.clamp(1, 64);
    ((x << aside) as i64) >> aside
}
