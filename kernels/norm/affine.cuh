// Parameters of norms over the last axes, and what follows a norm: scale (input 1) and bias (input 2), spread over the input.
#pragma once
#include "../prelude/launch.cuh"

struct NormParams {
    u32 count;
    f32 epsilon;
    List dims;
    List scale_strides;
    List bias_strides;
};

template <class K> DEV f32 affine(const K& k, u32 at, f32 y) {
    const auto& p = params<NormParams>(k);
    if constexpr (K::HAS_SCALE) {
        y = y * k.x1(strided(k, p.dims, p.scale_strides, at));
    }
    if constexpr (K::HAS_BIAS) {
        y = y + k.x2(strided(k, p.dims, p.bias_strides, at));
    }
    return y;
}
