// Convolutions: one thread an element, or tiles of a product of matrices.
#pragma once
#include "windows.cuh"

template <class K> DEV typename K::Value conv_direct(const K& k, u32 at) {
    const auto& p = params<WindowsParams>(k);
    const Windows w = windows(k);
    const u32 taps = volume(w.kernel);
    const u32 places = volume(w.input);
    const auto own = parts<K>(at, p.out_channels, volume(w.output));
    const auto o = unflatten(own.z, w.output);
    const u32 channel = own.y;
    const u32 depth = p.group_channels;
    const u32 weights = channel * depth * taps;
    typename K::Value sum = k.bias(channel);
    for (u32 c = 0u; c < depth; c++) {
        const u32 source = channel / p.group_out_channels * depth + c;
        u32 tap = 0u;
        for (i32 kz = 0; kz < w.kernel.x; kz++) {
            const i32 z = under(o.x, kz, w.stride.x, w.dilation.x, w.begin.x);
            for (i32 ky = 0; ky < w.kernel.y; ky++) {
                const i32 y = under(o.y, ky, w.stride.y, w.dilation.y, w.begin.y);
                for (i32 kx = 0; kx < w.kernel.z; kx++) {
                    const i32 x = under(o.z, kx, w.stride.z, w.dilation.z, w.begin.z);
                    if (inside(z, w.input.x) && inside(y, w.input.y) && inside(x, w.input.z)) {
                        const u32 place = u32((z * w.input.y + y) * w.input.z + x);
                        const auto weight = k.x1(weights + weight_at<K>(c, depth, tap, taps));
                        mac(sum, k.x0(lie<K>(own.x, source, p.channels, place, places)), weight);
                    }
                    tap++;
                }
            }
        }
    }
    return sum;
}

// The product of the weights of a group [rows, K] and the elements under all windows [K, windows], by blocks of 256 threads.
template <class K> DEV void conv_tiled(const K& k) {
    __shared__ f32 tile_a[1088];
    __shared__ f32 tile_b[1088];
    const auto& p = params<WindowsParams>(k);
    const Windows w = windows(k);
    const u32 l = threadIdx.x;
    const u32 taps = volume(w.kernel);
    const u32 places = volume(w.input);
    const u32 rows = p.group_out_channels;
    const u32 cols = volume(w.output);
    const u32 depth = p.group_channels * taps;
    const u32 across = (cols + 63u) / 64u;
    const u32 down = (rows + 63u) / 64u;
    const u32 j0 = blockIdx.x % across * 64u;
    const u32 i0 = blockIdx.x / across % down * 64u;
    const u32 plane = blockIdx.x / across / down;
    const u32 groups = p.out_channels / rows;
    const u32 part = plane % groups;
    const u32 image = plane / groups;
    const u32 first = part * p.group_channels;
    const u32 weights = part * rows * depth;
    const u32 ti = l / 16u;
    const u32 tj = l % 16u;
    // The column that this thread loads is always the same one.
    const u32 jb = j0 + l % 64u;
    const auto o = unflatten(min(jb, cols - 1u), w.output);
    f32 sum[4][4] = {};
    for (u32 k0 = 0u; k0 < depth; k0 += 16u) {
        for (u32 q = 0u; q < 4u; q++) {
            const u32 e = q * 256u + l;
            const u32 ka = k0 + e % 16u;
            const u32 ia = i0 + e / 16u;
            f32 va = 0.0f;
            if (ka < depth && ia < rows) {
                va = k.x1(weights + ia * depth + weight_at<K>(ka / taps, p.group_channels, ka % taps, taps));
            }
            tile_a[(e % 16u) * 68u + e / 16u] = va;
            const u32 kb = k0 + e / 64u;
            f32 vb = 0.0f;
            if (kb < depth && jb < cols) {
                const auto t = unflatten(kb % taps, w.kernel);
                const i32 z = under(o.x, t.x, w.stride.x, w.dilation.x, w.begin.x);
                const i32 y = under(o.y, t.y, w.stride.y, w.dilation.y, w.begin.y);
                const i32 x = under(o.z, t.z, w.stride.z, w.dilation.z, w.begin.z);
                if (inside(z, w.input.x) && inside(y, w.input.y) && inside(x, w.input.z)) {
                    const u32 place = u32((z * w.input.y + y) * w.input.z + x);
                    vb = k.x0(lie<K>(image, first + kb / taps, p.channels, place, places));
                }
            }
            tile_b[(e / 64u) * 68u + e % 64u] = vb;
        }
        __syncthreads();
        for (u32 q = 0u; q < 16u; q++) {
            const u32 a = q * 68u + ti * 4u;
            const u32 b = q * 68u + tj * 4u;
            for (u32 di = 0u; di < 4u; di++) {
                for (u32 dj = 0u; dj < 4u; dj++) {
                    mac(sum[di][dj], tile_a[a + di], tile_b[b + dj]);
                }
            }
        }
        __syncthreads();
    }
    for (u32 di = 0u; di < 4u; di++) {
        for (u32 dj = 0u; dj < 4u; dj++) {
            const u32 i = i0 + ti * 4u + di;
            const u32 j = j0 + tj * 4u + dj;
            if (i < rows && j < cols) {
                const u32 channel = part * rows + i;
                k.emit0(lie<K>(image, channel, p.out_channels, j, cols), sum[di][dj] + k.bias(channel));
            }
        }
    }
}
