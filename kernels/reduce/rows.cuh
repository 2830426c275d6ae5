// Reductions of the last axes, read eight elements at a time. Hooks as in `reduce.cuh`.
#pragma once
#include "../prelude/launch.cuh"
#include "../prelude/math.cuh"

struct ReduceRowsParams {
    u32 count;
    u32 rows;
};

// What a thread finds in a row, the `first` of `step` threads.
template <class K> DEV typename K::Sum row_part(const K& k, u32 row, u32 first, u32 step) {
    typedef typename K::Sum Sum;
    const u32 n = params<ReduceRowsParams>(k).count;
    const u32 base = row * n;
    Sum acc = k.empty();
    u32 i = first * 8u;
    for (; i + 8u <= n; i += step * 8u) {
        const auto r = Run<typename K::Cell>::of(k.bx0 + base + i, 1u);
#pragma unroll
        for (u32 j = 0u; j < 8u; j++) {
            acc = k.step(acc, Sum(k.decoded(r.v[j])), 0.0f);
        }
    }
    for (; i < n; i++) {
        acc = k.step(acc, Sum(k.x0(base + i)), 0.0f);
    }
    return acc;
}

template <class K> DEV typename K::Sum of_warp(const K& k, typename K::Sum acc) {
#pragma unroll
    for (u32 s = 16u; s > 0u; s /= 2u) {
        acc = k.merge(acc, __shfl_xor_sync(0xffffffffu, acc, s));
    }
    return acc;
}

// Eight rows a block.
template <class K> DEV void reduce_warps(const K& k) {
    const auto& p = params<ReduceRowsParams>(k);
    const u32 l = threadIdx.x;
    const u32 row = blockIdx.x * 8u + l / 32u;
    if (row >= p.rows) {
        return;
    }
    const auto acc = of_warp(k, row_part(k, row, l % 32u, 32u));
    if (l % 32u == 0u) {
        k.emit0(row, k.last(acc, p.count, 0.0f));
    }
}

// A row a block.
template <class K> DEV void reduce_blocks(const K& k) {
    typedef typename K::Sum Sum;
    __shared__ Sum of_warps[8];
    const u32 l = threadIdx.x;
    Sum acc = of_warp(k, row_part(k, blockIdx.x, l, 256u));
    if (l % 32u == 0u) {
        of_warps[l / 32u] = acc;
    }
    __syncthreads();
    if (l == 0u) {
        for (u32 w = 1u; w < 8u; w++) {
            acc = k.merge(acc, of_warps[w]);
        }
        k.emit0(blockIdx.x, k.last(acc, params<ReduceRowsParams>(k).count, 0.0f));
    }
}
