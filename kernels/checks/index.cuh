// A check of an element of an index input, given by the halves of its value.
#pragma once
#include "../prelude/launch.cuh"

struct IndexCheckParams {
    List least;
    List greatest;
    u32 excepted;
    u32 except_low;
    u32 except_high;
};

// Records an element, unless the step has a record.
template <class K> DEV void fault(const K& k, u32 input, u32 at, u32 low, u32 high, u32 least, u32 greatest) {
    if (atomicExch(k.faults, 1u) == 0u) {
        k.faults[1] = input;
        k.faults[2] = at;
        k.faults[3] = low;
        k.faults[4] = high;
        k.faults[5] = least;
        k.faults[6] = greatest;
    }
}

// The position along an axis of n elements that element `at` of an index input means, from the end if it is negative. One that is out
// of range is recorded, and -1.
template <class K, class Index> DEV Index checked(const K& k, u32 input, u32 at, Index v, u32 n) {
    const Index place = v < Index(0) ? v + Index(n) : v;
    if (place >= Index(0) && place < Index(n)) {
        return place;
    }
    fault(k, input, at, u32(v), u32(u64(i64(v)) >> 32), 0u - n, n - 1u);
    return Index(-1);
}

template <class K> DEV void check_index(const K& k, u32 input, u32 at, u32 low, u32 high) {
    const auto& p = params<IndexCheckParams>(k);
    const i32 v = i32(low);
    // Mostly there is one range for all elements: no division.
    const i32 least = item_i32(k, p.least, p.least.count == 1u ? 0u : at % p.least.count);
    const i32 greatest = item_i32(k, p.greatest, p.greatest.count == 1u ? 0u : at % p.greatest.count);
    const bool wide = high != (v < 0 ? 0xffffffffu : 0u);
    const bool excepted = p.excepted != 0u && low == p.except_low && high == p.except_high;
    if ((wide || v < least || v > greatest) && !excepted) {
        fault(k, input, at, low, high, u32(least), u32(greatest));
    }
}
