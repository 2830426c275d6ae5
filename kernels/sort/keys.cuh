// Unsigned keys that are in the order of elements: NaN above everything, zeros of both signs equal. Bits above those of an element
// are zero.
#pragma once
#include "../prelude/launch.cuh"

// Keys of floats of BITS bits; bits above those of the largest number, but for the sign, are NaN.
template <u32 BITS, u32 LARGEST> DEV u32 float_key(u32 bits) {
    constexpr u32 SIGN = 1u << (BITS - 1u);
    constexpr u32 ALL = SIGN | (SIGN - 1u);
    const u32 size = bits & (SIGN - 1u);
    if (size > LARGEST) {
        return ALL;
    }
    if (size == 0u) {
        return SIGN;
    }
    return (bits & SIGN) != 0u ? ~bits & ALL : bits | SIGN;
}

// Keys of signed integers of BITS bits.
template <u32 BITS> DEV u32 signed_key(u32 bits) {
    constexpr u32 SIGN = 1u << (BITS - 1u);
    return (bits ^ SIGN) & (SIGN | (SIGN - 1u));
}

DEV u64 signed_key(i64 v) { return u64(v) ^ (1ull << 63); }
