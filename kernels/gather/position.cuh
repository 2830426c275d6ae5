// Positions in the first input: of 64 bits where its elements need them (`K::FAR`).
#pragma once
#include "../prelude/launch.cuh"

template <bool FAR> struct Position {
    typedef u32 Unsigned;
    typedef i32 Signed;
};

template <> struct Position<true> {
    typedef u64 Unsigned;
    typedef i64 Signed;
};

// A position whose upper half counts where positions have 64 bits.
template <class K> DEV auto far(u32 low, u32 high) {
    if constexpr (K::FAR) {
        return (u64(high) << 32) | low;
    } else {
        return low;
    }
}

// Number i of a list of positions, with the upper halves in another list.
template <class K> DEV auto far_item(const K& k, List low, List high, u32 i) {
    if constexpr (K::FAR) {
        return far<K>(item(k, low, i), item(k, high, i));
    } else {
        return item(k, low, i);
    }
}

// The position along an axis of n elements that an index means: from the end if it is negative, -1 if it is out of range.
template <class Place, class Index> DEV Place from_end(Index v, u32 n) {
    Index k = v;
    if (k < Index(0)) {
        k = k + Index(n);
    }
    if (k < Index(0) || k >= Index(n)) {
        return -1;
    }
    return Place(k);
}
