// 1 at the first greatest element of a line, 0 elsewhere: a thread a line. NaN is the greatest.
#pragma once
#include "../prelude/launch.cuh"

struct LineParams {
    u32 count;
    u32 inner;
};

template <class K> DEV void hardmax(const K& k, u32 t) {
    const auto& p = params<LineParams>(k);
    const u32 base = t / p.inner * p.count * p.inner + t % p.inner;
    u32 best = 0u;
    for (u32 i = 1u; i < p.count; i++) {
        const f32 b = k.x0(base + best * p.inner);
        const f32 x = k.x0(base + i * p.inner);
        if (!is_nan(b) && (is_nan(x) || x > b)) {
            best = i;
        }
    }
    for (u32 i = 0u; i < p.count; i++) {
        k.emit0(base + i * p.inner, i == best ? 1.0f : 0.0f);
    }
}
