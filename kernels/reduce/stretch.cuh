// Elements of a stretch of memory, by vectors where these start at multiples of 8 elements.
#pragma once
#include "../prelude/launch.cuh"

// Calls `many` with arrays of values of elements `from`..`to`: those of the l-th of `lanes` threads. With V of 8 they are read by eights,
// with V of 1 one by one.
template <u32 V, class K, class Many> DEV void stretch(const K& k, u32 from, u32 to, u32 l, u32 lanes, Many& many) {
    typedef decltype(k.x0(0u)) T;
    constexpr u32 U = V == 1u ? 8u : 4u;
    const u32 step = lanes * V;
    const u32 head = V == 1u ? 0u : min((0u - from) % V, to - from);
    const u32 body = (to - from - head) / V * V;
    if (V > 1u) {
        const u32 odd = to - from - body;
        for (u32 i = l; i < odd; i += lanes) {
            const T edge[1] = {k.x0(from + i + (i < head ? 0u : body))};
            many(edge);
        }
    }
    u32 at = from + head + l * V;
    u32 left = body > l * V ? body - l * V : 0u;
    for (; left > (U - 1u) * step; left -= min(left, U * step), at += U * step) {
        T v[U * V];
        if constexpr (V == 1u) {
#pragma unroll
            for (u32 u = 0u; u < U; u++) {
                v[u] = k.x0(at + u * step);
            }
        } else {
            Run<typename K::Cell> r[U];
#pragma unroll
            for (u32 u = 0u; u < U; u++) {
                r[u] = Run<typename K::Cell>::of(k.bx0 + at + u * step, 1u);
            }
#pragma unroll
            for (u32 i = 0u; i < U * V; i++) {
                v[i] = k.wide(r[i / V].v[i % V]);
            }
        }
        many(v);
    }
    for (; left > 0u; left -= min(left, step), at += step) {
        T v[V];
        if constexpr (V == 1u) {
            v[0] = k.x0(at);
        } else {
            const auto r = Run<typename K::Cell>::of(k.bx0 + at, 1u);
#pragma unroll
            for (u32 i = 0u; i < V; i++) {
                v[i] = k.wide(r.v[i]);
            }
        }
        many(v);
    }
}
