// Attention in one pass over the keys by wgmma, for sm_90a and elements of 16 bits: every warpgroup has 64 rows, other warps copy.
// Queries, and the rings of two stages of keys and of values, have the swizzle of 128 bytes. The next scores are computed together with
// the sums of the last weights and values. IN_TURNS, one of two warpgroups starts its products when the other one has started its own,
// so that it weighs while the other one's are computed; BESIDE, a warpgroup weighs while its own sums are computed. BOXES, one thread
// starts copies of whole boxes of tensors; BOXED_MASK, the mask comes by the same way, beside the keys that it is for.
#pragma once
#include "results.cuh"
#include "wgmma_copies.cuh"

template <class K> DEV void flash_wgmma(const K& k) {
    typedef Shape<K> T;
    typedef WgmmaShape<K> W;
    constexpr u32 BN = K::BN;
    const auto& p = params<FlashParams>(k);
    const BlockWork<K> w(k, p);
    const u32 steps = w.steps;
    if (threadIdx.x == 0u) {
        W::init_barriers();
    }
    __syncthreads();
    if (threadIdx.x >= T::THREADS) {
        if constexpr (K::LENT > 0u) {
            asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(K::LEFT));
        }
        if constexpr (K::BOXES) {
            copy_boxes(k, p, w);
        } else {
            copy_all(k, p, w);
        }
        return;
    }
    if constexpr (K::LENT > 0u) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(K::LENT));
    }
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
            W::put_boxed_mask(k, p, s, line, step % 2u);
            __syncwarp();
            W::read(W::keys_empty(step));
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
    if (steps > 0u) {
        W::wait_full(W::keys_full(0u), 0u);
        if (group == 1u) {
            W::end_turn(group);
        }
    }
    if (own > 0u) {
        typename T::Scores s;
        typename T::OfRows less;
        W::start_scores(s, group, 0u);
        W::template finish_scores<0u>(s);
        weigh_scores(s, less, 0u);
        W::pack(weights, s);
    }
    if (!K::BOXED_MASK || own == 0u) {
        W::read(W::keys_empty(0u));
    }
    for (u32 step = 0u; step < steps; step++) {
        const u32 next = step + 1u;
        if (next < steps) {
            W::wait_full(W::keys_full(next), next);
        }
        if (next < own) {
            typename T::Scores s;
            typename T::OfRows less;
            W::begin_turn(group);
            W::start_scores(s, group, next % 2u);
            W::wait_full(W::values_full(step), step);
            W::start_values(o, weights, step % 2u);
            W::end_turn(group);
            W::template finish_scores<1u>(s);
            if constexpr (!K::BOXED_MASK) {
                W::read(W::keys_empty(next));
            }
            if constexpr (K::BESIDE) {
                weigh_scores(s, less, next);
                W::finish_values(o);
                W::read(W::values_empty(step));
            } else {
                // Stages are free again while weights are made, and other warpgroups multiply.
                W::finish_values(o);
                W::read(W::values_empty(step));
                weigh_scores(s, less, next);
            }
            scale_down<K>(o, less);
            W::pack(weights, s);
        } else {
            W::wait_full(W::values_full(step), step);
            if (step < own) {
                W::begin_turn(group);
                W::start_values(o, weights, step % 2u);
                W::end_turn(group);
                W::finish_values(o);
            } else {
                W::begin_turn(group);
                W::end_turn(group);
            }
            W::read(W::keys_empty(next));
            W::read(W::values_empty(step));
        }
    }
    // The turn after the last one.
    if (steps > 0u && group == 0u) {
        W::begin_turn(group);
    }
    release();
    T::meet();
    if constexpr (T::OWN_ROWS) {
        if (w.r0 + line < w.rows) {
            own_rows(k, p, o, sum, line, w.b, w.kv, w.r0, w.rows - w.r0 - line);
        }
    } else {
        gather_rows(k, p, o, top, sum, w.part, w.b, w.kv, w.r0);
    }
}
