// Scalar functions of expressions. NaN goes through min and max; comparisons are those of IEEE 754.
#pragma once
#include "storage.cuh"

DEV f32 kmin(f32 a, f32 b) {
    f32 y;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}
DEV f32 kmax(f32 a, f32 b) {
    f32 y;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}
DEV bool feq(f32 a, f32 b) { return a == b; }
DEV bool flt(f32 a, f32 b) { return a < b; }
DEV bool fle(f32 a, f32 b) { return a <= b; }
DEV bool fnonzero(f32 x) { return (__float_as_uint(x) & 0x7fffffffu) != 0u; }
DEV f32 fsign(f32 x) { return is_nan(x) || !fnonzero(x) ? x : copysignf(1.0f, x); }
DEV f32 nearest(f32 x) { return rintf(x); }
DEV f32 fract(f32 x) { return x - floorf(x); }

// Toward zero, saturating; NaN gives 0.
DEV i32 f_to_i32(f32 x) { return is_nan(x) ? 0 : __float2int_rz(x); }
DEV i64 f_to_i64(f32 x) { return is_nan(x) ? 0 : __float2ll_rz(x); }

// 1.5 times 2^23: f32 near it counts by 1, with the number in the low bits.
#define COUNTING 12582912.0f
#define COUNTING_BITS 0x4b400000

// A number of up to 22 bits, as those of small integer types. Conversions, which a compiler would make of this, take four times as long.
DEV f32 code_to_f32(i32 x) {
    f32 counted;
    asm("{.reg .b32 b;\n add.s32 b, %1, 0x4b400000;\n mov.b32 %0, b;}" : "=f"(counted) : "r"(x));
    return counted - COUNTING;
}

// A divisor of many numbers, with what follows from it. Steps without an exact reciprocal are scaled. The reciprocal is exact: one step
// of Newton's method corrects the hardware's.
struct CodeStep {
    f32 size, by, divisor, reciprocal, most;

    DEV explicit CodeStep(f32 step) : size(step) {
        const f32 large = fabsf(step);
        by = large < 1.0e-36f ? 1.15292150e18f : large > 1.0e36f ? 8.67361738e-19f : 1.0f;
        divisor = step * by;
        f32 near;
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(near) : "f"(divisor));
        const f32 rest = __fmaf_rn(-near, divisor, 1.0f);
        reciprocal = fabsf(rest) < 1.0f ? __fmaf_rn(near, rest, near) : near;
        // Quotients beyond all limits need no correction, and those by an infinity have none.
        most = large < cf(0x7f800000u) ? 4194304.0f : -1.0f;
    }

    DEV operator f32() const { return size; }
};

// x / step as a division rounds it, where that matters to codes of 8 bits: between 2^-100 and 2^22.
DEV f32 code_quotient(f32 x, const CodeStep& step) {
    const f32 scaled = x * step.by;
    const f32 near = scaled * step.reciprocal;
    const f32 exact = __fmaf_rn(__fmaf_rn(-near, step.divisor, scaled), step.reciprocal, near);
    return fabsf(near) < step.most ? exact : near;
}
DEV f32 code_quotient(f32 x, f32 step) { return code_quotient(x, CodeStep(step)); }

// The nearest integer to x / step, more by `zero`, between `lo` and `hi`; 0 for NaN. `zero` and the limits are small integers.
template <class S> DEV i32 code_of(f32 x, const S& step, f32 zero, f32 lo, f32 hi) {
    const f32 q = code_quotient(x, step);
    const f32 limited = kmin(kmax(q, lo - zero), hi - zero);
    const i32 code = __float_as_int(limited + COUNTING) - COUNTING_BITS + __float2int_rz(zero);
    return feq(q, q) ? code : 0;
}

// An integer that is to be a code of type T: the nearest one that T has.
template <class T> struct Whole {
    i32 v;
    static constexpr i32 LEAST = T(-1) < T(0) ? -128 : 0;
    DEV operator i32() const { return ::min(::max(v, LEAST), LEAST + 255); }
};

// The code of type T nearest to x / step; 0 for NaN. The conversion to an integer has limits of its own.
template <class T> DEV Whole<T> code_in(f32 x, const CodeStep& step) {
    i32 v;
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(v) : "f"(code_quotient(x, step)));
    return Whole<T>{v};
}
template <class T> DEV i32 code_in(f32 x, f32 step) {
    constexpr f32 LEAST = f32(Whole<T>::LEAST);
    return code_of(x, step, 0.0f, LEAST, LEAST + 255.0f);
}

// Four codes as a word: hardware limits them where that was not done.
template <class T, class C> DEV u32 word_of_codes(C a, C b, C c, C d) {
    return u32(u8(a)) | u32(u8(b)) << 8 | u32(u8(c)) << 16 | u32(u8(d)) << 24;
}
template <> DEV u32 word_of_codes<i8, Whole<i8>>(Whole<i8> a, Whole<i8> b, Whole<i8> c, Whole<i8> d) {
    u32 word;
    asm("{.reg .b32 high;\n cvt.pack.sat.s8.s32.b32 high, %4, %3, 0;\n cvt.pack.sat.s8.s32.b32 %0, %2, %1, high;}"
        : "=r"(word) : "r"(a.v), "r"(b.v), "r"(c.v), "r"(d.v));
    return word;
}
template <> DEV u32 word_of_codes<u8, Whole<u8>>(Whole<u8> a, Whole<u8> b, Whole<u8> c, Whole<u8> d) {
    u32 word;
    asm("{.reg .b32 high;\n cvt.pack.sat.u8.s32.b32 high, %4, %3, 0;\n cvt.pack.sat.u8.s32.b32 %0, %2, %1, high;}"
        : "=r"(word) : "r"(a.v), "r"(b.v), "r"(c.v), "r"(d.v));
    return word;
}

// A code as the low byte of an f32 that counts by 1; signed ones more by 128.
template <class T> struct Code {
    u32 counted;
    static constexpr u32 MORE = T(-1) < T(0) ? 128u : 0u;
    DEV operator i32() const { return i32(counted & 255u) - i32(MORE); }
};
template <class T> DEV f32 code_to_f32(Code<T> x) { return __uint_as_float(x.counted) - (8388608.0f + f32(Code<T>::MORE)); }

// Eight codes, as words: bytes on their own would take more instructions.
template <class T> struct Codes {
    u32 words[2];
    DEV explicit Codes(const Run<T>& run) {
        words_of(run, words);
        if constexpr (Code<T>::MORE != 0u) {
            words[0] ^= 0x80808080u;
            words[1] ^= 0x80808080u;
        }
    }
    DEV Code<T> at(u32 i) const { return Code<T>{__byte_perm(words[i / 4u], 0x4b000000u, 0x7540u + i % 4u)}; }
};

DEV f32 ksqrt(f32 x) { return sqrtf(x); }
DEV f32 kexp(f32 x) { return expf(x); }
DEV f32 kexpm1(f32 x) { return expm1f(x); }
DEV f32 klog(f32 x) { return logf(x); }
DEV f32 klog1p(f32 x) { return log1pf(x); }
DEV f32 ksin(f32 x) { return sinf(x); }
DEV f32 kcos(f32 x) { return cosf(x); }
DEV f32 ktan(f32 x) { return tanf(x); }
DEV f32 kasin(f32 x) { return asinf(x); }
DEV f32 kacos(f32 x) { return acosf(x); }
DEV f32 katan(f32 x) { return atanf(x); }
DEV f32 ksinh(f32 x) { return sinhf(x); }
DEV f32 kcosh(f32 x) { return coshf(x); }
DEV f32 ktanh(f32 x) { return tanhf(x); }
DEV f32 kasinh(f32 x) { return asinhf(x); }
DEV f32 kacosh(f32 x) { return acoshf(x); }
DEV f32 katanh(f32 x) { return atanhf(x); }
DEV f32 kerf(f32 x) { return erff(x); }
DEV f32 kpow(f32 x, f32 y) { return powf(x, y); }
DEV f32 ffmod(f32 a, f32 b) { return fmodf(a, b); }

// The same for results that are rounded to 16 bits: no branches, off by some units of f32 relative to 1, and by 4e-5 relative to
// the result. `two_to_near` gives 0 below 2^-126.
DEV f32 two_to_near(f32 x) {
    f32 y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEV f32 krecip_near(f32 x) {
    f32 y;
    asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// 1 / x for x of at least 1: without the care that small ones take.
DEV f32 recip_of_large(f32 x) {
    f32 y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEV f32 kexp_near(f32 x) {
    f32 y;
    asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
    return y;
}
DEV f32 ktanh_near(f32 x) {
    const f32 less = two_to_near(fabsf(x) * -2.88539008f);
    const f32 y = copysignf((1.0f - less) * recip_of_large(1.0f + less), x);
    return fabsf(x) < 0.0078125f ? x : y;
}
DEV f32 ksigmoid_near(f32 x) { return recip_of_large(1.0f + two_to_near(x * -1.44269504f)); }
// The complement is 2 to a polynomial without constant term, fitted for the least error of erf.
DEV f32 kerf_near(f32 x) {
    const f32 t = fabsf(x);
    f32 p = __fmaf_rn(t, -4.535860353e-5f, 4.455076996e-4f);
    p = __fmaf_rn(t, p, -1.489441842e-3f);
    p = __fmaf_rn(t, p, -7.746291230e-4f);
    p = __fmaf_rn(t, p, 2.825368010e-2f);
    p = __fmaf_rn(t, p, -1.484816074e-1f);
    p = __fmaf_rn(t, p, -9.184163809e-1f);
    p = __fmaf_rn(t, p, -1.627908587f);
    const f32 y = copysignf(1.0f - two_to_near(t * p), x);
    return t < 0.0078125f ? x * 1.12837917f : y;
}
// x times half the complement of erf at the other side of it: 2 to a polynomial, fitted for the least error in half units of f16 of the
// result. That is 0.2 of such a unit at most.
DEV f32 kgelu_near(f32 x) {
    const f32 t = fabsf(x);
    f32 p = __fmaf_rn(t, -3.285379901e-4f, 5.922820052e-3f);
    p = __fmaf_rn(t, p, -4.864950999e-2f);
    p = __fmaf_rn(t, p, -4.633464724e-1f);
    p = __fmaf_rn(t, p, -1.149763388f);
    const f32 beyond = two_to_near(__fmaf_rn(t, p, -1.0f));
    return x * (x < 0.0f ? beyond : 1.0f - beyond);
}

// a / b, off by 2 units of f32 at most, for numbers of less range.
DEV f32 fquotient(f32 a, f32 b) { return __fdividef(a, b); }
DEV f32 kquotient(f32 a, f32 b) { return a / b; }

DEV f32 fmodulo(f32 a, f32 b) {
    const f32 r = fmodf(a, b);
    if (r == 0.0f) {
        return copysignf(0.0f, b);
    }
    return (r < 0.0f) != (b < 0.0f) ? r + b : r;
}

DEV f32 ffloordiv(f32 a, f32 b) {
    const f32 q = a / b;
    if (is_nan(q) || is_inf(q) || is_nan(b) || is_inf(b) || b == 0.0f || fabsf(q) > 8388608.0f) {
        return floorf(q);
    }
    const f32 r = fmodf(a, b);
    const f32 n = rintf((a - r) / b);
    return r != 0.0f && (r < 0.0f) != (b < 0.0f) ? n - 1.0f : n;
}
