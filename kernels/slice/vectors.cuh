// Results whose elements are found by strides: eight neighbours at a time where these stay neighbours.
#pragma once
#include "copy.cuh"
#include "divisor.cuh"

struct StridedVectorsParams {
    u32 offset;
    List sizes;
    List factors;
    List shifts;
    List strides;
};

// The position of vector `t` of the result in x.
template <class K> DEV u32 walked(const K& k, u32 t) {
    const auto& p = params<StridedVectorsParams>(k);
    u32 at = p.offset;
    u32 rest = t;
    for (u32 d = 0u; d < p.sizes.count; d++) {
        const Divisor size{item(k, p.sizes, d), item(k, p.factors, d), item(k, p.shifts, d)};
        const u32 q = divide(rest, size);
        at += (rest - q * size.size) * item(k, p.strides, d);
        rest = q;
    }
    return at;
}

template <class K> DEV void walk_8(const K& k, u32 t) { copy_8(k, k.bx0 + walked(k, t), t * 8u); }

template <class K> DEV void walk_1(const K& k, u32 t) { copy_1(k, k.bx0 + walked(k, t), t); }
