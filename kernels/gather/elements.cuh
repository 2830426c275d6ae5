// Elements of x picked by an index each along an axis. A thread has eight neighbours of the result, or one, or eight elements that are
// as far apart as there are threads. All indices are read before the first element. Lists begin with the innermost dimension, which is
// counted in vectors where a thread has neighbours. `At` is the type of positions in x.
#pragma once
#include "../slice/copy.cuh"
#include "../slice/divisor.cuh"

struct GatherRunsParams {
    u32 results;
    u32 axis;
    u32 stride;
    u32 step;
    List sizes;
    List factors;
    List shifts;
    List strides;
};

// Position in x of the first element that index 0 would pick for place t of the lists.
template <class K> DEV typename K::At base_of(const K& k, const GatherRunsParams& p, u32 t) {
    typedef typename K::At At;
    At base = 0u;
    for (u32 d = 0u; d < p.sizes.count; d++) {
        const u32 n = item(k, p.sizes, d);
        const u32 q = divide(t, Divisor{n, item(k, p.factors, d), item(k, p.shifts, d)});
        base += At(t - q * n) * item(k, p.strides, d);
        t = q;
    }
    return base;
}

// The element that an index picks, zero where it is out of range.
template <class K> DEV typename K::Cell picked(const K& k, const GatherRunsParams& p, typename K::At base, typename K::IndexCell index) {
    typedef typename K::IndexCell Index;
    const Index i = index < Index(0) ? Index(index + Index(p.axis)) : index;
    if (i >= Index(0) && i < Index(p.axis)) {
        return k.bx0[base + typename K::At(u32(i)) * p.stride];
    }
    return typename K::Cell(0);
}

template <u32 V, class K> DEV void gather_run(const K& k, u32 t) {
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
        index[0] = k.bx1[t];
    }
    const auto base = base_of(k, p, t);
    Cell found[V];
#pragma unroll
    for (u32 j = 0u; j < V; j++) {
        found[j] = picked(k, p, base + typename K::At(j * p.step), index[j]);
    }
    if constexpr (V == 8u) {
        Run<Cell> out;
#pragma unroll
        for (u32 j = 0u; j < V; j++) {
            out.v[j] = found[j];
        }
        put_8(k, out, t * 8u);
    } else {
        copy_1(k, found, t);
    }
}

template <class K> DEV void gather_run_8(const K& k, u32 t) { gather_run<8u>(k, t); }
template <class K> DEV void gather_run_1(const K& k, u32 t) { gather_run<1u>(k, t); }

// Elements t, t + all threads, ..: neighbouring threads read neighbouring indices and write neighbouring results.
template <class K> DEV void gather_spread(const K& k, u32 t) {
    constexpr u32 EACH = 8u;
    const auto& p = params<GatherRunsParams>(k);
    typename K::IndexCell index[EACH];
    typename K::Cell found[EACH];
#pragma unroll
    for (u32 j = 0u; j < EACH; j++) {
        const u64 at = t + u64(j) * k.grid_n;
        index[j] = at < p.results ? k.bx1[at] : typename K::IndexCell(0);
    }
#pragma unroll
    for (u32 j = 0u; j < EACH; j++) {
        const u64 at = t + u64(j) * k.grid_n;
        if (at < p.results) {
            found[j] = picked(k, p, base_of(k, p, u32(at)), index[j]);
        }
    }
#pragma unroll
    for (u32 j = 0u; j < EACH; j++) {
        const u64 at = t + u64(j) * k.grid_n;
        if (at < p.results) {
            copy_1(k, found + j, u32(at));
        }
    }
}
