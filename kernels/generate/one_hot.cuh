// Lines with one value at an index and another one elsewhere. Inputs: indices, depth, the values off and on.
#pragma once
#include "../prelude/launch.cuh"

struct OneHotParams {
    u32 depth;
    u32 inner;
};

template <class K> DEV typename K::Value one_hot(const K& k, u32 at) {
    const auto& p = params<OneHotParams>(k);
    const i32 place = i32(at / p.inner % p.depth);
    i32 index = k.near0(at / p.inner / p.depth * p.inner + at % p.inner);
    if (index < 0) {
        index = index + i32(p.depth);
    }
    return k.x2(index == place ? 1u : 0u);
}
