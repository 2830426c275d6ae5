// Pooling of images with channels last: a thread has eight channels of a window. ADDS tells sums of the elements inside, of the type
// Sum, from maxima, AVERAGE their means; `wide` gives the value of an element in memory.
#pragma once
#include "../prelude/launch.cuh"
#include "../prelude/math.cuh"

struct PoolChannelsParams {
    u32 height;
    u32 width;
    u32 rows;
    u32 columns;
    u32 kernel_down;
    u32 kernel_across;
    u32 stride_down;
    u32 stride_across;
    u32 dilation_down;
    u32 dilation_across;
    i32 before_down;
    i32 before_across;
    u32 side;
};

template <class K> DEV void pool_channels(const K& k, u32 t) {
    const auto& p = params<PoolChannelsParams>(k);
    const u32 pixel = t / p.side;
    const u32 c = (t - pixel * p.side) * 8u;
    const u32 row = pixel / p.columns;
    const i32 left = i32((pixel - row * p.columns) * p.stride_across) - p.before_across;
    const u32 image = row / p.rows;
    const i32 top = i32((row - image * p.rows) * p.stride_down) - p.before_down;
    typedef typename K::Sum Sum;
    Sum sums[8];
#pragma unroll
    for (u32 j = 0u; j < 8u; j++) {
        sums[j] = K::ADDS ? Sum(0) : Sum(cf(0xff800000u));
    }
    u32 count = 0u;
    for (u32 ky = 0u; ky < p.kernel_down; ky++) {
        const i32 y = top + i32(ky * p.dilation_down);
        if (y < 0 || y >= i32(p.height)) {
            continue;
        }
#pragma unroll 4
        for (u32 kx = 0u; kx < p.kernel_across; kx++) {
            const i32 x = left + i32(kx * p.dilation_across);
            if (x < 0 || x >= i32(p.width)) {
                continue;
            }
            const u32 from = ((image * p.height + u32(y)) * p.width + u32(x)) * p.side * 8u + c;
            const auto r = Run<typename K::Cell>::of(k.bx0 + from, 1u);
            count++;
#pragma unroll
            for (u32 j = 0u; j < 8u; j++) {
                const Sum v = k.wide(r.v[j]);
                if constexpr (K::ADDS) {
                    sums[j] += v;
                } else {
                    sums[j] = kmax(sums[j], v);
                }
            }
        }
    }
    if constexpr (K::AVERAGE) {
#pragma unroll
        for (u32 j = 0u; j < 8u; j++) {
            sums[j] = count == 0u ? 0.0f : sums[j] / f32(count);
        }
    }
    k.emit0_run(pixel * p.side * 8u + c, sums);
}
