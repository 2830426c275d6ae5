// Attention in one pass over the keys by wgmma, for sm_90a and elements of 16 bits: every warpgroup has 64 rows, other warps copy.
// Queries, and the rings of two stages of keys and of values, have the swizzle of 128 bytes. The next scores are computed together with
// the sums of the last weights and values. IN_TURNS, one of two warpgroups starts its products when the other one has started its own,
// so that it weighs while the other one's are computed; BESIDE, a warpgroup weighs while its own sums are computed. BOXES, one thread
// starts copies of whole boxes of tensors, and a block goes on to further tiles, whose first keys are copied meanwhile; BOXED_MASK, the mask
// comes by the same way, beside the keys that it is for. AT_ONCE, a single step has all keys, and no warp copies for others: the first
// thread starts the copies of the next tile as soon as there is room.
#pragma once
#include "results.cuh"
#include "wgmma_copies.cuh"

// A tile of a warpgroup and the others that compute, and copies for the next one, if there is one; see `copy_boxes`.
template <class K>
DEV void attend_tile(const K& k, const FlashParams& p, const BlockWork<K>& w, u32 tile, u32 done, u32 next_block, bool last) {
    typedef Shape<K> T;
    typedef WgmmaShape<K> W;
    constexpr u32 BN = K::BN;
    const u32 steps = w.steps;
    const u32 group = threadIdx.x / 128u;
    const u32 line = threadIdx.x / 32u * 16u;
    const WarpRows<K> of_rows(p, w, line);
    // Steps whose keys at least one row of the warpgroup sees.
    const u32 begin = w.r0 + group * 64u;
    const u32 reach = begin >= w.rows ? 0u : K::CAUSAL ? ::min(w.last, w.seen(p, begin, begin + 64u)) : w.last;
    const u32 own = reach > w.first ? (reach - w.first + BN - 1u) / BN : 0u;

    typename T::Sums o = {};
    typename T::OfRows top;
    typename T::OfRows sum = {};
    typename W::Weights weights;
    SoonMask<K> mask;
    mask.read(k, p, of_rows.mask_at, w.first, own > 0u ? w.last : 0u);
    top[0][0] = top[0][1] = cf(MINUS_INFINITY);
    // Scores of a step to weights; the mask of the next step is on its way from then on.
    const auto weigh_scores = [&](typename T::Scores& s, typename T::OfRows& less, u32 step) {
        const u32 j0 = w.first + step * BN;
        if constexpr (K::BOXED_MASK) {
            cap_scores<K>(p, s);
            W::put_boxed_mask(k, p, s, line, done + step);
            __syncwarp();
            W::read(W::keys_empty(done + step));
        } else if constexpr (SoonMask<K>::SOON) {
            cap_scores<K>(p, s);
            if (!mask.put(k, p, s)) {
                add_mask(k, p, s, of_rows.mask_at, j0, w.last);
            }
            mask.read(k, p, of_rows.mask_at, j0 + BN, step + 1u < own ? w.last : 0u);
        } else {
            finish_scores(k, p, s, of_rows.mask_at, j0, w.last);
        }
        if (j0 + BN > ::min(w.valid, w.last) || (K::CAUSAL && j0 + BN > of_rows.all_see + 1u)) {
            exclude<K, BN>(s, of_rows.sees, j0, w.valid, w.last);
        }
        soften_scores<K, BN>(s, less, top, sum, p.power);
    };
    // Tells that queries were read, and starts copies for the next tile: of queries and keys, or of values.
    const auto start_next = [&](bool keys) {
        if constexpr (K::AT_ONCE) {
            if (keys) {
                W::read(W::queries_empty());
            }
            if (!last && threadIdx.x == 0u) {
                const BlockWork<K> next(k, p, next_block);
                const TileBoxes<K> boxes{k, p, next};
                if (keys) {
                    boxes.queries(tile + 1u);
                    boxes.keys(0u, done + steps);
                } else {
                    boxes.values(0u, done + steps);
                }
            }
            __syncwarp();
        }
    };
    if constexpr (K::BOXES) {
        barrier_wait(W::queries_full(), tile % 2u);
    }
    if (steps > 0u) {
        W::wait_full(W::keys_full(done), done);
    }
    if (own > 0u) {
        typename T::Scores s;
        typename T::OfRows less;
        W::start_scores(s, group, done);
        W::template finish_scores<0u>(s);
        if constexpr (!K::BOXED_MASK) {
            W::read(W::keys_empty(done));
        }
        // A stage of keys is not free before the mask beside them is read, too.
        if constexpr (!K::BOXED_MASK) {
            start_next(true);
        }
        weigh_scores(s, less, 0u);
        if constexpr (K::BOXED_MASK) {
            start_next(true);
        }
        W::pack(weights, s);
    } else {
        if (steps > 0u) {
            W::read(W::keys_empty(done));
        }
        start_next(true);
    }
    for (u32 step = 0u; step < steps; step++) {
        const u32 next = step + 1u;
        const u32 at = done + step;
        if (!K::AT_ONCE && next < steps) {
            W::wait_full(W::keys_full(at + 1u), at + 1u);
        }
        if (!K::AT_ONCE && next < own) {
            typename T::Scores s;
            typename T::OfRows less;
            W::begin_turn(group);
            W::start_scores(s, group, at + 1u);
            W::wait_full(W::values_full(at), at);
            W::start_values(o, weights, at);
            W::end_turn(group);
            W::template finish_scores<1u>(s);
            if constexpr (!K::BOXED_MASK) {
                W::read(W::keys_empty(at + 1u));
            }
            if constexpr (K::BESIDE) {
                weigh_scores(s, less, next);
                W::finish_values(o);
                W::read(W::values_empty(at));
            } else {
                // Stages are free again while weights are made, and other warpgroups multiply.
                W::finish_values(o);
                W::read(W::values_empty(at));
                weigh_scores(s, less, next);
            }
            scale_down<K>(o, less);
            W::pack(weights, s);
        } else {
            W::wait_full(W::values_full(at), at);
            if (step < own) {
                W::begin_turn(group);
                W::start_values(o, weights, at);
                W::end_turn(group);
                W::finish_values(o);
            } else {
                W::begin_turn(group);
                W::end_turn(group);
            }
            if (!K::AT_ONCE && next < steps) {
                W::read(W::keys_empty(at + 1u));
            }
            W::read(W::values_empty(at));
        }
    }
    start_next(false);
    if (last) {
        release();
    }
    if constexpr (K::BOXES) {
        if constexpr (!K::AT_ONCE) {
            // All of a warpgroup has read its queries, whose place its results take.
            asm volatile("bar.sync %0, 128;" ::"r"(4u + group) : "memory");
        }
        if (w.r0 + line < w.rows) {
            boxed_rows(k, p, W::results() + line * 128u, o, sum, w.b, w.kv, w.r0 + line, w.rows - w.r0 - line);
        }
        __syncwarp();
        if constexpr (!K::AT_ONCE) {
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            __syncwarp();
            W::read(W::queries_empty());
        }
        return;
    }
    T::meet();
    if constexpr (T::OWN_ROWS) {
        if (w.r0 + line < w.rows) {
            own_rows(k, p, o, sum, line, w.b, w.kv, w.r0, w.rows - w.r0 - line);
        }
    } else {
        gather_rows(k, p, o, top, sum, w.part, w.b, w.kv, w.r0);
    }
}

// Visits the tiles of a block, each with the one that follows, and tells which is the last one. Tiles come in the order of their work, the
// largest ones first: every other round goes backward, so that blocks have about the same.
template <class Visit> DEV void each_tile(u32 tiles, Visit visit) {
    const auto at = [](u32 first, u32 odd) { return first + (odd != 0u ? gridDim.x - 1u - blockIdx.x : blockIdx.x); };
    for (u32 first = 0u, odd = 0u; at(first, odd) < tiles; first += gridDim.x, odd ^= 1u) {
        const u32 next = at(first + gridDim.x, odd ^ 1u);
        visit(at(first, odd), next, next >= tiles);
    }
}

template <class K> DEV void flash_wgmma(const K& k) {
    typedef Shape<K> T;
    typedef WgmmaShape<K> W;
    const auto& p = params<FlashParams>(k);
    if (threadIdx.x == 0u) {
        W::init_barriers();
    }
    __syncthreads();
    const u32 blocks = K::BOXES ? tiles_of_head<K>(p) * p.parts * p.kv_heads * p.batch : gridDim.x;
    u32 tile = 0u;
    u32 done = 0u;
    if (threadIdx.x >= T::THREADS) {
        if constexpr (K::LENT > 0u) {
            asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(K::LEFT));
        }
        if constexpr (!K::BOXES) {
            copy_all(k, p, BlockWork<K>(k, p, blockIdx.x));
        } else if (!K::AT_ONCE && threadIdx.x == T::THREADS) {
            each_tile(blocks, [&](u32 block, u32, bool) {
                const BlockWork<K> w(k, p, block);
                copy_boxes(k, p, w, tile, done);
                tile++;
                done += w.steps;
            });
        }
        return;
    }
    if constexpr (K::LENT > 0u) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(K::LENT));
    }
    // The first turn, and the one after the last one.
    const u32 group = threadIdx.x / 128u;
    if (group == 1u) {
        W::end_turn(group);
    }
    if constexpr (!K::BOXES) {
        attend_tile(k, p, BlockWork<K>(k, p, blockIdx.x), 0u, 0u, 0u, true);
    } else {
        if (K::AT_ONCE && threadIdx.x == 0u && blockIdx.x < blocks) {
            copy_boxes(k, p, BlockWork<K>(k, p, blockIdx.x), 0u, 0u);
        }
        __syncwarp();
        each_tile(blocks, [&](u32 block, u32 next, bool last) {
            const BlockWork<K> w(k, p, block);
            attend_tile(k, p, w, tile, done, next, last);
            tile++;
            done += w.steps;
        });
    }
    if (group == 0u) {
        W::begin_turn(group);
    }
}
