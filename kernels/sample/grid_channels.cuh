// Samples at the places of a grid, of 8 channels a thread: places and weights are found once for all of them. Hooks as in
// `grid_sample.cuh`, and RANK, the dimensions of an image.
#pragma once
#include "../slice/divisor.cuh"
#include "grid_sample.cuh"

struct GridChannelsParams {
    u32 depth;
    u32 height;
    u32 width;
    u32 points;
    u32 points_factor;
    u32 points_shift;
    u32 channels;
    u32 chunks;
    u32 chunks_factor;
    u32 chunks_shift;
};

template <class K> DEV void grid_channels(const K& k, u32 t) {
    constexpr u32 TAPS = K::NEAREST ? 1u : K::CUBIC ? 4u : 2u;
    constexpr u32 CHANNELS = 8u;
    constexpr u32 COMBINATIONS = K::RANK == 1u ? TAPS : K::RANK == 2u ? TAPS * TAPS : TAPS * TAPS * TAPS;
    // Combinations of taps whose elements are on their way at once.
    constexpr u32 HELD = COMBINATIONS < 4u ? COMBINATIONS : 4u;
    const auto& p = params<GridChannelsParams>(k);
    const u32 rest = divide(t, Divisor{p.points, p.points_factor, p.points_shift});
    const u32 point = t - rest * p.points;
    const u32 image = divide(rest, Divisor{p.chunks, p.chunks_factor, p.chunks_shift});
    const u32 channel = (rest - image * p.chunks) * CHANNELS;
    const i32 sizes[3] = {i32(p.depth), i32(p.height), i32(p.width)};
    i32 first[3] = {};
    f32 part[3] = {};
#pragma unroll
    for (u32 d = 0u; d < 3u; d++) {
        if (d + K::RANK >= 3u) {
            const i32 size = sizes[d];
            f32 n = k.x1((image * p.points + point) * K::RANK + 2u - d);
            if (is_nan(n)) {
                n = -1.0f;
            }
            f32 x = ((n + 1.0f) * f32(size) - 1.0f) / 2.0f;
            if (K::ALIGN) {
                x = (n + 1.0f) / 2.0f * (f32(size) - 1.0f);
            }
            x = bring_inside<K>(K::NEAREST ? nearest(x) : x, size);
            const f32 f = K::NEAREST ? nearest(x) : floor(x);
            first[d] = f_to_i32(f);
            part[d] = x - f;
        }
    }
    const u32 volume = p.depth * p.height * p.width;
    const u32 plane = image * p.channels + channel;
    f32 sums[CHANNELS];
#pragma unroll
    for (u32 j = 0u; j < CHANNELS; j++) {
        sums[j] = 0.0f;
    }
#pragma unroll 1
    for (u32 c = 0u; c < COMBINATIONS; c += HELD) {
        u32 sources[HELD];
        f32 weights[HELD];
        bool there[HELD];
#pragma unroll
        for (u32 h = 0u; h < HELD; h++) {
            u32 which = c + h;
            i32 source = 0;
            f32 weight = 1.0f;
            bool ok = true;
#pragma unroll
            for (u32 d = 0u; d < 3u; d++) {
                if (d + K::RANK >= 3u) {
                    const i32 tap = i32(which % TAPS) - (K::CUBIC ? 1 : 0);
                    which = which / TAPS;
                    const i32 i = element_of<K>(first[d] + tap, sizes[d]);
                    ok = ok && i >= 0;
                    source = source * sizes[d] + i;
                    weight *= tap_weight<K>(part[d], tap);
                }
            }
            sources[h] = u32(source);
            weights[h] = weight;
            there[h] = ok;
        }
#pragma unroll
        for (u32 j = 0u; j < CHANNELS; j++) {
            f32 x[HELD];
#pragma unroll
            for (u32 h = 0u; h < HELD; h++) {
                const bool read = there[h] && channel + j < p.channels;
                x[h] = read ? k.x0((plane + j) * volume + sources[h]) : 0.0f;
            }
#pragma unroll
            for (u32 h = 0u; h < HELD; h++) {
                sums[j] = there[h] ? sums[j] + weights[h] * x[h] : sums[j];
            }
        }
    }
#pragma unroll
    for (u32 j = 0u; j < CHANNELS; j++) {
        if (channel + j < p.channels) {
            k.emit0((plane + j) * p.points + point, sums[j]);
        }
    }
}
