// Local response normalization: an element divided by a power of the sum of squares over neighbouring channels.
#pragma once
#include "../prelude/launch.cuh"
#include "../prelude/math.cuh"

struct LrnParams {
    u32 inner;
    u32 channels;
    u32 before;
    u32 after;
    f32 scale;
    f32 beta;
    f32 bias;
};

template <class K> DEV f32 lrn(const K& k, u32 at) {
    const auto& p = params<LrnParams>(k);
    const u32 c = at / p.inner % p.channels;
    const u32 first = c - min(c, p.before);
    const u32 last = min(c + min(p.after, p.channels), p.channels - 1u);
    f32 sum = 0.0f;
    for (u32 i = first; i <= last; i++) {
        const f32 v = k.x0(at + i * p.inner - c * p.inner);
        sum += v * v;
    }
    return k.x0(at) / kpow(p.bias + p.scale * sum, p.beta);
}
