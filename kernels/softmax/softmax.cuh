// Softmax along an axis, or its logarithm (LOG): a block a line.
#pragma once
#include "../norm/block.cuh"

struct LineParams {
    u32 count;
    u32 inner;
};

template <class K> DEV void softmax(const K& k) {
    const auto& p = params<LineParams>(k);
    const u32 base = blockIdx.x / p.inner * p.count * p.inner + blockIdx.x % p.inner;
    f32 top = cf(0xff800000u);
    for (u32 i = threadIdx.x; i < p.count; i += K::LANES) {
        top = kmax(top, k.x0(base + i * p.inner));
    }
    top = block_max(k, top);
    f32 sum = 0.0f;
    for (u32 i = threadIdx.x; i < p.count; i += K::LANES) {
        sum += kexp(k.x0(base + i * p.inner) - top);
    }
    sum = block_sum(k, sum);
    for (u32 i = threadIdx.x; i < p.count; i += K::LANES) {
        const u32 at = base + i * p.inner;
        if constexpr (K::LOG) {
            k.emit0(at, (k.x0(at) - top) - klog(sum));
        } else {
            k.emit0(at, kexp(k.x0(at) - top) / sum);
        }
    }
}
