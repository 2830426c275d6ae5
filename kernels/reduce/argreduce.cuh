// The position of the greatest or least element along an axis.
#pragma once
#include "../prelude/launch.cuh"

struct LineParams {
    u32 count;
    u32 inner;
};

template <class K> DEV i64 argreduce(const K& k, u32 at) {
    const auto& p = params<LineParams>(k);
    const u32 base = at / p.inner * p.count * p.inner + at % p.inner;
    u32 best = 0u;
    for (u32 i = 1u; i < p.count; i++) {
        if (k.replaces(k.x0(base + best * p.inner), k.x0(base + i * p.inner))) {
            best = i;
        }
    }
    return i64(i32(best));
}
