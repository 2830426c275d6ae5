// Inputs joined along an axis, in one launch: INPUTS of them, `input` gives the address of one.
#pragma once
#include "copy.cuh"
#include "divisor.cuh"

struct ConcatVectorsParams {
    u32 slice;
    List blocks;
    List threads;
    List starts;
    List sizes;
    List factors;
    List shifts;
};

// V elements at a time.
template <u32 V, class K> DEV void joined(const K& k) {
    const auto& p = params<ConcatVectorsParams>(k);
    u32 i = 0u;
    while (i + 1u < K::INPUTS && blockIdx.x >= item(k, p.blocks, i + 1u)) {
        i++;
    }
    const u32 t = (blockIdx.x - item(k, p.blocks, i)) * K::LANES + threadIdx.x;
    if (t >= item(k, p.threads, i)) {
        return;
    }
    const Divisor slice{item(k, p.sizes, i), item(k, p.factors, i), item(k, p.shifts, i)};
    const u32 q = divide(t, slice);
    const u32 at = q * p.slice + item(k, p.starts, i) + (t - q * slice.size) * V;
    if constexpr (V == 8u) {
        copy_8(k, k.input(i) + t * V, at);
    } else {
        copy_1(k, k.input(i) + t, at);
    }
}

template <class K> DEV void concat_8(const K& k) { joined<8u>(k); }

template <class K> DEV void concat_1(const K& k) { joined<1u>(k); }
