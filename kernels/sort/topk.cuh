// The first elements of each line along an axis in the order `precedes`, equal ones by position: a thread an element finds its
// rank in its line.
#pragma once
#include "../prelude/launch.cuh"

struct TopkParams {
    u32 count;
    u32 inner;
    u32 kept;
};

template <class K> DEV void topk(const K& k, u32 t) {
    const auto& p = params<TopkParams>(k);
    const u32 i = t / p.inner % p.count;
    const u32 outer = t / p.inner / p.count;
    const u32 base = outer * p.count * p.inner + t % p.inner;
    const auto v = k.x0(t);
    u32 rank = 0u;
    for (u32 j = 0u; j < p.count; j++) {
        const auto u = k.x0(base + j * p.inner);
        if (k.precedes(u, v) || (j < i && !k.precedes(v, u))) {
            rank++;
        }
    }
    if (rank < p.kept) {
        const u32 to = (outer * p.kept + rank) * p.inner + t % p.inner;
        k.emit0(to, v);
        k.emit1(to, i64(i32(i)));
    }
}
