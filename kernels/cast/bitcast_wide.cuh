// Bits of elements as another type of 64 bits: there are two threads for an element, the first half of them copies.
#pragma once
#include "../prelude/launch.cuh"

struct BitcastParams {
    u32 cells;
};

template <class K> DEV void copy_wide(const K& k, u32 t) {
    if (t < params<BitcastParams>(k).cells) {
        k.emit0(t, k.x0(t));
    }
}
