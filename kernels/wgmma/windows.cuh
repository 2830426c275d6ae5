// Windows of convolutions of images with channels last, as TMA copies them.
#pragma once
#include "copies.cuh"

struct WgmmaConvParams {
    u32 out_height;
    u32 out_width;
    u32 taps;
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
    u32 depth;
    u32 out_depth;
    i32 stride_z;
    u32 dilation_z;
    i32 pad_z;
    u32 planes;
};

// The windows of neighbouring rows of a convolution, and a part of the depth: a tap and BK channels. DEEP, images have planes, which
// are images for TMA, and rows are those of one plane of the result: a tap on a plane that is not there is copied from behind the
// last image, where zeros are.
template <u32 BK, bool DEEP> struct WindowBox {
    i32 x, y, z;
    u32 image, channel, tap, dx, dy;

    // From row `row` on of plane `plane` of the result, at part `step` of the depth.
    DEV WindowBox(const WgmmaConvParams& p, u32 plane, u32 row, u32 step) {
        x = i32(row % p.out_width) * p.stride_x - p.pad_x;
        y = i32(row / p.out_width % p.out_height) * p.stride_y - p.pad_y;
        image = row / p.out_width / p.out_height;
        z = 0;
        if constexpr (DEEP) {
            image = plane / p.out_depth * p.depth;
            z = i32(plane % p.out_depth) * p.stride_z - p.pad_z;
        }
        channel = tap = dx = dy = 0u;
        if (step > 0u) {
            const u32 parts = (p.channels + BK - 1u) / BK;
            channel = step % parts * BK;
            tap = step / parts;
            const u32 line = tap / p.taps_x;
            dx = tap % p.taps_x * p.dilation_x;
            dy = line * p.dilation_y;
            if constexpr (DEEP) {
                dy = line % p.taps_y * p.dilation_y;
                z += i32(line / p.taps_y * p.dilation_z);
            }
        }
    }

    DEV void copy(const WgmmaConvParams& p, const TensorMap* map, u32 to, u32 barrier) const {
        u32 from = image;
        if constexpr (DEEP) {
            from = u32(z) < p.depth ? image + u32(z) : p.planes;
        }
        under_tap(to, map, barrier, channel, x, y, from, dx, dy);
    }

    DEV void next(const WgmmaConvParams& p) {
        channel += BK;
        if (channel >= p.channels) {
            channel = 0u;
            tap++;
            dx += p.dilation_x;
            if (dx == p.taps_x * p.dilation_x) {
                dx = 0u;
                dy += p.dilation_y;
                if (DEEP && dy == p.taps_y * p.dilation_y) {
                    dy = 0u;
                    z += i32(p.dilation_z);
                }
            }
        }
    }
};
