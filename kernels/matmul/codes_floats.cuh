// Weights that are codes as 16-bit floats in scratch memory, in the order in which they lie: the second operand of a product of
// floats. `CodesMma` is the instruction's structure, whose type they have. A thread makes eight neighbours, which share a scale.
#pragma once
#include "codes_values.cuh"

template <class K> DEV void codes_floats(const K& k, u32 t) {
    const auto& p = params<CodesParams>(k);
    const u32 eighths = p.depth / 8u;
    const u32 row = t / eighths;
    const u32 at = t % eighths * 8u;
    const u32* from = reinterpret_cast<const u32*>(k.bx1) + u64(row) * p.length + at / K::CODES;
    u32 codes[8u / K::CODES];
    codes[0] = from[0];
    if constexpr (K::CODES == 4u) {
        codes[1] = from[1];
    }
    const u32 part = row / K::ACROSS * p.scales + at / K::ALONG;
    u32 made[4];
    CodeValues<K, typename K::CodesMma>::dequantize(made, codes, bits_of(k.bx2[part]), K::HAS_ZERO ? k.zero_at(part) : 0);
    reinterpret_cast<uint4*>(k.scratch)[t] = make_uint4(made[0], made[1], made[2], made[3]);
}
