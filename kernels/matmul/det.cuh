// Determinants by elimination in scratch memory: a thread a matrix.
#pragma once
#include "../prelude/launch.cuh"

struct DetParams {
    u32 rows;
};

template <class K> DEV void det(const K& k, u32 t) {
    const u32 n = params<DetParams>(k).rows;
    const u32 base = t * n * n;
    const auto at = [&](u32 i, u32 j) { return bitcast<f32>(k.scratch[base + i * n + j]); };
    for (u32 i = 0u; i < n * n; i++) {
        k.scratch[base + i] = bitcast<u32>(k.x0(base + i));
    }
    f32 product = 1.0f;
    for (u32 c = 0u; c < n; c++) {
        u32 pivot = c;
        for (u32 i = c + 1u; i < n; i++) {
            if (abs(at(i, c)) > abs(at(pivot, c))) {
                pivot = i;
            }
        }
        if (pivot != c) {
            for (u32 j = 0u; j < n; j++) {
                const u32 v = k.scratch[base + c * n + j];
                k.scratch[base + c * n + j] = k.scratch[base + pivot * n + j];
                k.scratch[base + pivot * n + j] = v;
            }
            product = -product;
        }
        const f32 p = at(c, c);
        product = product * p;
        if (p == 0.0f) {
            continue;
        }
        for (u32 i = c + 1u; i < n; i++) {
            const f32 f = at(i, c) / p;
            for (u32 j = c; j < n; j++) {
                const f32 v = at(i, j) - f * at(c, j);
                k.scratch[base + i * n + j] = bitcast<u32>(v);
            }
        }
    }
    k.emit0(t, product);
}
