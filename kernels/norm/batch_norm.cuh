// Batch normalization with given statistics. Inputs: x, scale, bias, mean, variance.
#pragma once
#include "../prelude/launch.cuh"
#include "../prelude/math.cuh"

struct BatchNormParams {
    u32 inner;
    u32 channels;
    f32 epsilon;
};

template <class K> DEV f32 batch_norm(const K& k, u32 at) {
    const auto& p = params<BatchNormParams>(k);
    const u32 c = at / p.inner % p.channels;
    return (k.x0(at) - k.x3(c)) / sqrt(k.x4(c) + p.epsilon) * k.x1(c) + k.x2(c);
}
