// Gated products, a thread for each element: a column of gates and the one of values that belongs to it, K::SIDE columns later.
// K::HAS_BIAS, input 2 has a term for each column; K::CENTERED, input 3 has the sums of columns.
#pragma once
#include "../prelude/launch.cuh"

struct GatedMatmulParams {
    u32 depth;
    u32 columns;
    u32 w_row;
    u32 w_column;
    f32 epsilon;
};

template <class K> DEV f32 gated_product(const K& k, u32 at) {
    const auto& p = params<GatedMatmulParams>(k);
    const u32 row = at / p.columns;
    const u32 column = at - row * p.columns;
    const u32 first = column / K::SIDE * (2u * K::SIDE) + column % K::SIDE;
    f32 gate = 0.0f;
    f32 value = 0.0f;
    f32 sum = 0.0f;
    f32 squares = 0.0f;
    for (u32 i = 0u; i < p.depth; i++) {
        const f32 x = k.x0(row * p.depth + i);
        gate = fmaf(x, k.x1(i * p.w_row + first * p.w_column), gate);
        value = fmaf(x, k.x1(i * p.w_row + (first + K::SIDE) * p.w_column), value);
        sum += x;
        squares = fmaf(x, x, squares);
    }
    if constexpr (K::NORMALIZED) {
        f32 mean = 0.0f;
        if constexpr (K::CENTERED) {
            mean = sum / f32(p.depth);
            gate -= mean * k.x3(first);
            value -= mean * k.x3(first + K::SIDE);
        }
        const f32 factor = 1.0f / sqrtf(fmaxf(squares / f32(p.depth) - mean * mean, 0.0f) + p.epsilon);
        gate *= factor;
        value *= factor;
    }
    if constexpr (K::HAS_BIAS) {
        gate += k.x2(first);
        value += k.x2(first + K::SIDE);
    }
    return k.gate_of(gate) * k.value_of(value);
}
