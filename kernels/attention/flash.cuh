// Attention in one pass over the keys, with a running maximum and sum for each row; shape.cuh says what a block does.
#pragma once
#include "results.cuh"
#include "scores.cuh"
#include "work.cuh"

// All keys from number AT on, which are in shared memory, for the rows of a warp from `line` on.
template <u32 AT, class K>
DEV void attend(const K& k, const FlashParams& p, typename Shape<K>::Sums& o, typename Shape<K>::OfRows& top, typename Shape<K>::OfRows& sum,
                const typename Shape<K>::Kept& kept, const typename Shape<K>::Rows& mask_at, const typename Shape<K>::Rows& sees, u32 line,
                u32 all_see, u32 valid, u32 last) {
    typedef Shape<K> T;
    constexpr u32 KEYS = K::ALL_KEYS - AT < K::BN ? K::ALL_KEYS - AT : K::BN;
    if (!K::CAUSAL || AT < last) {
        typename T::Scores s = {};
        if constexpr (!LATE<K>) {
            add_mask(k, p, s, mask_at, AT, last);
        }
        score<K, false, KEYS>(s, kept, T::keys_of(0u) + AT * T::PITCH_K, line, KEYS);
        finish_scores(k, p, s, mask_at, AT, last);
        if (AT + KEYS > ::min(valid, last) || (K::CAUSAL && AT + KEYS > all_see + 1u)) {
            exclude<K, KEYS>(s, sees, AT, valid, last);
        }
        soften<K, KEYS>(s, o, top, sum, p.power);
        weigh<K, false, KEYS>(o, s, T::values_of(0u) + AT * T::PITCH_V, KEYS);
    }
    if constexpr (AT + K::BN < K::ALL_KEYS) {
        attend<AT + K::BN>(k, p, o, top, sum, kept, mask_at, sees, line, all_see, valid, last);
    }
}

template <class K> DEV void flash(const K& k) {
    typedef Shape<K> T;
    constexpr u32 BN = K::BN;
    constexpr u32 STAGES = K::STAGES;
    constexpr u32 MI = T::MI;
    const auto& p = params<FlashParams>(k);
    // The lengths say how much there is to do.
    if constexpr (K::LENGTHS) {
        depend();
    }
    const BlockWork<K> w(k, p, blockIdx.x);
    const u32 r0 = w.r0, rows = w.rows, first = w.first, last = w.last, valid = w.valid, steps = w.steps, b = w.b, kv = w.kv;
    const BlockKeys<K> of_block(k, p, b, kv);
    auto load = [&](u32 stage, u32 step) {
        const u32 j0 = first + step * BN;
        of_block.load(p, T::keys_of(stage), j0, last);
        of_block.load_values(p, T::values_of(stage), j0, last);
    };
    // Stages that are on their way before what the kernel waits for is done: those of the past alone.
    u32 ahead = 0u;
    if constexpr (K::PAST && !K::LENGTHS) {
        while (p.past_given != 0u && ahead < ::min(STAGES - 1u, steps) && first + (ahead + 1u) * BN <= p.past) {
            load(ahead, ahead);
            ahead++;
        }
    }
    if constexpr (!K::LENGTHS) {
        depend();
    }
    if (yields(k)) {
        release();
    }
    w.load_queries(k, p, block_memory);
    if constexpr (K::ALL_KEYS > 0u) {
        load(0u, 0u);
    }
    for (u32 s = 0u; s < STAGES - 1u; s++) {
        if (s >= ahead && s < steps) {
            load(s, s);
        }
        commit();
    }

    const u32 warp = threadIdx.x / 32u;
    const u32 line = warp / K::WARPS_K * MI * 16u;
    const u32 key = warp % K::WARPS_K * T::WK;
    const bool active = r0 + line < rows;
    const WarpRows<K> of_rows(p, w, line);
    const auto& mask_at = of_rows.mask_at;
    const auto& sees = of_rows.sees;
    const u32 all_see = of_rows.all_see;

    typename T::Sums o = {};
    typename T::OfRows top;
    typename T::OfRows sum = {};
#pragma unroll
    for (u32 i = 0u; i < MI; i++) {
        top[i][0] = top[i][1] = cf(MINUS_INFINITY);
    }
    typename T::Kept kept;
    u32 stage = 0u;
    u32 filled = STAGES - 1u;
    const auto keep_queries = [&] {
#pragma unroll
        for (u32 d = 0u; T::KEPT && d < K::DQ / T::STEP; d++) {
            queries_at<K>(kept[T::KEPT ? d : 0u], line, d * T::STEP);
        }
    };
    if constexpr (K::ALL_KEYS > 0u) {
        commit();
        arrived<0u>();
        __syncthreads();
        if (active) {
            keep_queries();
            attend<0u>(k, p, o, top, sum, kept, mask_at, sees, line, all_see, valid, last);
        }
    }
    for (u32 step = 0u; K::ALL_KEYS == 0u && step < steps; step++) {
        const u32 j0 = first + step * BN + key;
        const bool works = active && j0 < last;
        typename T::Scores s = {};
        if (works && !LATE<K>) {
            add_mask(k, p, s, mask_at, j0, last);
        }
        if constexpr (STAGES == 1u) {
            __syncthreads();
            load(0u, step);
            commit();
            arrived<0u>();
        } else {
            arrived<STAGES - 2u>();
        }
        // All threads have the stage, and are done with the one whose buffer is filled next.
        __syncthreads();
        if (step == 0u) {
            keep_queries();
        }
        if constexpr (STAGES > 1u) {
            if (step + STAGES - 1u < steps) {
                load(filled, step + STAGES - 1u);
            }
            commit();
        }
        if constexpr (K::PRESENT) {
            if (w.tile == 0u) {
                keep(k, p, T::keys_of(stage), T::values_of(stage), first + step * BN, last, b, kv);
            }
        }
        if (works) {
            const u8* keys = T::keys_of(stage) + key * T::PITCH_K;
            const u8* values = T::values_of(stage) + key * T::PITCH_V;
            const u32 live = last - j0;
            const bool edge = j0 + T::WK > ::min(valid, last) || (K::CAUSAL && j0 + T::WK > all_see + 1u);
            if (edge) {
                score<K, true, T::WK>(s, kept, keys, line, live);
                finish_scores(k, p, s, mask_at, j0, last);
                exclude<K, T::WK>(s, sees, j0, valid, last);
                soften<K, T::WK>(s, o, top, sum, p.power);
                weigh<K, true, T::WK>(o, s, values, live);
            } else {
                score<K, false, T::WK>(s, kept, keys, line, live);
                finish_scores(k, p, s, mask_at, j0, last);
                soften<K, T::WK>(s, o, top, sum, p.power);
                weigh<K, false, T::WK>(o, s, values, live);
            }
        }
        stage = stage + 1u == STAGES ? 0u : stage + 1u;
        filled = filled + 1u == STAGES ? 0u : filled + 1u;
    }
    release();
    commit();
    arrived<0u>();
    if constexpr (T::OWN_ROWS) {
        if (steps == 0u) {
            __syncthreads();
        }
        if (active) {
            own_rows(k, p, o, sum, line, b, kv, r0, rows - r0 - line);
        }
    } else {
        __syncthreads();
        gather_rows(k, p, o, top, sum, w.part, b, kv, r0);
    }
}
