// Lines along an axis, and the results of a sort of them: values and positions.
#pragma once
#include "../prelude/launch.cuh"
#include "../prelude/storage.cuh"
#include "slots.cuh"

// The first element of a line; the others follow at every `inner`-th place.
DEV u32 line_base(u32 count, u32 inner, u32 row) { return row / inner * count * inner + row % inner; }

// Stores the elements of sorted slots as elements first, first + 1, .. of a line of the result.
template <class K, class P, class S, u32 E> DEV void put_line(const K& k, const P& p, u32 row, u32 first, const S (&v)[E]) {
    const u32 from = line_base(p.count, p.inner, row);
    const u32 to = line_base(p.kept, p.inner, row);
    if constexpr (E == 8u) {
        if (p.inner == 1u && first + 8u <= p.kept && (to + first) % 8u == 0u) {
            if constexpr (K::VALUES) {
                Run<typename K::Cell> cells;
#pragma unroll
                for (u32 e = 0u; e < E; e++) {
                    cells.v[e] = k.bx0[from + place_of(v[e])];
                }
                cells.put(k.by0 + to + first);
            }
            if constexpr (K::PLACES) {
                Run<i64> places;
#pragma unroll
                for (u32 e = 0u; e < E; e++) {
                    places.v[e] = i64(place_of(v[e]));
                }
                places.put(k.by1 + to + first);
            }
            return;
        }
    }
#pragma unroll
    for (u32 e = 0u; e < E; e++) {
        if (first + e < p.kept) {
            const u32 at = to + (first + e) * p.inner;
            if constexpr (K::VALUES) {
                k.by0[at] = k.bx0[from + place_of(v[e]) * p.inner];
            }
            if constexpr (K::PLACES) {
                k.by1[at] = i64(place_of(v[e]));
            }
        }
    }
}
