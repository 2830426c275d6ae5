// Copies of elements of a type `Cell`, with what is FUSED behind the kernel; `wide` gives the value of an element in memory.
#pragma once
#include "../prelude/launch.cuh"
#include "../prelude/storage.cuh"

// Stores eight neighbours as elements `at`.. of the result.
template <class K> DEV void put_8(const K& k, const Run<typename K::Cell>& r, u32 at) {
    if constexpr (K::FUSED) {
        typename K::Value v[8];
#pragma unroll
        for (u32 j = 0u; j < 8u; j++) {
            v[j] = k.wide(r.v[j]);
        }
        k.emit0_any(at, v);
    } else {
        r.put(k.by0 + at);
    }
}

// Eight neighbours to elements `at`.. of the result.
template <class K> DEV void copy_8(const K& k, const typename K::Cell* from, u32 at) {
    put_8(k, Run<typename K::Cell>::of(from, 1u), at);
}

// One element.
template <class K> DEV void copy_1(const K& k, const typename K::Cell* from, u32 at) {
    if constexpr (K::FUSED) {
        k.emit0(at, k.wide(*from));
    } else {
        k.by0[at] = *from;
    }
}
