// Maxima of windows with their positions.
#pragma once
#include "../conv/windows.cuh"

// The position of the greatest element in its plane, first of equals; -1 without elements.
template <class K> DEV i32 greatest(const K& k, u32 at) {
    const Windows w = windows(k);
    const auto o = unflatten(at % volume(w.output), w.output);
    const u32 plane = at / volume(w.output) * volume(w.input);
    i32 best = -1;
    for (i32 kz = 0; kz < w.kernel.x; kz++) {
        const i32 z = under(o.x, kz, w.stride.x, w.dilation.x, w.begin.x);
        for (i32 ky = 0; ky < w.kernel.y; ky++) {
            const i32 y = under(o.y, ky, w.stride.y, w.dilation.y, w.begin.y);
            for (i32 kx = 0; kx < w.kernel.z; kx++) {
                const i32 x = under(o.z, kx, w.stride.z, w.dilation.z, w.begin.z);
                if (inside(z, w.input.x) && inside(y, w.input.y) && inside(x, w.input.z)) {
                    const i32 place = (z * w.input.y + y) * w.input.z + x;
                    if (best < 0 || k.better(k.x0(plane + u32(place)), k.x0(plane + u32(best)))) {
                        best = place;
                    }
                }
            }
        }
    }
    return best;
}

template <class K> DEV typename K::Value max_pool(const K& k, u32 at) {
    const Windows w = windows(k);
    const i32 best = greatest(k, at);
    if (best < 0) {
        return k.first();
    }
    return k.x0(at / volume(w.output) * volume(w.input) + u32(best));
}

// The position counts columns first where `K::COLUMNS`.
template <class K> DEV i64 max_pool_index(const K& k, u32 at) {
    const Windows w = windows(k);
    const i32 best = greatest(k, at);
    if (best < 0) {
        return i64(-1);
    }
    const auto at_best = unflatten(u32(best), w.input);
    const u32 by_columns = u32((at_best.z * w.input.y + at_best.y) * w.input.x + at_best.x);
    return i64(i32(at / volume(w.output) * volume(w.input) + (K::COLUMNS ? by_columns : u32(best))));
}
