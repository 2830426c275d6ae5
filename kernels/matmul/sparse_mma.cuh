// Matrix products by packed 2:4 sparse weights on tensor cores by mma.sp.
#pragma once
#include "mma.cuh"
#include "../mma/sparse.cuh"

struct SparseMmaParams {
    u32 rows;
    u32 columns;
    u32 depth;
    u32 chunks;
};

template <class K> DEV void sparse_gemm(const K& k) {
    typedef typename K::Tile Tile;
    typedef SparseTiles<Tile> T;
    typedef ValuesOf<Tile> Values;
    typedef typename T::Sum Sum;
    const auto& p = params<SparseMmaParams>(k);
    const TilePlace place = place_of<Tile>(blockIdx.x, 1u, p.rows, p.columns);
    const u32 steps = (p.chunks + T::CHUNKS - 1u) / T::CHUNKS;
    const u32 half = p.chunks * T::CHUNK / 2u / T::SIZE;
    LineCopies<Tile, Tile::ROWS, false, typename K::CellX> x;
    LineCopies<Values, Tile::COLUMNS, false, typename K::CellW> w;
    x.start(k.bx0, place.row, p.rows, p.depth, 0u);
    w.start(k.bx1, place.column, p.columns, half, 0u);
    typename T::Sums sum = {};
    T::accumulate(sum, steps, [&](u32 stage, u32 step) {
        if (step >= steps) {
            return;
        }
        if constexpr (K::WHOLE) {
            x.load(T::stage_x(stage), p.depth - step * T::BK, 0u, 1u);
        } else {
            x.load_words_now(T::stage_x(stage), p.depth - step * T::BK);
        }
        w.load(T::stage_w(stage), half - step * T::BK / 2u, 0u, 1u);
        T::load_places(stage, k.bx2, place.column, p.columns, step * T::CHUNKS, p.chunks);
    });
    const bool runs = p.columns % 8u == 0u;
    T::spread(sum, [&](u32 row, u32 col, const Sum* v) {
        row += place.row;
        col += place.column;
        if (row >= p.rows || col >= p.columns) {
            return;
        }
        const u32 at = row * p.columns + col;
        if (runs) {
            k.emit0_run(at, v);
            return;
        }
        for (u32 q = 0u; q < 8u && col + q < p.columns; q++) {
            k.emit0(at + q, v[q]);
        }
    });
}
