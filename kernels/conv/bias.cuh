// Biases of eight neighbouring output channels, input 2 of a convolution: `K::HAS_BIAS`, where there is one, `K::BiasCell`, its
// type in memory, `K::bias_value(cells, i)`, the value of a cell.
#pragma once
#include "../prelude/storage.cuh"

template <class K, bool HAS = K::HAS_BIAS> struct Biases {
    Run<typename K::BiasCell> run;

    // Whether `read` may read vectors.
    DEV static bool even(const K& k) { return (u64(k.bx2) & 15u) == 0u; }
    DEV static Biases read(const K& k, u32 ch) { return Biases{Run<typename K::BiasCell>::template next<true>(k.bx2 + ch)}; }
    DEV static Biases read_any(const K& k, u32 ch) { return Biases{Run<typename K::BiasCell>::of(k.bx2 + ch, 1u)}; }

    template <class Sum> DEV void add(Sum* v) const {
#pragma unroll
        for (u32 i = 0u; i < 8u; i++) {
            v[i] += K::bias_value(run.v, i);
        }
    }

    // One sum with the bias of its channel.
    template <class Sum> DEV static Sum biased(const K& k, Sum x, u32 ch) { return x + k.x2(ch); }
};

template <class K> struct Biases<K, false> {
    DEV static bool even(const K&) { return true; }
    DEV static Biases read(const K&, u32) { return Biases{}; }
    DEV static Biases read_any(const K&, u32) { return Biases{}; }
    template <class Sum> DEV void add(Sum*) const {}
    template <class Sum> DEV static Sum biased(const K&, Sum x, u32) { return x; }
};
