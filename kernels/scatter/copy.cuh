// What updates start from: x, eight elements a thread.
#pragma once
#include "../slice/copy.cuh"

struct ScatterCopyParams {
    u32 elements;
};

template <class K> DEV void scatter_copy_8(const K& k, u32 t) {
    const u32 n = params<ScatterCopyParams>(k).elements;
    const u32 at = t * 8u;
    if (at + 8u <= n) {
        copy_8(k, k.bx0 + at, at);
        return;
    }
    for (u32 i = at; i < n; i++) {
        copy_1(k, k.bx0 + i, i);
    }
}
