// Weights that are codes as 16-bit floats in scratch memory, in the order in which they lie: the second operand of a product of
// floats. `CodesMma` is the instruction's structure, whose type they have. A thread makes EIGHTS times eight neighbours, which share a
// scale; the MAKERS of a block have those beside each other. DEPTH is a constant, as a division by a parameter takes longer than all else.
#pragma once
#include "codes_values.cuh"

template <class K> DEV void codes_floats(const K& k) {
    constexpr u32 WORDS = 8u / K::CODES;
    constexpr u32 OF_ROW = K::DEPTH / 8u;
    const auto& p = params<CodesParams>(k);
    const u32 all = p.columns * OF_ROW;
    const u32 first = blockIdx.x * (K::EIGHTS * K::MAKERS) + threadIdx.x;
    u32 codes[K::EIGHTS][WORDS];
    u32 scale[K::EIGHTS];
    i32 zero[K::EIGHTS];
#pragma unroll
    for (u32 i = 0u; i < K::EIGHTS; i++) {
        // A thread beyond the last neighbours reads those again, and stores nothing.
        const u32 e = ::min(first + i * K::MAKERS, all - 1u);
        const u32 row = e / OF_ROW;
        if constexpr (WORDS == 1u) {
            codes[i][0] = reinterpret_cast<const u32*>(k.bx1)[e];
        } else {
            const uint2 two = reinterpret_cast<const uint2*>(k.bx1)[e];
            codes[i][0] = two.x;
            codes[i][WORDS - 1u] = two.y;
        }
        const u32 part = row / K::ACROSS * p.scales + (e - row * OF_ROW) * 8u / K::ALONG;
        scale[i] = bits_of(k.bx2[part]);
        zero[i] = K::HAS_ZERO ? k.zero_at(part) : 0;
    }
#pragma unroll
    for (u32 i = 0u; i < K::EIGHTS; i++) {
        const u32 e = first + i * K::MAKERS;
        if (e < all) {
            u32 made[4];
            CodeValues<K, typename K::CodesMma>::dequantize(made, codes[i], scale[i], zero[i]);
            reinterpret_cast<uint4*>(k.scratch)[e] = make_uint4(made[0], made[1], made[2], made[3]);
        }
    }
}
