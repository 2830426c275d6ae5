// Listed slices along an axis.
#pragma once
#include "../prelude/launch.cuh"

struct CompressParams {
    u32 inner;
    u32 kept;
    u32 whole;
};

template <class K> DEV auto compress(const K& k, u32 at) {
    const auto& p = params<CompressParams>(k);
    const u32 slice = k.scratch[at / p.inner % p.kept];
    return k.x0((at / p.inner / p.kept * p.whole + slice) * p.inner + at % p.inner);
}
