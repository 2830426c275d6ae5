// A check of an element of an index input, given by the halves of its value: `fault` records it if it is out of range.
#pragma once
#include "../prelude/launch.cuh"

struct IndexCheckParams {
    List least;
    List greatest;
    u32 excepted;
    u32 except_low;
    u32 except_high;
};

template <class K> DEV void check_index(const K& k, u32 input, u32 at, u32 low, u32 high) {
    const auto& p = params<IndexCheckParams>(k);
    const i32 v = i32(low);
    const i32 least = item_i32(k, p.least, at % p.least.count);
    const i32 greatest = item_i32(k, p.greatest, at % p.greatest.count);
    const bool wide = high != (v < 0 ? 0xffffffffu : 0u);
    const bool excepted = p.excepted != 0u && low == p.except_low && high == p.except_high;
    if ((wide || v < least || v > greatest) && !excepted) {
        k.fault(input, at, low, high, u32(least), u32(greatest));
    }
}
