// Elements of x picked by an index each along an axis: neighbours of the result for a thread, eight, or several times as many as have
// indices of 16 bytes, or one. All indices are read before the first element. The innermost dimension is counted in
// vectors, `all` of them, of which a thread takes every `threads`-th. `At` is the type of positions in x.
#pragma once
#include "../checks/index.cuh"
#include "../slice/copy.cuh"
#include "../slice/divisor.cuh"

struct GatherRunsParams {
    u32 axis;
    u32 stride;
    u32 step;
    u32 all;
    u32 threads;
    u32 rank;
    u32 sizes[6];
    u32 factors[6];
    u32 shifts[6];
    u32 strides[6];
    List more_sizes;
    List more_strides;
};

// So many neighbours in memory.
template <class Cell, u32 V> struct alignas(V * sizeof(Cell)) Neighbours {
    Cell v[V];
};

// Vectors of V elements, TIMES of them for a thread.
template <u32 V, u32 TIMES, class K> DEV void gather_run(const K& k, u32 t) {
    typedef typename K::At At;
    typedef typename K::IndexCell Index;
    typedef typename K::Cell Cell;
    const auto& p = params<GatherRunsParams>(k);
    Index index[TIMES][V];
#pragma unroll
    for (u32 u = 0u; u < TIMES; u++) {
        // The vectors of the last threads may be fewer: they read the last one again.
        const u32 vector = min(t + u * p.threads, p.all - 1u);
        if constexpr (V == 8u) {
            const auto r = Run<Index>::of(k.bx1 + vector * 8u, 1u);
#pragma unroll
            for (u32 j = 0u; j < V; j++) {
                index[u][j] = r.v[j];
            }
        } else {
            const auto r = reinterpret_cast<const Neighbours<Index, V>*>(k.bx1)[vector];
#pragma unroll
            for (u32 j = 0u; j < V; j++) {
                index[u][j] = r.v[j];
            }
        }
    }
    Cell found[TIMES][V];
#pragma unroll
    for (u32 u = 0u; u < TIMES; u++) {
        const u32 vector = min(t + u * p.threads, p.all - 1u);
        const At base = by_strides<0u, At>(k, p, vector);
#pragma unroll
        for (u32 j = 0u; j < V; j++) {
            const Index i = checked(k, 1u, vector * V + j, index[u][j], p.axis);
            found[u][j] = Cell(0);
            if (i >= 0) {
                found[u][j] = k.bx0[base + At(j * p.step) + At(u32(i)) * p.stride];
            }
        }
    }
#pragma unroll
    for (u32 u = 0u; u < TIMES; u++) {
        const u32 vector = t + u * p.threads;
        if (TIMES > 1u && vector >= p.all) {
            return;
        }
        if constexpr (V == 8u) {
            Run<Cell> out;
#pragma unroll
            for (u32 j = 0u; j < V; j++) {
                out.v[j] = found[u][j];
            }
            put_8(k, out, vector * 8u);
        } else if constexpr (V == 1u || K::FUSED) {
#pragma unroll
            for (u32 j = 0u; j < V; j++) {
                copy_1(k, &found[u][j], vector * V + j);
            }
        } else {
            Neighbours<Cell, V> out;
#pragma unroll
            for (u32 j = 0u; j < V; j++) {
                out.v[j] = found[u][j];
            }
            reinterpret_cast<Neighbours<Cell, V>*>(k.by0)[vector] = out;
        }
    }
}

template <class K> DEV void gather_run_8(const K& k, u32 t) { gather_run<8u, 1u>(k, t); }
template <class K> DEV void gather_run_near(const K& k, u32 t) { gather_run<16u / u32(sizeof(typename K::IndexCell)), 4u>(k, t); }
template <class K> DEV void gather_run_1(const K& k, u32 t) { gather_run<1u, 1u>(k, t); }
