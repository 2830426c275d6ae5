// Convolutions of images with channels last and few windows by wgmma with TMA.
#pragma once
#include "../wgmma/few.cuh"
#include "../wgmma/windows.cuh"

template <class K> DEV void few(const K& k) {
    typedef FewTiles<typename K::Tile> T;
    const auto& p = params<WgmmaConvParams>(k);
    WindowBox<T::BK, false> windows(p, 0u, 0u, 0u);
    bool begun = false;
    make_few(
        k, p.windows, p.outputs, p.constant != 0u,
        [&](u32 col, u32 block, u32 to, u32 barrier) { box(to, k.maps + 1, barrier, 0u, col, block); },
        [&](u32 row, u32 block, u32 to, u32 barrier) {
            // Parts come one after the other.
            if (!begun) {
                windows = WindowBox<T::BK, false>(p, 0u, row, block);
                begun = true;
            }
            for (u32 b = 0u; b < T::CHUNK; b++) {
                windows.copy(p, k.maps, to + b * T::BN * 128u, barrier);
                windows.next(p);
            }
        });
}
