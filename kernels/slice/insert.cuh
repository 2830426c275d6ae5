// A part of a result in place: a thread an element. Inputs: the values of the others, if there are any, and the part.
#pragma once
#include "../prelude/launch.cuh"

struct InsertSliceParams {
    u32 run;
    u32 pitch;
    u32 offset;
};

template <class K> DEV void insert_part(const K& k, u32 t) {
    const auto& p = params<InsertSliceParams>(k);
    k.emit0(t / p.run * p.pitch + t % p.run + p.offset, k.x1(t));
}

// The elements around the part.
template <class K> DEV void copy_rest(const K& k, u32 t) {
    const auto& p = params<InsertSliceParams>(k);
    const u32 at = t % p.pitch;
    if (at < p.offset || at - p.offset >= p.run) {
        k.emit0(t, k.rest(t));
    }
}
