// Windows of convolutions of images with channels last, as TMA copies them.
#pragma once
#include "copies.cuh"

struct WgmmaConvParams {
    u32 out_height;
    u32 out_width;
    u32 taps_y;
    u32 taps_x;
    i32 stride_y;
    i32 stride_x;
    u32 dilation_y;
    u32 dilation_x;
    i32 pad_y;
    i32 pad_x;
    u32 channels;
    u32 outputs;
    u32 windows;
    u32 results;
    u32 constant;
};

// The windows of neighbouring rows of a convolution, and a part of the depth: a tap and BK channels.
template <u32 BK> struct WindowBox {
    i32 x, y;
    u32 image, channel, tap, dx, dy;

    // From row `row` on, at part `step` of the depth.
    DEV WindowBox(const WgmmaConvParams& p, u32 row, u32 step) {
        x = i32(row % p.out_width) * p.stride_x - p.pad_x;
        y = i32(row / p.out_width % p.out_height) * p.stride_y - p.pad_y;
        image = row / p.out_width / p.out_height;
        channel = tap = dx = dy = 0u;
        if (step > 0u) {
            const u32 parts = (p.channels + BK - 1u) / BK;
            channel = step % parts * BK;
            tap = step / parts;
            dx = tap % p.taps_x * p.dilation_x;
            dy = tap / p.taps_x * p.dilation_y;
        }
    }

    DEV void copy(const TensorMap* map, u32 to, u32 barrier) const { under_tap(to, map, barrier, channel, x, y, image, dx, dy); }

    DEV void next(const WgmmaConvParams& p) {
        channel += BK;
        if (channel >= p.channels) {
            channel = 0u;
            tap++;
            dx += p.dilation_x;
            if (dx == p.taps_x * p.dilation_x) {
                dx = 0u;
                dy += p.dilation_y;
            }
        }
    }
};
