// Walks over the elements of a row by the threads of a block or warp, vectors of eight at a time.
#pragma once
#include "../prelude/launch.cuh"
#include "../prelude/storage.cuh"

// Elements from `p` on to the next multiple of the alignment of vectors.
template <class Cell> DEV u32 unaligned(const Cell* p) {
    constexpr u32 EVERY = alignof(Run<Cell>) / sizeof(Cell);
    return (EVERY - u32(reinterpret_cast<u64>(p) / sizeof(Cell)) % EVERY) % EVERY;
}

// Calls `visit(cell, position)` for `count` elements from `p` on. Thread t of T sees its elements in ascending order of positions.
// Several vectors are loaded before the first one is used.
template <u32 T, class Cell, class Visit> DEV void walk(const Cell* p, u32 count, u32 t, Visit visit) {
    constexpr u32 AHEAD = sizeof(Cell) <= 2u ? 4u : sizeof(Cell) == 4u ? 2u : 1u;
    const u32 head = ::min(unaligned(p), count);
    const u32 vectors = (count - head) / 8u;
    const u32 tail = head + vectors * 8u;
    for (u32 i = t; i < head; i += T) {
        visit(p[i], i);
    }
    const auto* const runs = reinterpret_cast<const Run<Cell>*>(p + head);
    u32 v = t;
    for (; v + (AHEAD - 1u) * T < vectors; v += AHEAD * T) {
        Run<Cell> r[AHEAD];
#pragma unroll
        for (u32 a = 0u; a < AHEAD; a++) {
            r[a] = runs[v + a * T];
        }
#pragma unroll
        for (u32 a = 0u; a < AHEAD; a++) {
#pragma unroll
            for (u32 j = 0u; j < 8u; j++) {
                visit(r[a].v[j], head + (v + a * T) * 8u + j);
            }
        }
    }
    for (; v < vectors; v += T) {
        const auto r = runs[v];
#pragma unroll
        for (u32 j = 0u; j < 8u; j++) {
            visit(r.v[j], head + v * 8u + j);
        }
    }
    for (u32 i = t; i < count - tail; i += T) {
        visit(p[tail + i], tail + i);
    }
}
