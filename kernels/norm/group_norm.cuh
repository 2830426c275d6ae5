// Normalization of groups of channels: a block a group. Channels are second, or last with CHANNELS_LAST.
#pragma once
#include "block.cuh"

struct GroupNormParams {
    u32 count;
    f32 epsilon;
    u32 inner;
    u32 channels;
};

// Element i of a group.
template <class K> DEV u32 element(const K& k, u32 group, u32 i) {
    const auto& p = params<GroupNormParams>(k);
    if constexpr (K::CHANNELS_LAST) {
        const u32 width = p.count / p.inner;
        const u32 groups = p.channels / width;
        return (group / groups * p.inner + i / width) * p.channels + group % groups * width + i % width;
    } else {
        return group * p.count + i;
    }
}

template <class K> DEV void group_norm(const K& k) {
    const auto& p = params<GroupNormParams>(k);
    f32 sum = 0.0f;
    for (u32 i = threadIdx.x; i < p.count; i += K::LANES) {
        sum += k.x0(element(k, blockIdx.x, i));
    }
    const f32 mean = block_sum(k, sum) / f32(p.count);
    f32 squares = 0.0f;
    for (u32 i = threadIdx.x; i < p.count; i += K::LANES) {
        const f32 d = k.x0(element(k, blockIdx.x, i)) - mean;
        squares += d * d;
    }
    const f32 norm = sqrt(block_sum(k, squares) / f32(p.count) + p.epsilon);
    for (u32 i = threadIdx.x; i < p.count; i += K::LANES) {
        const u32 at = element(k, blockIdx.x, i);
        const u32 c = K::CHANNELS_LAST ? at % p.channels : at / p.inner % p.channels;
        k.emit0(at, (k.x0(at) - mean) / norm * k.x1(c) + k.x2(c));
    }
}
