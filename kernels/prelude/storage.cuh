// Narrow element types: bits in memory to values in registers and back. Rounding is to nearest even.
#pragma once
#include "types.cuh"

DEV f32 f16_to_f32(u16 h) {
    f32 x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
}

DEV u16 f32_to_f16(f32 x) {
    u16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}

// Two numbers to the halves of a word, the first in the low one.
DEV u32 f32_to_f16x2(f32 low, f32 high) {
    u32 both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

DEV u32 f32_to_bf16x2(f32 low, f32 high) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

// The two halves of a word.
DEV void f16x2_to_f32(u32 both, f32& low, f32& high) {
    asm("{.reg .f16 l, h;\n mov.b32 {l, h}, %2;\n cvt.f32.f16 %0, l;\n cvt.f32.f16 %1, h;}" : "=f"(low), "=f"(high) : "r"(both));
}

DEV void bf16x2_to_f32(u32 both, f32& low, f32& high) {
    low = __uint_as_float(both << 16);
    high = __uint_as_float(both & 0xffff0000u);
}

DEV f32 bf16_to_f32(u16 h) { return __uint_as_float(u32(h) << 16); }

DEV u16 f32_to_bf16(f32 x) {
    u16 h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
}

#if __CUDA_ARCH__ >= 890
DEV f32 f8e4m3_to_f32(u8 b) {
    u32 pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(u16(b)));
    return f16_to_f32(u16(pair));
}

// Saturates to 448.
DEV u8 f32_to_f8e4m3(f32 x) {
    u16 pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
    return u8(pair);
}

// Two numbers to the bytes of a word, the first in the low one.
DEV u16 f32_to_f8e4m3x2(f32 low, f32 high) {
    u16 pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
}

DEV void f8e4m3x2_to_f32(u16 both, f32& low, f32& high) {
    asm("{.reg .f16 l, h;\n .reg .b32 pair;\n cvt.rn.f16x2.e4m3x2 pair, %2;\n mov.b32 {l, h}, pair;\n cvt.f32.f16 %0, l;\n "
        "cvt.f32.f16 %1, h;}"
        : "=f"(low), "=f"(high) : "h"(both));
}
#else
DEV f32 f8e4m3_to_f32(u8 b) {
    const u32 h = b;
    const u32 sign = (h & 0x80u) << 24;
    const u32 e = (h >> 3) & 15u;
    const u32 m = h & 7u;
    if ((h & 0x7fu) == 0x7fu) {
        return cf(sign | 0x7fc00000u);
    }
    if (e == 0u) {
        return cf(sign | __float_as_uint(f32(m) * 0.001953125f));
    }
    return cf(sign | ((e + 120u) << 23) | (m << 20));
}

// x / 2^n to the nearest integer; 0 < n < 32.
DEV u32 shift_round(u32 x, u32 n) {
    const u32 q = x >> n;
    const u32 rest = x & ((1u << n) - 1u);
    const u32 half = 1u << (n - 1u);
    return q + u32(rest > half || (rest == half && (q & 1u) == 1u));
}

// Saturates to 448.
DEV u8 f32_to_f8e4m3(f32 x) {
    const u32 b = __float_as_uint(x);
    const u32 sign = (b >> 24) & 0x80u;
    const u32 a = b & 0x7fffffffu;
    if (a > 0x7f800000u) {
        return u8(sign | 0x7fu);
    }
    if (a >= 0x43e00000u) {
        return u8(sign | 0x7eu);
    }
    if (a < 0x3a000000u) {
        return u8(sign);
    }
    if (a < 0x3c800000u) {
        return u8(sign | shift_round((a & 0x7fffffu) | 0x800000u, 141u - (a >> 23)));
    }
    const u32 odd = (a >> 20) & 1u;
    return u8(sign | ::min((a + 0x7ffffu + odd - 0x3c000000u) >> 20, 0x7eu));
}

DEV u16 f32_to_f8e4m3x2(f32 low, f32 high) { return u16(f32_to_f8e4m3(low) | u32(f32_to_f8e4m3(high)) << 8); }

DEV void f8e4m3x2_to_f32(u16 both, f32& low, f32& high) {
    low = f8e4m3_to_f32(u8(both));
    high = f8e4m3_to_f32(u8(both >> 8));
}
#endif

DEV f32 round_f16(f32 x) { return f16_to_f32(f32_to_f16(x)); }
DEV f32 round_bf16(f32 x) { return bf16_to_f32(f32_to_bf16(x)); }
DEV f32 round_f8e4m3(f32 x) { return f8e4m3_to_f32(f32_to_f8e4m3(x)); }

// Two 4-bit integers lie in a byte, the first in the low half.
template <class At> DEV i32 i4_at(const u8* p, At at) { return i32(u32(p[at / 2u]) << (28u - u32(at % 2u) * 4u)) >> 28; }

// Threads may share bytes, hence words are changed as a whole. Buffers start at multiples of 4 bytes and end so, too.
DEV void put_i4(u8* p, u32 at, i32 v) {
    u32* word = reinterpret_cast<u32*>(p) + at / 8u;
    const u32 s = (at % 8u) * 4u;
    atomicAnd(word, ~(15u << s));
    atomicOr(word, (u32(v) & 15u) << s);
}

// Four neighbouring elements, moved as one.
template <class T> struct alignas(4 * sizeof(T) < 16 ? 4 * sizeof(T) : 16) Pack {
    T v[4];
    DEV static Pack of(const T* p) { return *reinterpret_cast<const Pack*>(p); }
    DEV void put(T* p) const { *reinterpret_cast<Pack*>(p) = *this; }
};

// Eight elements `step` apart into registers, and eight neighbours out of them; `p` at multiples of 16 bytes go faster.
template <class T> struct alignas(8 * sizeof(T) < 16 ? 8 * sizeof(T) : 16) Run {
    T v[8];
    DEV static Run of(const T* p, u32 step) {
        if (step == 1u && reinterpret_cast<u64>(p) % alignof(Run) == 0u) {
            return *reinterpret_cast<const Run*>(p);
        }
        Run r;
        for (u32 i = 0u; i < 8u; i++) {
            r.v[i] = p[i * step];
        }
        return r;
    }
    // Neighbours; are they known to start at a multiple of 16 bytes?
    template <bool EVEN> DEV static Run next(const T* p) {
        if constexpr (EVEN) {
            return *reinterpret_cast<const Run*>(p);
        } else {
            return of(p, 1u);
        }
    }
    // Neighbours wherever they start: by the largest words that fit.
    DEV static Run near(const T* p) {
        const u64 at = reinterpret_cast<u64>(p);
        if (at % alignof(Run) == 0u) {
            return *reinterpret_cast<const Run*>(p);
        }
        Run r;
        if constexpr (sizeof(T) == 2u) {
            // Those of a word are its halves, or come from two words.
            const u32* const words = reinterpret_cast<const u32*>(at + (at & 2u));
            u32 w[5];
            w[0] = (at & 2u) != 0u ? u32(p[0]) << 16 : words[0];
            const u32 first = (at & 2u) != 0u ? 0u : 1u;
#pragma unroll
            for (u32 i = 0u; i < 3u; i++) {
                w[i + 1u] = words[first + i];
            }
            w[4] = (at & 2u) != 0u ? u32(p[7]) : 0u;
#pragma unroll
            for (u32 i = 0u; i < 4u; i++) {
                const u32 two = (at & 2u) != 0u ? __funnelshift_r(w[i], w[i + 1u], 16u) : w[i];
                r.v[i * 2u] = T(two & 0xffffu);
                r.v[i * 2u + 1u] = T(two >> 16);
            }
        } else {
#pragma unroll
            for (u32 i = 0u; i < 8u; i++) {
                r.v[i] = p[i];
            }
        }
        return r;
    }
    DEV void put(T* p) const { *reinterpret_cast<Run*>(p) = *this; }
};

// Eight bytes as words. A compiler would otherwise take apart, and keep in twice the registers, what was read long before.
template <class T> DEV void words_of(const Run<T>& run, u32 (&words)[2]) {
    static_assert(sizeof run == 8u);
    memcpy(words, &run, 8);
    asm volatile("" : "+r"(words[0]), "+r"(words[1]));
}

// Eight floats of 8 bits by pairs.
DEV void f8e4m3x8_to_f32(const Run<u8>& run, f32 (&x)[8]) {
    u32 words[2];
    words_of(run, words);
#pragma unroll
    for (u32 i = 0u; i < 8u; i += 2u) {
        f8e4m3x2_to_f32(u16(words[i / 4u] >> i % 4u * 8u), x[i], x[i + 1u]);
    }
}

// Four floats of 8 bits as a word.
DEV u32 f32_to_f8e4m3x4(f32 a, f32 b, f32 c, f32 d) {
    return f32_to_f8e4m3x2(a, b) | u32(f32_to_f8e4m3x2(c, d)) << 16;
}

// Eight elements of 8 bits as words: bytes on their own would be taken apart and put together.
struct alignas(8) Bytes {
    u32 v[2];
    template <class T> DEV T at(u32 i) const { return T(v[i / 4u] >> i % 4u * 8u & 255u); }
    template <class T> DEV void put(T* p) const { *reinterpret_cast<Bytes*>(p) = *this; }
};

// Eight elements of 16 bits as words.
struct alignas(16) Halves {
    u32 v[4];
    DEV void put(u16* p) const { *reinterpret_cast<Halves*>(p) = *this; }
};
