// Packed element types: words to values and back. Every value is an f32, an i32 or a bool in registers.

fn cf(bits: u32) -> f32 {
    return bitcast<f32>(bits);
}

fn ci64(high: u32, low: u32) -> i64 {
    // Halves that fit an i32: some compilers extend the sign of a u32.
    return (i64(high) << 32u) | (i64(low >> 16u) << 16u) | i64(low & 0xffffu);
}

fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn is_inf(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u;
}

fn f16_to_f32(h: u32) -> f32 {
    let sign = (h & 0x8000u) << 16u;
    let e = (h >> 10u) & 31u;
    let m = h & 0x3ffu;
    if (e == 0u) {
        return bitcast<f32>(sign | bitcast<u32>(f32(m) * 5.9604644775390625e-8));
    }
    if (e == 31u) {
        return bitcast<f32>(sign | 0x7f800000u | (m << 13u));
    }
    return bitcast<f32>(sign | ((e + 112u) << 23u) | (m << 13u));
}

// Rounds to nearest even; overflows to infinity; NaN becomes the quiet NaN.
fn f32_to_f16(x: f32) -> u32 {
    let b = bitcast<u32>(x);
    let sign = (b >> 16u) & 0x8000u;
    let a = b & 0x7fffffffu;
    if (a > 0x7f800000u) {
        return sign | 0x7e00u;
    }
    if (a >= 0x477ff000u) {
        return sign | 0x7c00u;
    }
    if (a < 0x33000001u) {
        return sign;
    }
    if (a < 0x38800000u) {
        return sign | shift_round((a & 0x7fffffu) | 0x800000u, 126u - (a >> 23u));
    }
    let odd = (a >> 13u) & 1u;
    return sign | ((a + 0xfffu + odd - 0x38000000u) >> 13u);
}

// x / 2^n to the nearest integer, ties to even; 0 < n < 32.
fn shift_round(x: u32, n: u32) -> u32 {
    let q = x >> n;
    let rest = x & ((1u << n) - 1u);
    let half = 1u << (n - 1u);
    let up = rest > half || (rest == half && (q & 1u) == 1u);
    return q + select(0u, 1u, up);
}

fn bf16_to_f32(h: u32) -> f32 {
    return bitcast<f32>(h << 16u);
}

fn f32_to_bf16(x: f32) -> u32 {
    let b = bitcast<u32>(x);
    if ((b & 0x7fffffffu) > 0x7f800000u) {
        return (b >> 16u) | 0x40u;
    }
    return (b + 0x7fffu + ((b >> 16u) & 1u)) >> 16u;
}

fn f8e4m3_to_f32(h: u32) -> f32 {
    let sign = (h & 0x80u) << 24u;
    let e = (h >> 3u) & 15u;
    let m = h & 7u;
    if ((h & 0x7fu) == 0x7fu) {
        return bitcast<f32>(sign | 0x7fc00000u);
    }
    if (e == 0u) {
        return bitcast<f32>(sign | bitcast<u32>(f32(m) * 0.001953125));
    }
    return bitcast<f32>(sign | ((e + 120u) << 23u) | (m << 20u));
}

// Rounds to nearest even; saturates to 448.
fn f32_to_f8e4m3(x: f32) -> u32 {
    let b = bitcast<u32>(x);
    let sign = (b >> 24u) & 0x80u;
    let a = b & 0x7fffffffu;
    if (a > 0x7f800000u) {
        return sign | 0x7fu;
    }
    if (a >= 0x43e00000u) {
        return sign | 0x7eu;
    }
    if (a < 0x3a000000u) {
        return sign;
    }
    if (a < 0x3c800000u) {
        return sign | shift_round((a & 0x7fffffu) | 0x800000u, 141u - (a >> 23u));
    }
    let odd = (a >> 20u) & 1u;
    return sign | min((a + 0x7ffffu + odd - 0x3c000000u) >> 20u, 0x7eu);
}

fn round_f16(x: f32) -> f32 {
    return f16_to_f32(f32_to_f16(x));
}

fn round_bf16(x: f32) -> f32 {
    return bf16_to_f32(f32_to_bf16(x));
}

fn round_f8e4m3(x: f32) -> f32 {
    return f8e4m3_to_f32(f32_to_f8e4m3(x));
}
