// Counts of taps of windows.
#pragma once
#include "../prelude/launch.cuh"

// Taps of window o on elements or padding, along one dimension.
DEV i32 padded_taps(i32 o, i32 input, i32 kernel, i32 stride, i32 dilation, i32 begin, i32 end) {
    const i32 room = begin + input + end - o * stride;
    return min(max((room + dilation - 1) / dilation, 0), kernel);
}
