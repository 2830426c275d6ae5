// Products by packed 2:4 sparse weights, one thread an element.
#pragma once
#include "../prelude/launch.cuh"

struct SparseParams {
    u32 n;
    u32 depth;
    u32 half;
    u32 chunks;
    u32 words;
};

// The place in its group of value `at` of a row of the weights; the order is that of tensor cores.
template <class K> DEV u32 place_of_value(const K& k, const SparseParams& p, u32 row, u32 at) {
    const u32 groups = p.words == 32u ? 16u : 32u;
    const u32 group = at / 2u % groups;
    const u32 tile = (row / 16u * p.chunks + at / 2u / groups) * p.words;
    const u32 r = row % 16u;
    u32 word, bit;
    if (p.words == 32u) {
        word = r % 8u * 4u + group / 4u;
        bit = group % 4u * 4u + r / 8u * 16u;
    } else {
        word = group / 16u * 32u + r % 8u * 4u + group % 16u / 8u * 2u + r / 8u;
        bit = group % 8u * 4u;
    }
    return u32(k.x2(tile + word)) >> (bit + at % 2u * 2u) & 3u;
}

template <class K> DEV typename K::Value sparse_product(const K& k, u32 at) {
    const auto& p = params<SparseParams>(k);
    const u32 j = at % p.n;
    const u32 i = at / p.n;
    typename K::Value sum = K::ZERO;
    for (u32 t = 0u; t < p.half; t++) {
        const u32 column = t / 2u * 4u + place_of_value(k, p, j, t);
        if (column < p.depth) {
            mac(sum, k.x0(i * p.depth + column), k.x1(j * p.half + t));
        }
    }
    return sum;
}
