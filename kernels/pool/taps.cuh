// Counts of taps of windows.
#pragma once
#include "../conv/windows.cuh"

// Taps of window o on elements or padding, along one dimension.
DEV i32 padded_taps(i32 o, i32 input, i32 kernel, i32 stride, i32 dilation, i32 begin, i32 end) {
    const i32 room = begin + input + end - o * stride;
    return min(max((room + dilation - 1) / dilation, 0), kernel);
}

// Taps of the window of result `o` on elements or padding.
DEV i32 padded_taps(const Windows& w, vec3<i32> o) {
    return padded_taps(o.x, w.input.x, w.kernel.x, w.stride.x, w.dilation.x, w.begin.x, w.end.x)
        * padded_taps(o.y, w.input.y, w.kernel.y, w.stride.y, w.dilation.y, w.begin.y, w.end.y)
        * padded_taps(o.z, w.input.z, w.kernel.z, w.stride.z, w.dilation.z, w.begin.z, w.end.z);
}
