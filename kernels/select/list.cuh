// A list in scratch memory of the numbers that a kernel keeps, in order, made by one block: thread l looks at the l-th part. Their
// count is a size for the host.
#pragma once
#include "../prelude/launch.cuh"

struct KeptParams {
    u32 count;
};

template <class K> DEV void list_kept(const K& k) {
    const u32 n = params<KeptParams>(k).count;
    const u32 l = threadIdx.x;
    const u32 part = (n + K::LANES - 1u) / K::LANES;
    const u32 first = min(l * part, n);
    const u32 last = min(first + part, n);
    __shared__ u32 starts[K::LANES];
    u32 found = 0u;
    for (u32 i = first; i < last; i++) {
        if (k.is_kept(i)) {
            found++;
        }
    }
    starts[l] = found;
    __syncthreads();
    u32 at = 0u;
    u32 total = 0u;
    for (u32 j = 0u; j < K::LANES; j++) {
        if (j == l) {
            at = total;
        }
        total += starts[j];
    }
    for (u32 i = first; i < last; i++) {
        if (k.is_kept(i)) {
            k.scratch[at] = i;
            at++;
        }
    }
    if (l == 0u) {
        k.sizes[0] = total;
    }
}
