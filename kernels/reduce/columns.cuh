// Reductions of axes before the last ones that are kept, read up to eight elements at a time. Hooks as in `reduce.cuh`.
#pragma once
#include "../prelude/launch.cuh"
#include "../prelude/math.cuh"

struct ReduceColumnsParams {
    u32 elements;
    u32 columns;
    u32 wide;
    u32 wide_log2;
    u32 parts;
    u32 part;
    u32 side;
    u32 results;
};

// Adds the elements from `at` on to the sums of V columns.
template <u32 V, class K> DEV void take(const K& k, typename K::Sum (&sums)[V], u32 at) {
    typedef typename K::Sum Sum;
    if constexpr (V == 8u) {
        const auto r = Run<typename K::Cell>::of(k.bx0 + at, 1u);
#pragma unroll
        for (u32 j = 0u; j < V; j++) {
            sums[j] = k.step(sums[j], Sum(k.decoded(r.v[j])), 0.0f);
        }
    } else {
        sums[0] = k.step(sums[0], Sum(k.x0(at)), 0.0f);
    }
}

template <class K> DEV typename K::Sum* partial_sums() {
    __shared__ typename K::Sum partial[2048];
    return partial;
}

template <u32 V, class K> DEV void columns(const K& k) {
    typedef typename K::Sum Sum;
    const auto& p = params<ReduceColumnsParams>(k);
    Sum* const partial = partial_sums<K>();
    const u32 l = threadIdx.x;
    const u32 high = 256u >> p.wide_log2;
    const u32 x = l & (p.wide - 1u);
    const u32 y = l >> p.wide_log2;
    const u32 part = blockIdx.x / p.side % p.parts;
    const u32 outer = blockIdx.x / p.side / p.parts;
    const u32 c = (blockIdx.x % p.side * p.wide + x) * V;
    Sum sums[V];
#pragma unroll
    for (u32 j = 0u; j < V; j++) {
        sums[j] = k.empty();
    }
    if (c < p.columns) {
        const u32 end = min(p.elements, (part + 1u) * p.part);
#pragma unroll 4
        for (u32 r = part * p.part + y; r < end; r += high) {
            take<V>(k, sums, (outer * p.elements + r) * p.columns + c);
        }
    }
#pragma unroll
    for (u32 j = 0u; j < V; j++) {
        partial[l * V + j] = sums[j];
    }
    __syncthreads();
    for (u32 h = high / 2u; h > 0u; h /= 2u) {
        if (y < h) {
#pragma unroll
            for (u32 j = 0u; j < V; j++) {
                partial[l * V + j] = k.merge(partial[l * V + j], partial[(l + h * p.wide) * V + j]);
            }
        }
        __syncthreads();
    }
    if (y > 0u || c >= p.columns) {
        return;
    }
    if (p.parts > 1u) {
#pragma unroll
        for (u32 j = 0u; j < V; j++) {
            reinterpret_cast<Sum*>(k.scratch)[part * p.results + outer * p.columns + c + j] = partial[l * V + j];
        }
        return;
    }
    typename K::Value done[V];
#pragma unroll
    for (u32 j = 0u; j < V; j++) {
        done[j] = k.last(partial[l * V + j], p.elements, 0.0f);
    }
    if constexpr (V == 8u) {
        k.emit0_run(outer * p.columns + c, done);
    } else {
        k.emit0(outer * p.columns + c, done[0]);
    }
}

template <class K> DEV void columns_of_8(const K& k) { columns<8u>(k); }

template <class K> DEV void columns_of_1(const K& k) { columns<1u>(k); }

// What the parts of a result give together.
template <class K> DEV void reduce_parts(const K& k, u32 t) {
    typedef typename K::Sum Sum;
    const auto& p = params<ReduceColumnsParams>(k);
    Sum acc = k.empty();
    for (u32 i = 0u; i < p.parts; i++) {
        acc = k.merge(acc, reinterpret_cast<const Sum*>(k.scratch)[i * p.results + t]);
    }
    k.emit0(t, k.last(acc, p.elements, 0.0f));
}
