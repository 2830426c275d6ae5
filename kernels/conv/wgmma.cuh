// Convolutions of images with channels last by wgmma with TMA. Of images with planes (`K::DEEP`) a batch is a plane of the result.
#pragma once
#include "../wgmma/stores.cuh"
#include "../wgmma/windows.cuh"

// The steps of a tile.
template <class K> struct ConvCursor {
    typedef WgmmaTiles<typename K::Tile> T;
    u32 col, step;
    WindowBox<T::BK, K::DEEP> windows;

    DEV ConvCursor(const K& k, const TilePlace& tile, u32 step)
        : col(tile.col), step(step), windows(params<WgmmaConvParams>(k), tile.batch, tile.row, step) {}

    DEV void copy_a(const K& k, u32 to, u32 barrier) const {
        windows.copy(params<WgmmaConvParams>(k), k.maps, to, barrier);
    }

    DEV void copy_b(const K& k, u32 to, u32 barrier) const {
        const u32 first = T::rank() * T::SHARE;
        to += first * T::LINE;
        if constexpr (K::Tile::SPREAD) {
            spread_box<T::CLUSTER>(to, k.maps + 1, barrier, step * T::BK, (col + first) / 32u, T::first_beside());
        } else {
            box<T::CLUSTER>(to, k.maps + 1, barrier, windows.channel, windows.tap, col + first, T::first_beside());
        }
    }

    DEV void next(const K& k) {
        step++;
        windows.next(params<WgmmaConvParams>(k));
    }
};

template <class K> DEV void conv(const K& k) {
    typedef WgmmaTiles<typename K::Tile> T;
    const auto& p = params<WgmmaConvParams>(k);
    const u32 steps = (p.channels + T::BK - 1u) / T::BK * p.taps;
    const u32 batch = K::DEEP ? p.results / p.windows / p.outputs : 1u;
    const typename T::Product product(p.windows, p.outputs, batch, steps, p.constant != 0u);
    make_tiles<ConvCursor<K>, Stores<K>>(k, product, p.results);
}

// A result from the parts of its sum.
template <class K> DEV typename K::Tile::Sum conv_sum(const K& k, u32 at) {
    const auto& p = params<WgmmaConvParams>(k);
    return sum_of_parts(k, p.results, at, at % p.outputs);
}
