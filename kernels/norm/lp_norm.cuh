// Division of each line along an axis by its norm: the root of the sum of squares (SQUARE), or the sum of magnitudes. A block
// a line.
#pragma once
#include "block.cuh"

struct LineParams {
    u32 count;
    u32 inner;
};

template <class K> DEV void lp_norm(const K& k) {
    const auto& p = params<LineParams>(k);
    const u32 base = blockIdx.x / p.inner * p.count * p.inner + blockIdx.x % p.inner;
    f32 sum = 0.0f;
    for (u32 i = threadIdx.x; i < p.count; i += K::LANES) {
        const f32 v = k.x0(base + i * p.inner);
        if constexpr (K::SQUARE) {
            sum += v * v;
        } else {
            sum += abs(v);
        }
    }
    sum = block_sum(k, sum);
    const f32 norm = K::SQUARE ? sqrt(sum) : sum;
    for (u32 i = threadIdx.x; i < p.count; i += K::LANES) {
        const u32 at = base + i * p.inner;
        k.emit0(at, norm == 0.0f ? 0.0f : k.x0(at) / norm);
    }
}
