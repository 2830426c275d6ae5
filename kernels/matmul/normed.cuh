// Products of normalized rows, a thread for each element. K::CENTERED, input 2 has the sums of columns.
#pragma once
#include "../prelude/launch.cuh"

struct NormMatmulParams {
    u32 depth;
    u32 columns;
    u32 w_row;
    u32 w_column;
    f32 epsilon;
};

template <class K> DEV f32 norm_product(const K& k, u32 at) {
    const auto& p = params<NormMatmulParams>(k);
    const u32 row = at / p.columns;
    const u32 column = at - row * p.columns;
    f32 product = 0.0f;
    f32 sum = 0.0f;
    f32 squares = 0.0f;
    for (u32 i = 0u; i < p.depth; i++) {
        const f32 x = k.x0(row * p.depth + i);
        product = fmaf(x, k.x1(i * p.w_row + column * p.w_column), product);
        sum += x;
        squares = fmaf(x, x, squares);
    }
    f32 mean = 0.0f;
    if constexpr (K::CENTERED) {
        mean = sum / f32(p.depth);
        product -= mean * k.x2(column);
    }
    return product / sqrtf(fmaxf(squares / f32(p.depth) - mean * mean, 0.0f) + p.epsilon);
}
