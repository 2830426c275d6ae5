// Ones on a diagonal.
#pragma once
#include "../prelude/launch.cuh"

struct EyeLikeParams {
    u32 columns;
    i32 diagonal;
};

template <class K> DEV auto eye_like(const K& k, u32 at) {
    const auto& p = params<EyeLikeParams>(k);
    return k.from_bool(i32(at % p.columns) - i32(at / p.columns) == p.diagonal);
}
