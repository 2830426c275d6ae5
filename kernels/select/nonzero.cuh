// Indices of listed elements: a row for each dimension, a column for each element.
#pragma once
#include "../prelude/launch.cuh"

struct NonzeroParams {
    u32 columns;
    List strides;
    List dims;
};

template <class K> DEV i64 nonzero(const K& k, u32 at) {
    const auto& p = params<NonzeroParams>(k);
    const u32 d = at / p.columns;
    const u32 i = k.scratch[at % p.columns];
    return i64(i32(i / item(k, p.strides, d) % item(k, p.dims, d)));
}
