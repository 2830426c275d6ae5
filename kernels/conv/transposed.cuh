// Transposed convolutions, and columns put together to an image. `input` of the windows is the result.
#pragma once
#include "windows.cuh"

template <class K> DEV typename K::Value conv_transpose(const K& k, u32 at) {
    const auto& p = params<WindowsParams>(k);
    const Windows w = windows(k);
    const u32 taps = volume(w.kernel);
    const u32 places = volume(w.output);
    const auto own = parts<K>(at, p.out_channels, volume(w.input));
    const auto to = unflatten(own.z, w.input);
    const u32 channel = own.y;
    const u32 depth = p.group_out_channels;
    const u32 part = channel / depth;
    typename K::Value sum = k.bias(channel);
    for (u32 c = part * p.group_channels; c < (part + 1u) * p.group_channels; c++) {
        const u32 weights = (c * depth + channel % depth) * taps;
        u32 tap = 0u;
        for (i32 kz = 0; kz < w.kernel.x; kz++) {
            const i32 z = reaching(to.x, kz, w.stride.x, w.dilation.x, w.begin.x, w.output.x);
            for (i32 ky = 0; ky < w.kernel.y; ky++) {
                const i32 y = reaching(to.y, ky, w.stride.y, w.dilation.y, w.begin.y, w.output.y);
                for (i32 kx = 0; kx < w.kernel.z; kx++) {
                    const i32 x = reaching(to.z, kx, w.stride.z, w.dilation.z, w.begin.z, w.output.z);
                    if (z >= 0 && y >= 0 && x >= 0) {
                        const u32 place = u32((z * w.output.y + y) * w.output.z + x);
                        mac(sum, k.x0(lie<K>(own.x, c, p.channels, place, places)), k.x1(weights + tap));
                    }
                    tap++;
                }
            }
        }
    }
    return sum;
}

// x is [N, C, taps, windows].
template <class K> DEV typename K::Value col2im(const K& k, u32 at) {
    const Windows w = windows(k);
    const u32 places = volume(w.input);
    const auto to = unflatten(at % places, w.input);
    const u32 plane = at / places * volume(w.kernel);
    typename K::Value sum = k.bias(0u);
    u32 tap = 0u;
    for (i32 kz = 0; kz < w.kernel.x; kz++) {
        const i32 z = reaching(to.x, kz, w.stride.x, w.dilation.x, w.begin.x, w.output.x);
        for (i32 ky = 0; ky < w.kernel.y; ky++) {
            const i32 y = reaching(to.y, ky, w.stride.y, w.dilation.y, w.begin.y, w.output.y);
            for (i32 kx = 0; kx < w.kernel.z; kx++) {
                const i32 x = reaching(to.z, kx, w.stride.z, w.dilation.z, w.begin.z, w.output.z);
                if (z >= 0 && y >= 0 && x >= 0) {
                    sum += k.x0((plane + tap) * volume(w.output) + u32((z * w.output.y + y) * w.output.z + x));
                }
                tap++;
            }
        }
    }
    return sum;
}
