// One input of a concatenation: a thread an element.
#pragma once
#include "../prelude/launch.cuh"

struct ConcatParams {
    u32 own;
    u32 whole;
    u32 start;
};

template <class K> DEV void concat(const K& k, u32 t) {
    const auto& p = params<ConcatParams>(k);
    k.emit0(t / p.own * p.whole + p.start + t % p.own, k.x0(t));
}
