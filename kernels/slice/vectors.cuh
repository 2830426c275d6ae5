// Results whose elements are found by strides: eight neighbours at a time where these stay neighbours, or come from two rows.
#pragma once
#include "copy.cuh"
#include "divisor.cuh"

struct StridedVectorsParams {
    u32 total;
    u32 offset;
    u32 rank;
    u32 sizes[6];
    u32 factors[6];
    u32 shifts[6];
    u32 strides[6];
    List more_sizes;
    List more_strides;
};

// The position in x of number `t` of what dimensions from FIRST on count: of a vector of the result, or of the start of a row.
template <u32 FIRST, class K> DEV u32 walked(const K& k, u32 t) {
    const auto& p = params<StridedVectorsParams>(k);
    return p.offset + by_strides<FIRST, u32>(k, p, t);
}

template <class K> DEV void walk_8(const K& k, u32 t) { copy_8(k, k.bx0 + walked<0u>(k, t), t * 8u); }

template <class K> DEV void walk_1(const K& k, u32 t) { copy_1(k, k.bx0 + walked<0u>(k, t), t); }

// Eight neighbours of the result, of two rows at most.
template <class K> DEV void walk_lines(const K& k, u32 t) {
    const auto& p = params<StridedVectorsParams>(k);
    const Divisor width{p.sizes[0], p.factors[0], p.shifts[0]};
    const u32 at = t * 8u;
    const u32 row = divide(at, width);
    const u32 x = at - row * width.size;
    const u32 left = p.total - at;
    const u32 split = ::min(::min(width.size - x, 8u), left);
    const u32 first = walked<1u>(k, row) + x * p.strides[0];
    if (split == 8u && p.strides[0] == 1u) {
        put_8(k, Run<typename K::Cell>::near(k.bx0 + first), at);
        return;
    }
    const u32 second = split < 8u && split < left ? walked<1u>(k, row + 1u) - split * p.strides[0] : first;
    Run<typename K::Cell> r;
#pragma unroll
    for (u32 j = 0u; j < 8u; j++) {
        r.v[j] = j < left ? k.bx0[(j < split ? first : second) + j * p.strides[0]] : typename K::Cell(0);
    }
    if (left >= 8u) {
        put_8(k, r, at);
        return;
    }
#pragma unroll
    for (u32 j = 0u; j < 8u; j++) {
        if (j < left) {
            copy_1(k, r.v + j, at + j);
        }
    }
}
