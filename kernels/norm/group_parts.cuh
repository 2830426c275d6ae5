// Normalization of groups of channels that are one stretch of memory: a block a group, or statistics of parts by many blocks, and a
// second launch that merges and applies them.
#pragma once
#include "../slice/divisor.cuh"
#include "moments.cuh"

struct GroupPartsParams {
    u32 count;
    f32 epsilon;
    u32 parts;
    u32 part;
    u32 groups;
    u32 width;
    u32 inner;
    u32 inner_factor;
    u32 inner_shift;
};

// Stores elements `from`..`to` of a group, normalized.
template <u32 V, class K> DEV void store_group(const K& k, u32 group, u32 from, u32 to, Moments m) {
    constexpr u32 U = V == 1u ? 4u : 2u;
    constexpr u32 STEP = K::LANES * V;
    const auto& p = params<GroupPartsParams>(k);
    const Divisor inner{p.inner, p.inner_factor, p.inner_shift};
    const f32 factor = 1.0f / sqrtf(m.squares / f32(p.count) + p.epsilon);
    const u32 base = group * p.count;
    const u32 first = group % p.groups * p.width;
    const u32 own = threadIdx.x * V;
    u32 left = to - from > own ? to - from - own : 0u;
    for (u32 i = from + own; left > 0u; left -= min(left, U * STEP), i += U * STEP) {
        f32 v[U * V];
#pragma unroll
        for (u32 u = 0u; u < U; u++) {
            if (left > u * STEP) {
                load_vector<V>(k, base + i + u * STEP, &v[u * V]);
            }
        }
#pragma unroll
        for (u32 u = 0u; u < U; u++) {
            if (left > u * STEP) {
                const u32 at = i + u * STEP;
                u32 c = divide(at, inner);
                u32 rest = at - c * p.inner;
                f32 scale = k.x1(first + c) * factor;
                f32 bias = k.x2(first + c);
                f32 y[V];
#pragma unroll
                for (u32 j = 0u; j < V; j++) {
                    if (V > 1u && rest >= p.inner) {
                        rest = 0u;
                        c++;
                        scale = k.x1(first + c) * factor;
                        bias = k.x2(first + c);
                    }
                    y[j] = __fmaf_rn(v[u * V + j] - m.mean, scale, bias);
                    rest++;
                }
                if constexpr (V == 1u) {
                    k.emit0(base + at, y[0]);
                } else {
                    k.emit0_any(base + at, y);
                }
            }
        }
    }
}

template <u32 V, class K> DEV void whole_group(const K& k) {
    const auto& p = params<GroupPartsParams>(k);
    const u32 base = blockIdx.x * p.count;
    const Moments m = block_moments(k, thread_moments<V>(k, base, base + p.count));
    store_group<V>(k, blockIdx.x, 0u, p.count, m);
}

// Mean and squares of a part to scratch memory.
template <u32 V, class K> DEV void part_of_group(const K& k) {
    const auto& p = params<GroupPartsParams>(k);
    const u32 group = blockIdx.x / p.parts;
    const u32 from = (blockIdx.x - group * p.parts) * p.part;
    const u32 to = min(from + p.part, p.count);
    const Moments m = block_moments(k, thread_moments<V>(k, group * p.count + from, group * p.count + to));
    if (threadIdx.x == 0u) {
        f32* const found = reinterpret_cast<f32*>(k.scratch) + blockIdx.x * 2u;
        found[0] = m.mean;
        found[1] = m.squares;
    }
}

template <u32 V, class K> DEV void apply_to_group(const K& k) {
    const auto& p = params<GroupPartsParams>(k);
    const u32 group = blockIdx.x / p.parts;
    const f32* const found = reinterpret_cast<const f32*>(k.scratch) + group * p.parts * 2u;
    Moments m = no_moments();
    for (u32 i = threadIdx.x; i < p.parts; i += K::LANES) {
        m = merged(m, Moments{f32(min(p.part, p.count - i * p.part)), found[i * 2u], found[i * 2u + 1u]});
    }
    m = block_moments(k, m);
    const u32 from = (blockIdx.x - group * p.parts) * p.part;
    store_group<V>(k, group, from, min(from + p.part, p.count), m);
}

template <class K> DEV void whole_group_8(const K& k) { whole_group<8u>(k); }
template <class K> DEV void whole_group_1(const K& k) { whole_group<1u>(k); }
template <class K> DEV void part_of_group_8(const K& k) { part_of_group<8u>(k); }
template <class K> DEV void part_of_group_1(const K& k) { part_of_group<1u>(k); }
template <class K> DEV void apply_to_group_8(const K& k) { apply_to_group<8u>(k); }
template <class K> DEV void apply_to_group_1(const K& k) { apply_to_group<1u>(k); }
