// Matrix products with few rows by wgmma with TMA.
#pragma once
#include "../wgmma/few.cuh"

struct FewMatmulParams {
    u32 rows;
    u32 columns;
    u32 constant;
};

template <class K> DEV void few(const K& k) {
    typedef FewTiles<typename K::Tile> T;
    const auto& p = params<FewMatmulParams>(k);
    make_few(
        k, p.rows, p.columns, p.constant != 0u,
        [&](u32 col, u32 block, u32 to, u32 barrier) {
            if constexpr (K::Tile::ACROSS_W) {
                box(to, k.maps + 1, barrier, col, block * T::BK, 0u);
            } else {
                box(to, k.maps + 1, barrier, 0u, col, block);
            }
        },
        [&](u32 row, u32 block, u32 to, u32 barrier) { box(to, k.maps, barrier, 0u, row, block); });
}
