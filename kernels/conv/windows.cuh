// Sliding windows over up to three spatial dimensions; fewer are led by dimensions of 1. For transposed operators `input` is
// the result and `output` the operand.
#pragma once
#include "../prelude/launch.cuh"

struct WindowsParams {
    i32 z_input;
    i32 z_output;
    i32 z_kernel;
    i32 z_stride;
    i32 z_dilation;
    i32 z_begin;
    i32 z_end;
    i32 y_input;
    i32 y_output;
    i32 y_kernel;
    i32 y_stride;
    i32 y_dilation;
    i32 y_begin;
    i32 y_end;
    i32 x_input;
    i32 x_output;
    i32 x_kernel;
    i32 x_stride;
    i32 x_dilation;
    i32 x_begin;
    i32 x_end;
    u32 channels;
    u32 out_channels;
    u32 group_channels;
    u32 group_out_channels;
};

struct Windows {
    vec3<i32> input, output, kernel, stride, dilation, begin, end;
};

template <class K> DEV Windows windows(const K& k) {
    const auto& p = params<WindowsParams>(k);
    return {
        vec3<i32>(p.z_input, p.y_input, p.x_input),
        vec3<i32>(p.z_output, p.y_output, p.x_output),
        vec3<i32>(p.z_kernel, p.y_kernel, p.x_kernel),
        vec3<i32>(p.z_stride, p.y_stride, p.x_stride),
        vec3<i32>(p.z_dilation, p.y_dilation, p.x_dilation),
        vec3<i32>(p.z_begin, p.y_begin, p.x_begin),
        vec3<i32>(p.z_end, p.y_end, p.x_end),
    };
}

DEV u32 volume(vec3<i32> size) { return u32(size.x * size.y * size.z); }

// Three coordinates in a box of this size.
DEV vec3<i32> unflatten(u32 at, vec3<i32> size) {
    const i32 x = i32(at % u32(size.z));
    const u32 rest = at / u32(size.z);
    return vec3<i32>(i32(rest / u32(size.y)), i32(rest % u32(size.y)), x);
}

// The position under tap t of window o, along one dimension.
DEV i32 under(i32 o, i32 t, i32 stride, i32 dilation, i32 begin) { return o * stride + t * dilation - begin; }

// The operand's element of n that reaches element p of the result through tap t; -1 if none does.
DEV i32 reaching(i32 p, i32 t, i32 stride, i32 dilation, i32 begin, i32 n) {
    const i32 q = p + begin - t * dilation;
    if (q < 0 || q % stride != 0 || q / stride >= n) {
        return -1;
    }
    return q / stride;
}

DEV bool inside(i32 i, i32 n) { return i >= 0 && i < n; }

// Position of an element, from its image, its channel and its place of `volume`; `K::LAST` means that channels are last.
template <class K> DEV u32 lie(u32 image, u32 channel, u32 channels, u32 place, u32 volume) {
    return K::LAST ? (image * volume + place) * channels + channel : (image * channels + channel) * volume + place;
}

// Image, channel and place of an element.
template <class K> DEV vec3<u32> parts(u32 at, u32 channels, u32 volume) {
    if constexpr (K::LAST) {
        return vec3<u32>(at / channels / volume, at % channels, at / channels % volume);
    } else {
        return vec3<u32>(at / volume / channels, at / volume % channels, at % volume);
    }
}

// Position of the weight of a channel and a tap among the weights of an output channel.
template <class K> DEV u32 weight_at(u32 channel, u32 channels, u32 tap, u32 taps) {
    return K::LAST ? tap * channels + channel : channel * taps + tap;
}
