// Elements put where the maxima were that a pooling took.
#pragma once
#include "../prelude/launch.cuh"

struct MaxUnpoolParams {
    u32 plane;
    List pooled;
    List pooled_strides;
    List dims;
    List strides;
};

template <class K> DEV typename K::Value zeros(const K& k, u32 at) { return K::ZERO; }

// A thread a plane of x.
template <class K> DEV void max_unpool(const K& k, u32 t) {
    const auto& p = params<MaxUnpoolParams>(k);
    for (u32 i = 0u; i < p.plane; i++) {
        const u32 from = t * p.plane + i;
        const i64 index = k.x1(from);
        bool ok = index >= i64(0) && index <= i64(2147483647);
        u32 rest = u32(i32(index));
        u32 to = 0u;
        for (u32 d = 0u; d < p.pooled.count; d++) {
            const u32 stride = max(item(k, p.pooled_strides, d), 1u);
            const u32 c = rest / stride;
            rest = rest % stride;
            ok = ok && c < item(k, p.pooled, d) && c < item(k, p.dims, d);
            to += c * item(k, p.strides, d);
        }
        if (ok) {
            k.emit0(to, k.x0(from));
        }
    }
}
