// Updates at the places that indices say: a thread that owns a part of the result makes its updates in order. Inputs: x, which the
// result starts as, indices, updates.
#pragma once
#include "../checks/index.cuh"

struct ScatterElementsParams {
    u32 axis;
    u32 size;
    u32 updates;
    List lines;
    List index_strides;
    List strides;
};

struct ScatterNdParams {
    u32 tuples;
    u32 slice;
    List sizes;
    List strides;
};

template <class K> DEV auto scatter_copy(const K& k, u32 at) { return k.x0(at); }

// A thread a line along the axis.
template <class K> DEV void scatter_elements(const K& k, u32 t) {
    const auto& p = params<ScatterElementsParams>(k);
    u32 rest = t;
    u32 index = 0u;
    u32 to = 0u;
    for (u32 d = p.lines.count; d > 0u; d--) {
        const u32 n = item(k, p.lines, d - 1u);
        const u32 c = rest % n;
        rest = rest / n;
        index += c * item(k, p.index_strides, d - 1u);
        to += c * item(k, p.strides, d - 1u);
    }
    const u32 step = item(k, p.index_strides, p.axis);
    const u32 stride = item(k, p.strides, p.axis);
    for (u32 u = 0u; u < p.updates; u++) {
        const u32 at = index + u * step;
        const i32 i = checked(k, 1u, at, k.x1(at), p.size);
        if (i >= 0) {
            const u32 place = to + u32(i) * stride;
            k.emit0(place, k.combine(k.ry0(place), k.x2(at)));
        }
    }
}

// A thread an element of a slice.
template <class K> DEV void scatter_nd(const K& k, u32 t) {
    const auto& p = params<ScatterNdParams>(k);
    const u32 depth = p.sizes.count;
    for (u32 u = 0u; u < p.tuples; u++) {
        u32 place = t;
        bool inside = true;
        for (u32 d = 0u; d < depth; d++) {
            const i32 i = checked(k, 1u, u * depth + d, k.x1(u * depth + d), item(k, p.sizes, d));
            inside = inside && i >= 0;
            place += u32(max(i, 0)) * item(k, p.strides, d);
        }
        if (inside) {
            k.emit0(place, k.combine(k.ry0(place), k.x2(u * p.slice + t)));
        }
    }
}
