// Matrix products by wgmma with TMA.
#pragma once
#include "../wgmma/stores.cuh"

struct WgmmaMatmulParams {
    u32 rows;
    u32 columns;
    u32 depth;
    u32 batch;
    u32 batched_b;
    u32 results;
    u32 constant;
};

// The steps of a tile.
template <class K> struct MatmulCursor {
    typedef WgmmaTiles<typename K::Tile> T;
    TilePlace tile;
    u32 step;

    DEV MatmulCursor(const K&, const TilePlace& tile, u32 step) : tile(tile), step(step) {}

    DEV void copy_a(const K& k, u32 to, u32 barrier) const { box(to, k.maps, barrier, step * T::BK, tile.row, tile.batch); }

    DEV void copy_b(const K& k, u32 to, u32 barrier) const {
        const u32 batch = tile.batch * params<WgmmaMatmulParams>(k).batched_b;
        const u32 first = T::rank() * T::SHARE;
        const u32 col = tile.col + first;
        to += first * T::LINE;
        if constexpr (K::Tile::SPREAD) {
            spread_box<T::CLUSTER>(to, k.maps + 1, barrier, step * T::BK, col / 32u, T::first_beside());
        } else if constexpr (K::Tile::ACROSS_B) {
            for (u32 n = 0u; n < T::SHARE; n += 64u) {
                box<T::CLUSTER>(to + n * 128u, k.maps + 1, barrier, col + n, step * T::BK, batch, T::first_beside());
            }
        } else {
            box<T::CLUSTER>(to, k.maps + 1, barrier, step * T::BK, col, batch, T::first_beside());
        }
    }

    DEV void next(const K&) { step++; }
};

template <class K> DEV void matmul(const K& k) {
    typedef WgmmaTiles<typename K::Tile> T;
    const auto& p = params<WgmmaMatmulParams>(k);
    const typename T::Product product(p.rows, p.columns, p.batch, (p.depth + T::BK - 1u) / T::BK, p.constant != 0u);
    make_tiles<MatmulCursor<K>, Stores<K>>(k, product, p.results);
}

// A result from the parts of its sum.
template <class K> DEV typename K::Tile::Sum matmul_sum(const K& k, u32 at) {
    const auto& p = params<WgmmaMatmulParams>(k);
    return sum_of_parts(k, p.results, at, at % p.columns);
}
