// Reductions of axes before the last ones that are kept, read up to eight elements at a time. Hooks as in `reduce.cuh`.
#pragma once
#include "parts.cuh"

struct ReduceColumnsParams {
    u32 elements;
    u32 columns;
    u32 wide;
    u32 wide_log2;
    u32 parts;
    u32 part;
    u32 side;
    u32 results;
    u32 raw;
};

// Adds the elements from `at` on to the sums of V columns.
template <u32 V, class K> DEV void take(const K& k, Part<K> (&sums)[V], u32 at) {
    typedef decltype(k.x0(0u)) T;
    if constexpr (V == 8u) {
        const auto r = Run<typename K::Cell>::of(k.bx0 + at, 1u);
#pragma unroll
        for (u32 j = 0u; j < V; j++) {
            const T v[1] = {k.wide(r.v[j])};
            sums[j] = with_elements(k, sums[j], v);
        }
    } else {
        const T v[1] = {k.x0(at)};
        sums[0] = with_elements(k, sums[0], v);
    }
}

// Stores the sums of V columns, or their results, which begin with number `at`.
template <u32 V, class K> DEV void put_columns(const K& k, const Part<K>* sums, u32 at) {
    const auto& p = params<ReduceColumnsParams>(k);
    if (p.raw != 0u) {
#pragma unroll
        for (u32 j = 0u; j < V; j++) {
            reinterpret_cast<Part<K>*>(k.scratch)[at + j] = sums[j];
        }
        return;
    }
    typename K::Value done[V];
#pragma unroll
    for (u32 j = 0u; j < V; j++) {
        done[j] = result_of(k, sums[j], p.elements);
    }
    if constexpr (V == 8u) {
        k.emit0_run(at, done);
    } else {
        k.emit0(at, done[0]);
    }
}

// A thread for V columns of few elements.
template <u32 V, class K> DEV void short_columns(const K& k, u32 t) {
    const auto& p = params<ReduceColumnsParams>(k);
    const u32 outer = t / (p.columns / V);
    const u32 first = outer * p.elements * p.columns + (t - outer * (p.columns / V)) * V;
    Part<K> sums[V];
#pragma unroll
    for (u32 j = 0u; j < V; j++) {
        sums[j] = empty_part(k);
    }
#pragma unroll 4
    for (u32 r = 0u; r < p.elements; r++) {
        take<V>(k, sums, first + r * p.columns);
    }
    put_columns<V>(k, sums, t * V);
}

template <class K> DEV void short_columns_8(const K& k, u32 t) { short_columns<8u>(k, t); }

template <class K> DEV void short_columns_1(const K& k, u32 t) { short_columns<1u>(k, t); }

template <class K> DEV Part<K>* partial_sums() {
    __shared__ Part<K> partial[2048];
    return partial;
}

template <u32 V, class K> DEV void columns(const K& k) {
    const auto& p = params<ReduceColumnsParams>(k);
    Part<K>* const partial = partial_sums<K>();
    const u32 l = threadIdx.x;
    const u32 high = 256u >> p.wide_log2;
    const u32 x = l & (p.wide - 1u);
    const u32 y = l >> p.wide_log2;
    const u32 part = blockIdx.x / p.side % p.parts;
    const u32 outer = blockIdx.x / p.side / p.parts;
    const u32 c = (blockIdx.x % p.side * p.wide + x) * V;
    Part<K> sums[V];
#pragma unroll
    for (u32 j = 0u; j < V; j++) {
        sums[j] = empty_part(k);
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
                partial[l * V + j] = merged_parts(k, partial[l * V + j], partial[(l + h * p.wide) * V + j]);
            }
        }
        __syncthreads();
    }
    if (y > 0u || c >= p.columns) {
        return;
    }
    // Parts of a column are sums, one after the other.
    put_columns<V>(k, partial + l * V, part * p.results + outer * p.columns + c);
}

template <class K> DEV void columns_of_8(const K& k) { columns<8u>(k); }

template <class K> DEV void columns_of_1(const K& k) { columns<1u>(k); }
