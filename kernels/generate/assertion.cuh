// How many truth values are false, counted by one block: a size for the host.
#pragma once
#include "../prelude/launch.cuh"

struct AssertionParams {
    u32 count;
};

template <class K> DEV void count_false(const K& k) {
    const u32 n = params<AssertionParams>(k).count;
    const u32 l = threadIdx.x;
    __shared__ u32 found_by[K::LANES];
    u32 found = 0u;
    for (u32 i = l; i < n; i += K::LANES) {
        if (!k.x0(i)) {
            found++;
        }
    }
    found_by[l] = found;
    __syncthreads();
    if (l == 0u) {
        u32 total = 0u;
        for (u32 j = 0u; j < K::LANES; j++) {
            total += found_by[j];
        }
        k.sizes[0] = total;
    }
}
