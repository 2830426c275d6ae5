// Numbers of a `dft` for the passes of `fft.cuh`. A row is a line along the axis: sizes are [elements of x that are given, those that
// count, elements of the result, pairs from one to the next, parts of a number of x, 0].
#pragma once
#include "fft.cuh"

template <class K> DEV vec2<f32> sample(const K& k, const FftParams& p, u32 row, u32 t) {
    const bool mirrored = K::TO_REAL && 2u * t > p.points;
    const u32 at = mirrored ? p.points - t : t;
    if (at >= p.sizes[1]) {
        return vec2<f32>(0.0f, 0.0f);
    }
    const u32 inner = p.sizes[3];
    const u32 place = ((row / inner * p.sizes[0] + at) * inner + row % inner) * p.sizes[4];
    const f32 re = k.x0(place);
    if (p.sizes[4] == 1u) {
        return vec2<f32>(re, 0.0f);
    }
    const f32 im = k.x0(place + 1u);
    // Backward is forward between conjugates; what is mirrored is one already. The parts of the first and the middle number of a real
    // signal's transform that are imaginary have no meaning.
    if constexpr (K::TO_REAL) {
        const bool single = at == 0u || 2u * at == p.points;
        return vec2<f32>(re, single ? 0.0f : mirrored ? im : -im);
    }
    return vec2<f32>(re, K::INVERSE ? -im : im);
}

template <class K> DEV void result(const K& k, const FftParams& p, u32 row, u32 j, vec2<f32> v) {
    if (j >= p.sizes[2]) {
        return;
    }
    const u32 inner = p.sizes[3];
    const u32 at = (row / inner * p.sizes[2] + j) * inner + row % inner;
    if constexpr (K::TO_REAL) {
        k.emit0(at, v.x / f32(p.points));
    } else if constexpr (K::INVERSE) {
        k.emit0(2u * at, v.x / f32(p.points));
        k.emit0(2u * at + 1u, -v.y / f32(p.points));
    } else {
        k.emit0(2u * at, v.x);
        k.emit0(2u * at + 1u, v.y);
    }
}
