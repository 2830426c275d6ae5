// The first elements of each sequence of a batch in reverse order.
#pragma once
#include "../prelude/launch.cuh"

struct ReverseSequenceParams {
    u32 batch_stride;
    u32 batches;
    u32 time_stride;
    u32 times;
};

template <class K> DEV typename K::Value reverse_sequence(const K& k, u32 at) {
    const auto& p = params<ReverseSequenceParams>(k);
    const u32 b = at / p.batch_stride % p.batches;
    const u32 t = at / p.time_stride % p.times;
    const u32 len = u32(clamp(k.near1(b), 0, i32(p.times)));
    if (t < len) {
        return k.x0(at - t * p.time_stride + (len - 1u - t) * p.time_stride);
    }
    return k.x0(at);
}
