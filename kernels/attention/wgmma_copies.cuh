// Copies into the stages of attention by wgmma: by the threads of a warpgroup, or by boxes that one thread starts.
#pragma once
#include "wgmma_shape.cuh"
#include "work.cuh"

// Copies queries, then keys and values in the order in which they are read. A stage is reported when the copies of the next one are
// on their way.
template <class K> DEV void copy_all(const K& k, const FlashParams& p, const BlockWork<K>& w) {
    typedef WgmmaShape<K> W;
    const BlockKeys<K> of_block(k, p, w.b, w.kv);
    u32 unreported = 0u;
    const auto report = [&](u32 barrier) {
        commit();
        if (unreported != 0u) {
            arrived<1u>();
            asm volatile("fence.proxy.async;" ::: "memory");
            barrier_arrive(unreported);
        }
        unreported = barrier;
    };
    const auto copy_keys = [&](u32 step) {
        if (step < w.steps) {
            W::wait_empty(W::keys_empty(step), step);
            of_block.load(p, W::keys(step), w.first + step * K::BN, w.last);
            report(W::keys_full(step));
        }
    };
    // Without keys there are results at once, where queries would be.
    if (w.steps == 0u) {
        return;
    }
    w.load_queries(k, p, W::queries());
    copy_keys(0u);
    for (u32 step = 0u; step < w.steps; step++) {
        copy_keys(step + 1u);
        W::wait_empty(W::values_empty(step), step);
        of_block.load_values(p, W::values(step), w.first + step * K::BN, w.last);
        report(W::values_full(step));
    }
    arrived<0u>();
    asm volatile("fence.proxy.async;" ::: "memory");
    barrier_arrive(unreported);
}

// A box of a tensor of four dimensions.
DEV void box_of_4(u8* to, const TensorMap* map, u32 barrier, u32 x, u32 y, u32 z, u32 w) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, "
                 "%5, %6}], [%2];" ::"r"(address(to)),
                 "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w)
                 : "memory");
}

// The boxes of a tile, number `tile` of its block, all of whose copies one thread starts. Maps: queries, keys, values, the mask. Positions
// in a map are component, line, head and batch entry; heads begin where the tensor's part of a wider one does. `at` is the number of a
// step among those of all tiles of the block.
template <class K> struct TileBoxes {
    typedef WgmmaShape<K> W;
    const K& k;
    const FlashParams& p;
    const BlockWork<K>& w;

    DEV void copy(u8* to, u32 n, u32 lines, u32 map, u32 barrier, u32 line, u32 head) const {
        for (u32 i = 0u; i < n; i++) {
            box_of_4(to + i * lines * 128u, k.maps + map, barrier, i * 64u, line, head, w.b);
        }
    }

    // Without keys there are results at once, for which nothing is copied.
    DEV void queries(u32 tile) const {
        barrier_wait(W::queries_empty(), tile % 2u ^ 1u);
        if (w.steps == 0u) {
            barrier_arrive(W::queries_full());
            return;
        }
        barrier_expect(W::queries_full(), W::BYTES_Q);
        copy(W::queries(), (K::DQ + 63u) / 64u, K::BM, 0u, W::queries_full(), w.r0, p.q_offset + w.kv);
    }

    DEV void keys(u32 step, u32 at) const {
        if (step >= w.steps) {
            return;
        }
        const u32 full = W::keys_full(at);
        const u32 j0 = w.first + step * K::BN;
        W::wait_empty(W::keys_empty(at), at);
        barrier_expect(full, W::KEY_STAGE);
        copy(W::keys(at), (K::DQ + 63u) / 64u, K::BN, 1u, full, j0, p.k_offset + w.kv / p.share);
        if constexpr (K::BOXED_MASK) {
            for (u32 i = 0u; i < K::BN / 64u; i++) {
                box_of_4(W::mask(at) + i * K::BM * 128u, k.maps + 3u, full, j0 + i * 64u, w.r0, p.mask_head != 0u ? w.kv : 0u,
                         p.mask_batch != 0u ? w.b : 0u);
            }
        }
    }

    DEV void values(u32 step, u32 at) const {
        if (step >= w.steps) {
            return;
        }
        const u32 full = W::values_full(at);
        W::wait_empty(W::values_empty(at), at);
        barrier_expect(full, W::BYTES_V);
        copy(W::values(at), (K::DV + 63u) / 64u, K::BN, 2u, full, w.first + step * K::BN, p.v_offset + w.kv / p.share);
    }
};

// Copies all boxes of a tile, of which `done` steps are those of the tiles before.
template <class K> DEV void copy_boxes(const K& k, const FlashParams& p, const BlockWork<K>& w, u32 tile, u32 done) {
    const TileBoxes<K> boxes{k, p, w};
    // The first keys do not wait for the results of the tile before, which lie where queries will.
    boxes.keys(0u, done);
    boxes.queries(tile);
    for (u32 step = 0u; step < w.steps; step++) {
        boxes.keys(step + 1u, done + step + 1u);
        boxes.values(step, done + step);
    }
}
