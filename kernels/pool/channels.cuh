// Pooling of up to three dimensions with channels last: a thread has eight channels of a window. Taps along x are constants, so that
// the reads of a row of taps are on their way at once.
#pragma once
#include "../conv/windows.cuh"
#include "taps.cuh"

// EVEN: vectors of x start at multiples of their size, so that their reads take no branches.
template <bool EVEN, class K> DEV void pooled(const K& k, u32 t) {
    typedef typename K::Value Value;
    typedef Run<typename K::Cell> Eight;
    constexpr u32 AHEAD = K::X_TAPS < 4u ? K::X_TAPS : 4u;
    const Windows w = windows(k);
    const u32 side = params<WindowsParams>(k).channels / 8u;
    const u32 pixel = t / side;
    const u32 c = (t - pixel * side) * 8u;
    const u32 image = pixel / volume(w.output);
    const auto o = unflatten(pixel - image * volume(w.output), w.output);
    Value sums[8];
#pragma unroll
    for (u32 j = 0u; j < 8u; j++) {
        sums[j] = k.first();
    }
    i32 count = 0;
    for (i32 kz = 0; kz < w.kernel.x; kz++) {
        const i32 z = under(o.x, kz, w.stride.x, w.dilation.x, w.begin.x);
        if (!inside(z, w.input.x)) {
            continue;
        }
#pragma unroll 3
        for (i32 ky = 0; ky < w.kernel.y; ky++) {
            const i32 y = under(o.y, ky, w.stride.y, w.dilation.y, w.begin.y);
            if (!inside(y, w.input.y)) {
                continue;
            }
            const u32 row = ((image * u32(w.input.x) + u32(z)) * u32(w.input.y) + u32(y)) * u32(w.input.z);
#pragma unroll 1
            for (u32 kx = 0u; kx < K::X_TAPS; kx += AHEAD) {
                Eight read[AHEAD];
                bool there[AHEAD];
#pragma unroll
                for (u32 i = 0u; i < AHEAD; i++) {
                    const i32 x = under(o.z, i32(kx + i), w.stride.z, w.dilation.z, w.begin.z);
                    there[i] = kx + i < K::X_TAPS && inside(x, w.input.z);
                    if (there[i]) {
                        read[i] = Eight::template next<EVEN>(k.bx0 + (row + u32(x)) * side * 8u + c);
                    }
                }
#pragma unroll
                for (u32 i = 0u; i < AHEAD; i++) {
                    if (there[i]) {
                        count++;
#pragma unroll
                        for (u32 j = 0u; j < 8u; j++) {
                            sums[j] = k.step(sums[j], k.wide(read[i].v[j]));
                        }
                    }
                }
            }
        }
    }
    if constexpr (K::PADDED) {
        count = padded_taps(w, o);
    }
#pragma unroll
    for (u32 j = 0u; j < 8u; j++) {
        sums[j] = k.last(sums[j], count);
    }
    k.emit0_run(pixel * side * 8u + c, sums);
}

template <class K> DEV void pool_channels(const K& k, u32 t) {
    if (reinterpret_cast<u64>(k.bx0) % alignof(Run<typename K::Cell>) == 0u) {
        pooled<true>(k, t);
    } else {
        pooled<false>(k, t);
    }
}
