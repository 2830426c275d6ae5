// Convolutions whose taps are moved by data.
#pragma once
#include "../prelude/math.cuh"
#include "windows.cuh"

// The value under tap t of window o of a plane, which starts at element `plane`: interpolated between the elements around the
// place that the offsets of `slot` move the tap to.
template <class K>
DEV f32 moved_value(const K& k, const Windows& w, u32 plane, u32 slot, const vec3<i32>& o, const vec3<i32>& t, u32 flat) {
    constexpr u32 MISSING = 3u - K::RANK;
    auto low = vec3<i32>(0);
    auto part = vec3<f32>(0.0f);
    for (u32 d = MISSING; d < 3u; d++) {
        const f32 moved = k.x2((slot * K::RANK + d - MISSING) * volume(w.output) + flat);
        const f32 x = f32(under(o[d], t[d], w.stride[d], w.dilation[d], w.begin[d])) + moved;
        const f32 base = floor(x);
        low[d] = f_to_i32(base);
        part[d] = x - base;
    }
    f32 sum = 0.0f;
    for (u32 c = 0u; c < 8u; c++) {
        f32 weight = 1.0f;
        i32 position = 0;
        bool within = true;
        for (u32 d = 0u; d < 3u; d++) {
            const u32 up = c >> d & 1u;
            const i32 i = low[d] + i32(up);
            within = within && inside(i, w.input[d]) && (d >= MISSING || up == 0u);
            position = position * w.input[d] + i;
            weight = weight * (up == 1u ? part[d] : 1.0f - part[d]);
        }
        if (within) {
            sum += weight * k.x0(plane + u32(position));
        }
    }
    return sum;
}

template <class K> DEV f32 deform_conv(const K& k, u32 at) {
    const auto& p = params<WindowsParams>(k);
    const Windows w = windows(k);
    const u32 taps = volume(w.kernel);
    const u32 places = volume(w.output);
    const u32 flat = at % places;
    const auto o = unflatten(flat, w.output);
    const u32 channel = at / places % p.out_channels;
    const u32 image = at / places / p.out_channels;
    const u32 first = channel / p.group_out_channels * p.group_channels;
    const u32 each = (p.channels + K::OFFSET_GROUPS - 1u) / K::OFFSET_GROUPS;
    f32 sum = k.bias(channel);
    for (u32 c = 0u; c < p.group_channels; c++) {
        const u32 source = first + c;
        const u32 group = image * K::OFFSET_GROUPS + source / each;
        for (u32 tap = 0u; tap < taps; tap++) {
            const u32 slot = group * taps + tap;
            const u32 plane = (image * p.channels + source) * volume(w.input);
            const f32 v = moved_value(k, w, plane, slot, o, unflatten(tap, w.kernel), flat);
            sum += v * k.mask(slot * places + flat) * k.x1((channel * p.group_channels + c) * taps + tap);
        }
    }
    return sum;
}
