// The product of all inputs of a recurrence with their weights by tiles of `mma.sync`, f32 in scratch memory: rows as those of x,
// columns by direction, gate, unit.
#pragma once
#include "../matmul/mma.cuh"
#include "states.cuh"

template <class K> DEV void inputs_mma(const K& k) {
    typedef typename K::Tile Tile;
    const auto& p = params<RecurrentChipParams>(k);
    const Matrices m{p.rows, p.columns, p.depth, p.depth, 1u, 1u, p.depth};
    const TilePlace place = place_of<Tile>(blockIdx.x, 1u, p.rows, p.columns);
    const bool runs = p.columns % 8u == 0u;
    typename MmaTiles<Tile>::Sums sum = {};
    multiply_tile<Tile, 1u, ANY_LINES, ANY_LINES>(sum, m, k.bx0, k.bx1, 0u, 0u, place);
    MmaTiles<Tile>::spread(sum, [&](u32 row, u32 col, const f32* v) {
        row += place.row;
        col += place.column;
        if (row >= p.rows || col >= p.columns) {
            return;
        }
        const u32 at = row * p.columns + col;
        f32* to = reinterpret_cast<f32*>(k.scratch) + at;
        if (at == 0u) {
            clear_counters(k, p);
        }
        if (runs) {
            Pack<f32> a, b;
#pragma unroll
            for (u32 q = 0u; q < 4u; q++) {
                a.v[q] = v[q];
                b.v[q] = v[q + 4u];
            }
            a.put(to);
            b.put(to + 4u);
            return;
        }
        for (u32 q = 0u; q < 8u && q < p.columns - col; q++) {
            to[q] = v[q];
        }
    });
}
