// Elements of x picked by an index each along an axis: neighbours of the result for a thread, eight, or as many as have indices of 16
// bytes, or one. All indices are read before the first element. Lists begin with the innermost dimension, which is counted in vectors. `At` is the type of positions in x.
#pragma once
#include "../slice/copy.cuh"
#include "../slice/divisor.cuh"

struct GatherRunsParams {
    u32 axis;
    u32 stride;
    u32 step;
    List sizes;
    List factors;
    List shifts;
    List strides;
};

// So many neighbours in memory.
template <class Cell, u32 V> struct alignas(V * sizeof(Cell)) Neighbours {
    Cell v[V];
};

template <u32 V, class K> DEV void gather_run(const K& k, u32 t) {
    typedef typename K::At At;
    typedef typename K::IndexCell Index;
    typedef typename K::Cell Cell;
    const auto& p = params<GatherRunsParams>(k);
    Index index[V];
    if constexpr (V == 8u) {
        const auto r = Run<Index>::of(k.bx1 + t * 8u, 1u);
#pragma unroll
        for (u32 j = 0u; j < V; j++) {
            index[j] = r.v[j];
        }
    } else {
        const auto r = reinterpret_cast<const Neighbours<Index, V>*>(k.bx1)[t];
#pragma unroll
        for (u32 j = 0u; j < V; j++) {
            index[j] = r.v[j];
        }
    }
    At base = 0u;
    u32 rest = t;
    for (u32 d = 0u; d < p.sizes.count; d++) {
        const u32 n = item(k, p.sizes, d);
        const u32 q = divide(rest, Divisor{n, item(k, p.factors, d), item(k, p.shifts, d)});
        base += At(rest - q * n) * item(k, p.strides, d);
        rest = q;
    }
    Cell found[V];
#pragma unroll
    for (u32 j = 0u; j < V; j++) {
        const Index i = index[j] < Index(0) ? Index(index[j] + Index(p.axis)) : index[j];
        found[j] = Cell(0);
        if (i >= Index(0) && i < Index(p.axis)) {
            found[j] = k.bx0[base + At(j * p.step) + At(u32(i)) * p.stride];
        }
    }
    if constexpr (V == 8u) {
        Run<Cell> out;
#pragma unroll
        for (u32 j = 0u; j < V; j++) {
            out.v[j] = found[j];
        }
        put_8(k, out, t * 8u);
    } else if constexpr (V == 1u || K::FUSED) {
#pragma unroll
        for (u32 j = 0u; j < V; j++) {
            copy_1(k, found + j, t * V + j);
        }
    } else {
        Neighbours<Cell, V> out;
#pragma unroll
        for (u32 j = 0u; j < V; j++) {
            out.v[j] = found[j];
        }
        reinterpret_cast<Neighbours<Cell, V>*>(k.by0)[t] = out;
    }
}

template <class K> DEV void gather_run_8(const K& k, u32 t) { gather_run<8u>(k, t); }
template <class K> DEV void gather_run_near(const K& k, u32 t) { gather_run<16u / u32(sizeof(typename K::IndexCell))>(k, t); }
template <class K> DEV void gather_run_1(const K& k, u32 t) { gather_run<1u>(k, t); }
