// Convolutions of images with channels last as products: a row for each window, a column for each output channel of a group,
// the depth is taps x channels of the group. Where the elements of both operands are found.
#pragma once
#include "../prelude/launch.cuh"

struct MmaConvParams {
    u32 depth;
    u32 out_depth;
    u32 taps_z;
    i32 stride_z;
    i32 dilation_z;
    i32 pad_z;
    u32 height;
    u32 out_height;
    u32 taps_y;
    i32 stride_y;
    i32 dilation_y;
    i32 pad_y;
    u32 width;
    u32 out_width;
    u32 taps_x;
    i32 stride_x;
    i32 dilation_x;
    i32 pad_x;
    u32 channels;
    u32 outputs;
    u32 group_channels;
    u32 group_outputs;
    u32 windows;
};

// The window of one line of A: its first element's offset (which may lie outside), and position.
struct Window {
    i32 at, z, y, x;
};

DEV Window window_of(const MmaConvParams& p, u32 row, u32 first) {
    if (row >= p.windows) {
        return Window{0, 0, -(1 << 29), 0};
    }
    const u32 x = row % p.out_width;
    const u32 y = row / p.out_width % p.out_height;
    const u32 rest = row / p.out_width / p.out_height;
    Window w;
    w.z = i32(rest % p.out_depth) * p.stride_z - p.pad_z;
    w.y = i32(y) * p.stride_y - p.pad_y;
    w.x = i32(x) * p.stride_x - p.pad_x;
    const i32 image = i32(rest / p.out_depth);
    w.at = (((image * i32(p.depth) + w.z) * i32(p.height) + w.y) * i32(p.width) + w.x) * i32(p.channels) + i32(first);
    return w;
}

// A tap and a channel under it, from the k of the product.
struct Tap {
    u32 channel;
    i32 z, y, x;
};

DEV Tap tap_of(const MmaConvParams& p, u32 k) {
    const u32 tap = k / p.group_channels;
    return Tap{k % p.group_channels, i32(tap / p.taps_x / p.taps_y), i32(tap / p.taps_x % p.taps_y), i32(tap % p.taps_x)};
}

// The tap `step` elements on.
DEV void move_tap(const MmaConvParams& p, Tap& t, u32 step) {
    t.channel += step;
    while (t.channel >= p.group_channels) {
        t.channel -= p.group_channels;
        t.x++;
        if (t.x == i32(p.taps_x)) {
            t.x = 0;
            t.y++;
            if (t.y == i32(p.taps_y)) {
                t.y = 0;
                t.z++;
            }
        }
    }
}

// How far a tap lies from the first element of its window.
DEV i32 reach(const MmaConvParams& p, const Tap& t) {
    const i32 lines = t.z * p.dilation_z * i32(p.height) + t.y * p.dilation_y;
    return (lines * i32(p.width) + t.x * p.dilation_x) * i32(p.channels) + i32(t.channel);
}

// Whether a tap lies on an element; DEEP, images have three dimensions.
template <bool DEEP> DEV bool within(const MmaConvParams& p, const Window& w, const Tap& t) {
    const bool flat = u32(w.y + t.y * p.dilation_y) < p.height && u32(w.x + t.x * p.dilation_x) < p.width;
    if constexpr (DEEP) {
        return flat && t.z < i32(p.taps_z) && u32(w.z + t.z * p.dilation_z) < p.depth;
    } else {
        return flat && t.z == 0;
    }
}

// The depth of the product.
DEV u32 depth_of(const MmaConvParams& p) { return p.taps_z * p.taps_y * p.taps_x * p.group_channels; }
