// Sorts slots in the registers of a block: a bitonic network, whose distances are within a thread, a warp or the block.
#pragma once
#include "slots.cuh"

// Puts two slots in ascending order, or descending.
template <class S> DEV void put_in_order(S& a, S& b, bool up) {
    if (before(b, a) == up) {
        const S c = a;
        a = b;
        b = c;
    }
}

DEV constexpr u32 log2_of(u32 n) { return n < 2u ? 0u : 1u + log2_of(n / 2u); }

// Compares the slots of thread t with those of thread t ^ distance, G at a time through `exchange`, which has T * G slots.
template <u32 T, u32 E, u32 G, class S> DEV void compare_threads(S (&v)[E], u32 distance, bool least, S* exchange) {
    const u32 t = threadIdx.x;
#pragma unroll
    for (u32 g = 0u; g < E; g += G) {
        __syncthreads();
#pragma unroll
        for (u32 j = 0u; j < G; j++) {
            exchange[j * T + t] = v[g + j];
        }
        __syncthreads();
#pragma unroll
        for (u32 j = 0u; j < G; j++) {
            const S other = exchange[j * T + (t ^ distance)];
            if (before(other, v[g + j]) == least) {
                v[g + j] = other;
            }
        }
    }
}

// Sorts each run of 2^log2 slots of a block of T threads; thread t has slots t * E to t * E + E - 1. E <= 2^log2 <= T * E.
template <u32 T, u32 E, u32 G, class S> DEV void sort_block(S (&v)[E], u32 log2, S* exchange) {
    constexpr u32 OWN = log2_of(E);
    const u32 t = threadIdx.x;
#pragma unroll
    for (u32 size = 2u; size < E; size *= 2u) {
#pragma unroll
        for (u32 d = size / 2u; d > 0u; d /= 2u) {
#pragma unroll
            for (u32 e = 0u; e < E; e++) {
                if ((e & d) == 0u) {
                    put_in_order(v[e], v[e + d], (e & size) == 0u);
                }
            }
        }
    }
    for (u32 size = OWN; size <= log2; size++) {
        const bool up = size == log2 || ((t >> (size - OWN)) & 1u) == 0u;
        u32 distance = (1u << (size - OWN)) / 2u;
        for (; distance >= 32u; distance /= 2u) {
            compare_threads<T, E, G>(v, distance, ((t & distance) == 0u) == up, exchange);
        }
        for (; distance > 0u; distance /= 2u) {
            const bool least = ((t & distance) == 0u) == up;
#pragma unroll
            for (u32 e = 0u; e < E; e++) {
                const S other = from_lane(v[e], distance);
                if (before(other, v[e]) == least) {
                    v[e] = other;
                }
            }
        }
#pragma unroll
        for (u32 d = E / 2u; d > 0u; d /= 2u) {
#pragma unroll
            for (u32 e = 0u; e < E; e++) {
                if ((e & d) == 0u) {
                    put_in_order(v[e], v[e + d], up);
                }
            }
        }
    }
}
