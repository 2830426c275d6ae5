// Softmax over the first elements of each row, as many as input 1 says; the rest becomes 0. A block a row.
#pragma once
#include "../norm/block.cuh"

struct RaggedSoftmaxParams {
    u32 count;
};

template <class K> DEV void ragged_softmax(const K& k) {
    const u32 n = params<RaggedSoftmaxParams>(k).count;
    const u32 base = blockIdx.x * n;
    const u32 bound = u32(clamp(k.near1(blockIdx.x), 0, i32(n)));
    f32 top = cf(0xff800000u);
    for (u32 i = threadIdx.x; i < bound; i += K::LANES) {
        top = kmax(top, k.x0(base + i));
    }
    top = block_max(k, top);
    f32 sum = 0.0f;
    for (u32 i = threadIdx.x; i < bound; i += K::LANES) {
        sum += kexp(k.x0(base + i) - top);
    }
    sum = block_sum(k, sum);
    for (u32 i = threadIdx.x; i < n; i += K::LANES) {
        k.emit0(base + i, i < bound ? kexp(k.x0(base + i) - top) / sum : 0.0f);
    }
}
