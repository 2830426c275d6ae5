// Dimensions of a tensor, or their product, which the host knows.
#pragma once
#include "../prelude/launch.cuh"

struct DimsParams {
    List dims;
};

template <class K> DEV i64 dims(const K& k, u32 at) {
    return item_i64(k, params<DimsParams>(k).dims, at);
}
