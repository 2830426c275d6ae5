// Resizing by tables of taps, one for each dimension: (element, weight) of every tap of every place of the result. A first element
// 0xffffffff says that the place is outside.
#pragma once
#include "../prelude/launch.cuh"

struct ResizeParams {
    u32 combinations;
    f32 outside;
    List dims;
    List strides;
    List taps;
    List starts;
    List table;
};

template <class K> DEV auto resize(const K& k, u32 at) {
    const auto& p = params<ResizeParams>(k);
    f32 sum = 0.0f;
    for (u32 c = 0u; c < p.combinations; c++) {
        u32 rest = at;
        u32 which = c;
        u32 source = 0u;
        f32 weight = 1.0f;
        for (u32 d = p.dims.count; d > 0u; d--) {
            const u32 n = item(k, p.dims, d - 1u);
            const u32 taps = item(k, p.taps, d - 1u);
            const u32 o = rest % n;
            rest = rest / n;
            const u32 tap = item(k, p.starts, d - 1u) + (o * taps + which % taps) * 2u;
            which = which / taps;
            const u32 i = item(k, p.table, tap);
            if (i == 0xffffffffu) {
                return k.stored(p.outside);
            }
            source += i * item(k, p.strides, d - 1u);
            weight *= item_f32(k, p.table, tap + 1u);
        }
        if (weight != 0.0f) {
            sum += weight * f32(k.x0(source));
        }
    }
    return k.stored(sum);
}
