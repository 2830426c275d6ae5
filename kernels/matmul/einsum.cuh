// Sums of products under labels.
#pragma once
#include "../prelude/launch.cuh"

struct EinsumParams {
    u32 terms;
    List dims;
    List strides;
    List inner;
    List inner_strides;
};

template <class K> DEV typename K::Value einsum(const K& k, u32 at) {
    const auto& p = params<EinsumParams>(k);
    u32 start[K::INPUTS] = {};
    u32 rest = at;
    for (u32 d = p.dims.count; d > 0u; d--) {
        const u32 n = item(k, p.dims, d - 1u);
        const u32 c = rest % n;
        rest = rest / n;
        for (u32 i = 0u; i < K::INPUTS; i++) {
            start[i] += c * item(k, p.strides, p.dims.count * i + d - 1u);
        }
    }
    typename K::Value sum = K::ZERO;
    for (u32 t = 0u; t < p.terms; t++) {
        u32 from[K::INPUTS];
        for (u32 i = 0u; i < K::INPUTS; i++) {
            from[i] = start[i];
        }
        rest = t;
        for (u32 d = p.inner.count; d > 0u; d--) {
            const u32 n = item(k, p.inner, d - 1u);
            const u32 c = rest % n;
            rest = rest / n;
            for (u32 i = 0u; i < K::INPUTS; i++) {
                from[i] += c * item(k, p.inner_strides, p.inner.count * i + d - 1u);
            }
        }
        sum += k.product(from);
    }
    return sum;
}
