// Layer normalization: a block a row. With STATISTICS, outputs 1 and 2 are the means and the reciprocals of the deviations.
#pragma once
#include "affine.cuh"
#include "block.cuh"

template <class K> DEV void layer_norm(const K& k) {
    const auto& p = params<NormParams>(k);
    const u32 base = blockIdx.x * p.count;
    f32 sum = 0.0f;
    for (u32 i = threadIdx.x; i < p.count; i += K::LANES) {
        sum += k.x0(base + i);
    }
    const f32 mean = block_sum(k, sum) / f32(p.count);
    f32 squares = 0.0f;
    for (u32 i = threadIdx.x; i < p.count; i += K::LANES) {
        const f32 d = k.x0(base + i) - mean;
        squares += d * d;
    }
    const f32 inverse = 1.0f / sqrt(block_sum(k, squares) / f32(p.count) + p.epsilon);
    for (u32 i = threadIdx.x; i < p.count; i += K::LANES) {
        const u32 at = base + i;
        k.emit0(at, affine(k, at, (k.x0(at) - mean) * inverse));
    }
    if constexpr (K::STATISTICS) {
        if (threadIdx.x == 0u) {
            k.emit1(blockIdx.x, mean);
            k.emit2(blockIdx.x, inverse);
        }
    }
}
