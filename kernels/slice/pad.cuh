// A part of x with more around it.
#pragma once
#include "../prelude/launch.cuh"

struct PadParams {
    List dims;
    List sizes;
    List strides;
    List before;
};

// Value outside of x, by `K::MODE`.
enum Mode : u32 { CONSTANT, EDGE, WRAP, REFLECT };

// The element that stands at position i of an axis of n elements; -1 if there is none.
template <class K> DEV i32 around(i32 i, i32 n) {
    if constexpr (K::MODE == EDGE) {
        return clamp(i, 0, n - 1);
    }
    if constexpr (K::MODE == CONSTANT) {
        return i < 0 || i >= n ? -1 : i;
    }
    if (n <= 0) {
        return -1;
    }
    if constexpr (K::MODE == WRAP) {
        return ((i % n) + n) % n;
    }
    const i32 period = 2 * max(n - 1, 1);
    const i32 c = ((i % period) + period) % period;
    return c < n ? c : period - c;
}

template <class K> DEV typename K::Value pad(const K& k, u32 at) {
    const auto& p = params<PadParams>(k);
    u32 rest = at;
    u32 from = 0u;
    for (u32 d = p.dims.count; d > 0u; d--) {
        const u32 n = item(k, p.dims, d - 1u);
        const i32 c = around<K>(i32(rest % n) - item_i32(k, p.before, d - 1u), i32(item(k, p.sizes, d - 1u)));
        rest = rest / n;
        if (c < 0) {
            return k.gap();
        }
        from += u32(c) * item(k, p.strides, d - 1u);
    }
    return k.x0(from);
}
