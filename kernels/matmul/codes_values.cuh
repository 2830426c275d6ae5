// Codes as operands of tensor cores. `K` has CODES, the codes of a word (8 or 4), and SIGNED.
#pragma once
#include "codes.cuh"
#include "../mma/instruction.cuh"

DEV u32 bits_of(u16 x) { return x; }
DEV u32 bits_of(f32 x) { return __float_as_uint(x); }

// Pairs of 16-bit floats of a type. BASE is a power of two behind whose digits a code fits: 2^10 or 2^7.
template <class Mma> struct Pairs;

template <> struct Pairs<mma_f16_f16> {
    static constexpr u32 BASE = 0x6400u;
    static constexpr u32 ONE = 0x3c003c00u;
    static constexpr bool BYTES = true;
    DEV static f32 wide(u32 x) { return f16_to_f32(u16(x)); }
    DEV static u32 fused(u32 a, u32 b, u32 c) {
        u32 y;
        asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
        return y;
    }
};

template <> struct Pairs<mma_bf16_bf16> {
    static constexpr u32 BASE = 0x4300u;
    static constexpr u32 ONE = 0x3f803f80u;
    // Codes of 8 bits have more digits than are left.
    static constexpr bool BYTES = false;
    DEV static f32 wide(u32 x) { return bf16_to_f32(u16(x)); }
    DEV static u32 fused(u32 a, u32 b, u32 c) {
        u32 y;
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(c));
        return y;
    }
};

// Codes with the sign turned, so that they are not negative. Then they are greater by MIDDLE.
template <class K> struct Unsigned {
    static constexpr u32 TURN = !K::SIGNED ? 0u : K::CODES == 8u ? 0x88888888u : 0x80808080u;
    static constexpr i32 MIDDLE = !K::SIGNED ? 0 : K::CODES == 8u ? 8 : 128;

    // 2^23 and a byte.
    DEV static f32 byte(u32 w, u32 at) { return __uint_as_float(__byte_perm(w, 0x4b000000u, at | 0x7440u)); }

    // Code i of eight.
    DEV static f32 number(const u32 (&codes)[8u / K::CODES], u32 i, i32 zero) {
        const f32 less = 8388608.0f + f32(MIDDLE + zero);
        if constexpr (K::CODES == 8u) {
            return __uint_as_float((((codes[0] ^ TURN) >> (4u * i)) & 15u) | 0x4b000000u) - less;
        } else {
            return byte(codes[i / 4u] ^ TURN, i % 4u) - less;
        }
    }

    // Two 16-bit numbers from `base` on, whose last digits are the halves of byte `at` of a word, or that byte and the next one.
    DEV static u32 pair(u32 w, u32 at, u32 base) {
        if constexpr (K::CODES == 8u) {
            // One instruction for both operations, which compilers leave as two where both have constants.
            u32 both;
            asm("lop3.b32 %0, %1, %2, %3, 0xea;"
                : "=r"(both)
                : "r"(__byte_perm(w, w >> 4, at | (at + 4u) << 8)), "r"(0x000f000fu), "r"(base * 0x10001u));
            return both;
        } else {
            return __byte_perm(w, base >> 8, at | 0x4040u | (at + 1u) << 8);
        }
    }
};

// `differences`: eight codes, less their zero point, which are exact. `dequantize`: times the scale whose bits these are. Neighbours
// are in a word.
template <class K, class Mma> struct CodeValues {
    typedef Unsigned<K> U;

    DEV static void differences(u32 (&to)[4], const u32 (&codes)[8u / K::CODES], i32 zero) {
#pragma unroll
        for (u32 i = 0u; i < 4u; i++) {
            const u32 w = codes[K::CODES == 8u ? 0u : i / 2u] ^ U::TURN;
            to[i] = neighbours(w, K::CODES == 8u ? i : i % 2u * 2u, zero);
        }
    }

    DEV static void dequantize(u32 (&to)[4], const u32 (&codes)[8u / K::CODES], u32 scale, i32 zero) {
        differences(to, codes, zero);
#pragma unroll
        for (u32 i = 0u; i < 4u; i++) {
            to[i] = scaled(to[i], scale);
        }
    }

    // Two neighbours times a scale, rounded.
    DEV static u32 scaled(u32 pair, u32 scale) { return Pairs<Mma>::fused(pair, scale * 0x10001u, 0x80008000u); }

    // Two neighbours, whose first byte is `at` of a word without signs.
    DEV static u32 neighbours(u32 w, u32 at, i32 zero) {
        typedef Pairs<Mma> P;
        if constexpr (K::CODES == 8u || P::BYTES) {
            const u32 less = (P::BASE + 0x8000u + u32(U::MIDDLE + zero)) * 0x10001u;
            return P::fused(U::pair(w, at, P::BASE), P::ONE, less);
        } else {
            const f32 less = 8388608.0f + f32(U::MIDDLE + zero);
            return f32_to_bf16x2(U::byte(w, at) - less, U::byte(w, at + 1u) - less);
        }
    }
};

template <class K> struct CodeValues<K, mma_tf32_tf32> {
    DEV static void differences(u32 (&to)[8], const u32 (&codes)[8u / K::CODES], i32 zero) {
#pragma unroll
        for (u32 i = 0u; i < 8u; i++) {
            to[i] = __float_as_uint(Unsigned<K>::number(codes, i, zero));
        }
    }

    DEV static void dequantize(u32 (&to)[8], const u32 (&codes)[8u / K::CODES], u32 scale, i32 zero) {
#pragma unroll
        for (u32 i = 0u; i < 8u; i++) {
            const f32 value = Unsigned<K>::number(codes, i, zero) * __uint_as_float(scale);
            to[i] = mma_tf32_tf32::operand(__float_as_uint(value));
        }
    }
};

// A result from the parts of its sum.
template <class K> DEV f32 codes_sum(const K& k, u32 at) {
    const auto& p = params<CodesParams>(k);
    const f32* from = reinterpret_cast<const f32*>(k.scratch) + at;
    f32 sum = 0.0f;
    for (u32 part = 0u; part < K::SPLIT; part++) {
        sum += from[u64(part) * p.rows * p.columns];
    }
    return sum;
}
