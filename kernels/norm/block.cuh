// Sums and maxima over the threads of a block, known to all of them.
#pragma once
#include "../prelude/launch.cuh"
#include "../prelude/math.cuh"

__shared__ f32 of_warps[32];

template <class K> DEV f32 block_sum(const K&, f32 v) {
    for (u32 s = 16u; s > 0u; s /= 2u) {
        v += __shfl_xor_sync(0xffffffffu, v, s);
    }
    if (threadIdx.x % 32u == 0u) {
        of_warps[threadIdx.x / 32u] = v;
    }
    __syncthreads();
    f32 all = 0.0f;
    for (u32 w = 0u; w < K::LANES / 32u; w++) {
        all += of_warps[w];
    }
    __syncthreads();
    return all;
}

template <class K> DEV f32 block_max(const K&, f32 v) {
    for (u32 s = 16u; s > 0u; s /= 2u) {
        v = kmax(v, __shfl_xor_sync(0xffffffffu, v, s));
    }
    if (threadIdx.x % 32u == 0u) {
        of_warps[threadIdx.x / 32u] = v;
    }
    __syncthreads();
    f32 all = of_warps[0];
    for (u32 w = 1u; w < K::LANES / 32u; w++) {
        all = kmax(all, of_warps[w]);
    }
    __syncthreads();
    return all;
}
