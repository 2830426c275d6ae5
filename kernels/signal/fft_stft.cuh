// Numbers of an `stft` for the passes of `fft.cuh`. A row is a frame: sizes are [elements of the signal, elements of a transform that
// the result has, frames, parts of a number of the signal, elements from one frame to the next, elements of the window].
#pragma once
#include "fft.cuh"

template <class K> DEV vec2<f32> sample(const K& k, const FftParams& p, u32 row, u32 t) {
    const u32 at = row % p.sizes[2] * p.sizes[4] + t;
    if (at >= p.sizes[0]) {
        return vec2<f32>(0.0f, 0.0f);
    }
    const u32 place = (row / p.sizes[2] * p.sizes[0] + at) * p.sizes[3];
    const f32 by = k.weight(t, p.sizes[5]);
    return vec2<f32>(k.x0(place) * by, p.sizes[3] == 1u ? 0.0f : k.x0(place + 1u) * by);
}

template <class K> DEV void result(const K& k, const FftParams& p, u32 row, u32 j, vec2<f32> v) {
    const u32 bins = p.sizes[1];
    if (j < bins) {
        k.emit0(2u * (row * bins + j), v.x);
        k.emit0(2u * (row * bins + j) + 1u, v.y);
    }
}
