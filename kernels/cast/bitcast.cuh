// Bits of elements as another type of at most 32 bits: a thread copies the cells of 32 bits.
#pragma once
#include "../prelude/launch.cuh"

struct BitcastParams {
    u32 cells;
};

template <class To, class From> DEV void put_bits(To* to, From x) { *to = bitcast<To>(x); }

template <class K> DEV void copy_bits(const K& k, u32 t) {
    const auto& p = params<BitcastParams>(k);
    const u32 each = 4u / u32(sizeof(*k.by0));
    for (u32 i = t * each; i < t * each + each && i < p.cells; i++) {
        put_bits(k.by0 + i, k.bx0[i]);
    }
}
