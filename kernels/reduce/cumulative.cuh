// Running sums and products along an axis: a thread a line.
#pragma once
#include "../prelude/launch.cuh"

struct LineParams {
    u32 count;
    u32 inner;
};

template <class K> DEV void cumulative(const K& k, u32 t) {
    const auto& p = params<LineParams>(k);
    const u32 base = t / p.inner * p.count * p.inner + t % p.inner;
    typename K::Value sum = K::START;
    for (u32 i = 0u; i < p.count; i++) {
        const u32 at = base + (K::REVERSE ? p.count - 1u - i : i) * p.inner;
        const auto next = k.step(sum, k.x0(at));
        k.emit0(at, K::EXCLUSIVE ? sum : next);
        sum = next;
    }
}
