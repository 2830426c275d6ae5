// Attention in one pass over the keys, with a running maximum and sum for each row; shape.cuh says what a block does.
#pragma once
#include "results.cuh"
#include "scores.cuh"

// Keys of a batch entry that take part.
template <class K> DEV u32 bound(const K& k, const FlashParams& p, u32 b) {
    u32 n = p.keys;
    if constexpr (K::MASK) {
        n = ::min(n, p.mask_length);
    }
    if constexpr (K::LENGTHS) {
        n = ::min(n, u32(::max(k.near6(b), 0)));
    }
    return n;
}

// Keys, or values, from j0 on: those of the past, which are at `past`, and then others at `now`.
template <class K, u32 DEPTH>
DEV void load_keys(const FlashParams& p, u8* tile, const typename K::Cell* past, u32 past_by, const typename K::Cell* now, u32 by, u32 j0,
                   u32 last, u32 size, bool whole) {
    typedef typename K::Cell Cell;
    constexpr u32 LINES = Shape<K>::LINES;
    const u32 before = K::PAST ? p.past : 0u;
    if (j0 >= before) {
        load_rows<K, LINES, DEPTH>(tile, now + u64(j0 - before) * by, by, last - j0, size, whole);
    } else if (j0 + LINES <= before) {
        load_rows<K, LINES, DEPTH>(tile, past + u64(j0) * past_by, past_by, last - j0, size, whole);
    } else {
        load_lines<K, LINES, DEPTH>(tile, past, size, whole, [&](u32 line) -> const Cell* {
            const u32 j = j0 + line;
            const Cell* from = j < before ? past + u64(j) * past_by : now + u64(j - before) * by;
            return j < last ? from : nullptr;
        });
    }
}

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
    typedef typename K::Cell Cell;
    constexpr u32 BM = K::BM;
    constexpr u32 BN = K::BN;
    constexpr u32 STAGES = K::STAGES;
    constexpr u32 MI = T::MI;
    const auto& p = params<FlashParams>(k);
    const u32 share = group_size<K>(p);
    const u32 rows = share * p.queries;
    const u32 tiles = ::max((rows + BM - 1u) / BM, 1u);
    const u32 parts = p.parts;
    const u32 tile = blockIdx.x % tiles;
    const u32 part = blockIdx.x / tiles % parts;
    const u32 kv = blockIdx.x / tiles / parts % p.kv_heads;
    const u32 b = blockIdx.x / tiles / parts / p.kv_heads;
    const u32 r0 = tile * BM;
    const u32 valid = bound(k, p, b);
    u32 last = valid;
    if (K::CAUSAL) {
        const u32 end = ::min(r0 + BM, rows) - 1u;
        const u32 furthest = head_of<K>(p, end) == head_of<K>(p, r0) ? query_of<K>(p, end) : p.queries - 1u;
        last = ::min(last, furthest + p.past + 1u);
    }
    if (K::PRESENT && tile == 0u) {
        last = p.keys;
    }
    const u32 first = part * p.part_keys;
    last = ::min(last, first + p.part_keys);
    const u32 steps = last > first ? (last - first + BN - 1u) / BN : 0u;

    const u32 whole = p.whole;
    const Cell* q = k.bx0 + p.q_offset + u64(b) * p.q_batch;
    if constexpr (K::GROUPED) {
        load_lines<K, BM, K::DQ>(block_memory, k.bx0, p.size, (whole & WHOLE_Q) != 0u, [&](u32 line) -> const Cell* {
            const u32 row = r0 + line;
            const u32 head = kv * share + head_of<K>(p, row);
            return row < rows ? q + u64(head) * p.q_head + u64(query_of<K>(p, row)) * p.q_step : nullptr;
        });
    } else {
        const Cell* from = q + u64(kv) * p.q_head + u64(r0) * p.q_step;
        load_rows<K, BM, K::DQ>(block_memory, rows > r0 ? from : k.bx0, p.q_step, rows - r0, p.size, (whole & WHOLE_Q) != 0u);
    }
    const Cell* keys_now = k.bx1 + p.k_offset + u64(b) * p.k_batch + u64(kv) * p.k_head;
    const Cell* values_now = k.bx2 + p.v_offset + u64(b) * p.v_batch + u64(kv) * p.v_head;
    const Cell* keys_past = nullptr;
    const Cell* values_past = nullptr;
    if constexpr (K::PAST) {
        keys_past = k.bx4 + p.past_k_offset + u64(b) * p.past_k_batch + u64(kv) * p.past_k_head;
        values_past = k.bx5 + p.past_v_offset + u64(b) * p.past_v_batch + u64(kv) * p.past_v_head;
    }
    auto load = [&](u32 stage, u32 step) {
        const u32 j0 = first + step * BN;
        load_keys<K, K::DQ>(p, T::keys_of(stage), keys_past, p.past_k_step, keys_now, p.k_step, j0, last, p.size, (whole & WHOLE_K) != 0u);
        load_keys<K, K::DV>(p, T::values_of(stage), values_past, p.past_v_step, values_now, p.v_step, j0, last, p.value_size,
                            (whole & WHOLE_V) != 0u);
    };
    if constexpr (K::ALL_KEYS > 0u) {
        load(0u, 0u);
    }
    for (u32 s = 0u; s < STAGES - 1u; s++) {
        if (s < steps) {
            load(s, s);
        }
        commit();
    }

    const u32 warp = threadIdx.x / 32u;
    const u32 lane = threadIdx.x % 32u;
    const u32 line = warp / K::WARPS_K * MI * 16u;
    const u32 key = warp % K::WARPS_K * T::WK;
    const bool active = r0 + line < rows;
    // Offsets into the mask, and the last key that a row sees.
    typename T::Rows mask_at;
    typename T::Rows sees;
#pragma unroll
    for (u32 i = 0u; i < MI; i++) {
#pragma unroll
        for (u32 h = 0u; h < 2u; h++) {
            const u32 row = ::min(r0 + line + i * 16u + h * 8u + lane / 4u, rows - 1u);
            const u32 head = kv * share + head_of<K>(p, row);
            mask_at[i][h] = p.mask_offset + b * p.mask_batch + head * p.mask_head + query_of<K>(p, row) * p.mask_query;
            sees[i][h] = query_of<K>(p, row) + p.past;
        }
    }
    const u32 low = ::min(r0 + line, rows - 1u);
    const u32 high = ::min(r0 + line + MI * 16u, rows) - 1u;
    const u32 all_see = (head_of<K>(p, low) == head_of<K>(p, high) ? query_of<K>(p, low) : 0u) + p.past;

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
            if (tile == 0u) {
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
        gather_rows(k, p, o, top, sum, part, b, kv, r0);
    }
}
