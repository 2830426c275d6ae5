// Root mean square normalization: a block a row.
#pragma once
#include "affine.cuh"
#include "block.cuh"

template <class K> DEV void rms_norm(const K& k) {
    const auto& p = params<NormParams>(k);
    const u32 base = blockIdx.x * p.count;
    f32 sum = 0.0f;
    for (u32 i = threadIdx.x; i < p.count; i += K::LANES) {
        const f32 v = k.x0(base + i);
        sum += v * v;
    }
    const f32 norm = sqrt(block_sum(k, sum) / f32(p.count) + p.epsilon);
    for (u32 i = threadIdx.x; i < p.count; i += K::LANES) {
        const u32 at = base + i;
        k.emit0(at, affine(k, at, k.x0(at) / norm));
    }
}
