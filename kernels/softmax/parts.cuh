// Softmax of long rows along the last axes, or its logarithm (LOG): a block a row, or sums of parts by many blocks, and a second
// launch that merges and applies them.
#pragma once
#include "../reduce/stretch.cuh"
#include "online.cuh"

struct SoftmaxPartsParams {
    u32 count;
    u32 parts;
    u32 part;
};

// Adds numbers to a sum.
template <class K> struct Exponentials {
    ExpSum all;
    template <u32 N> DEV void operator()(const f32 (&v)[N]) { all = with<K>(all, v); }
};

template <class K> DEV ExpSum sum_of_stretch(const K& k, u32 from, u32 to) {
    Exponentials<K> found = {no_exp_sum()};
    stretch<8u>(k, from, to, threadIdx.x, K::LANES, found);
    return block_exp_sum<K>(found.all);
}

// Stores the results of elements `from`..`to`.
template <class K> DEV void store_stretch(const K& k, u32 from, u32 to, ExpSum all) {
    constexpr u32 U = 2u;
    constexpr u32 STEP = K::LANES * 8u;
    const f32 by = divisor_of<K>(all.sum);
    const u32 l = threadIdx.x;
    const u32 head = min((0u - from) % 8u, to - from);
    const u32 body = (to - from - head) / 8u * 8u;
    // At most 7 elements in front of vectors, and as many behind them.
    if (l < to - from - body) {
        const u32 at = from + l + (l < head ? 0u : body);
        k.emit0(at, softmaxed<K>(k.x0(at), all.top, by));
    }
    u32 at = from + head + l * 8u;
    u32 left = body > l * 8u ? body - l * 8u : 0u;
    for (; left > 0u; left -= min(left, U * STEP), at += U * STEP) {
        Run<typename K::Cell> r[U];
#pragma unroll
        for (u32 u = 0u; u < U; u++) {
            if (left > u * STEP) {
                r[u] = Run<typename K::Cell>::of(k.bx0 + at + u * STEP, 1u);
            }
        }
#pragma unroll
        for (u32 u = 0u; u < U; u++) {
            if (left > u * STEP) {
                f32 y[8];
#pragma unroll
                for (u32 j = 0u; j < 8u; j++) {
                    y[j] = softmaxed<K>(k.wide(r[u].v[j]), all.top, by);
                }
                k.emit0_any(at + u * STEP, y);
            }
        }
    }
}

template <class K> DEV void whole_row(const K& k) {
    const auto& p = params<SoftmaxPartsParams>(k);
    const u32 from = blockIdx.x * p.count;
    store_stretch(k, from, from + p.count, sum_of_stretch(k, from, from + p.count));
}

// The sum of a part to scratch memory.
template <class K> DEV void part_of_row(const K& k) {
    const auto& p = params<SoftmaxPartsParams>(k);
    const u32 row = blockIdx.x / p.parts;
    const u32 first = (blockIdx.x - row * p.parts) * p.part;
    const u32 base = row * p.count;
    const ExpSum all = sum_of_stretch(k, base + first, base + min(first + p.part, p.count));
    if (threadIdx.x == 0u) {
        reinterpret_cast<ExpSum*>(k.scratch)[blockIdx.x] = all;
    }
}

template <class K> DEV void apply_to_row(const K& k) {
    const auto& p = params<SoftmaxPartsParams>(k);
    const u32 row = blockIdx.x / p.parts;
    ExpSum all = no_exp_sum();
    for (u32 i = threadIdx.x; i < p.parts; i += K::LANES) {
        all = merged<K>(all, reinterpret_cast<const ExpSum*>(k.scratch)[row * p.parts + i]);
    }
    all = block_exp_sum<K>(all);
    const u32 first = (blockIdx.x - row * p.parts) * p.part;
    const u32 base = row * p.count;
    store_stretch(k, base + first, base + min(first + p.part, p.count), all);
}
