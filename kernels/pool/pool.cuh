// Pooling of windows: maxima, averages, norms.
#pragma once
#include "../conv/windows.cuh"
#include "../prelude/math.cuh"
#include "taps.cuh"

template <class K> DEV typename K::Value pool(const K& k, u32 at) {
    const auto& p = params<WindowsParams>(k);
    const Windows w = windows(k);
    const u32 places = volume(w.input);
    const auto own = parts<K>(at, p.channels, volume(w.output));
    const auto o = unflatten(own.z, w.output);
    typename K::Value sum = k.first();
    i32 count = 0;
    for (i32 kz = 0; kz < w.kernel.x; kz++) {
        const i32 z = under(o.x, kz, w.stride.x, w.dilation.x, w.begin.x);
        if (!inside(z, w.input.x)) {
            continue;
        }
        for (i32 ky = 0; ky < w.kernel.y; ky++) {
            const i32 y = under(o.y, ky, w.stride.y, w.dilation.y, w.begin.y);
            if (!inside(y, w.input.y)) {
                continue;
            }
            for (i32 kx = 0; kx < w.kernel.z; kx++) {
                const i32 x = under(o.z, kx, w.stride.z, w.dilation.z, w.begin.z);
                if (!inside(x, w.input.z)) {
                    continue;
                }
                const u32 place = u32((z * w.input.y + y) * w.input.z + x);
                sum = k.step(sum, k.x0(lie<K>(own.x, own.y, p.channels, place, places)));
                count++;
            }
        }
    }
    if constexpr (K::PADDED) {
        count = padded_taps(w, o);
    }
    return k.last(sum, count);
}
