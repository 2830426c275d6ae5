// Results whose elements are found by strides: eight neighbours at a time where these stay neighbours.
#pragma once
#include "copy.cuh"
#include "divisor.cuh"

struct StridedVectorsParams {
    u32 offset;
    u32 rank;
    u32 sizes[6];
    u32 factors[6];
    u32 shifts[6];
    u32 strides[6];
    List more_sizes;
    List more_strides;
};

// The position of vector `t` of the result in x.
template <class K> DEV u32 walked(const K& k, u32 t) {
    const auto& p = params<StridedVectorsParams>(k);
    u32 at = p.offset;
    u32 rest = t;
#pragma unroll
    for (u32 d = 0u; d < 6u; d++) {
        if (d < p.rank) {
            const Divisor size{p.sizes[d], p.factors[d], p.shifts[d]};
            const u32 q = divide(rest, size);
            at += (rest - q * size.size) * p.strides[d];
            rest = q;
        }
    }
    for (u32 d = 0u; d < p.more_sizes.count; d++) {
        const u32 n = item(k, p.more_sizes, d);
        at += rest % n * item(k, p.more_strides, d);
        rest = rest / n;
    }
    return at;
}

template <class K> DEV void walk_8(const K& k, u32 t) { copy_8(k, k.bx0 + walked(k, t), t * 8u); }

template <class K> DEV void walk_1(const K& k, u32 t) { copy_1(k, k.bx0 + walked(k, t), t); }
