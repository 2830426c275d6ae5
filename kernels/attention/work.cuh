// The work of a block of attention: its rows, its keys, and copies of them into shared memory.
#pragma once
#include "instructions.cuh"

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

// Tiles of rows of a head.
template <class K> DEV u32 tiles_of_head(const FlashParams& p) {
    return ::max((group_size<K>(p) * p.queries + K::BM - 1u) / K::BM, 1u);
}

// Work of a block, by its number: rows r0 on of a key head and a batch entry, and `steps` times BN keys from `first` on.
template <class K> struct BlockWork {
    u32 share, rows, tile, part, kv, b, r0, valid, first, last, steps;

    DEV BlockWork(const K& k, const FlashParams& p, u32 block) {
        constexpr u32 BM = K::BM;
        share = group_size<K>(p);
        rows = share * p.queries;
        const u32 tiles = tiles_of_head<K>(p);
        u32 rest;
        if constexpr (K::SWIZZLED && K::CAUSAL) {
            // The rows that see the most keys take the longest: their blocks come first.
            const u32 others = p.parts * p.kv_heads * p.batch;
            tile = tiles - 1u - block / others;
            rest = block % others;
        } else {
            tile = block % tiles;
            rest = block / tiles;
        }
        part = rest % p.parts;
        kv = rest / p.parts % p.kv_heads;
        b = rest / p.parts / p.kv_heads;
        r0 = tile * BM;
        valid = bound(k, p, b);
        last = K::CAUSAL ? ::min(valid, seen(p, r0, r0 + BM)) : valid;
        if (K::PRESENT && tile == 0u) {
            last = p.keys;
        }
        first = part * p.part_keys;
        last = ::min(last, first + p.part_keys);
        steps = last > first ? (last - first + K::BN - 1u) / K::BN : 0u;
    }

    // Keys that at least one of the rows from `low` to before `high` sees, where masks are causal.
    DEV u32 seen(const FlashParams& p, u32 low, u32 high) const {
        const u32 end = ::min(high, rows) - 1u;
        const u32 furthest = head_of<K>(p, end) == head_of<K>(p, low) ? query_of<K>(p, end) : p.queries - 1u;
        return furthest + p.past + 1u;
    }

    // Starts the copies of the queries.
    DEV void load_queries(const K& k, const FlashParams& p, u8* to) const {
        typedef typename K::Cell Cell;
        const Cell* q = k.bx0 + p.q_offset + u64(b) * p.q_batch;
        if constexpr (K::GROUPED) {
            load_lines<K, K::BM, K::DQ>(to, k.bx0, p.size, (p.whole & WHOLE_Q) != 0u, [&](u32 line) -> const Cell* {
                const u32 row = r0 + line;
                const u32 head = kv * share + head_of<K>(p, row);
                return row < rows ? q + u64(head) * p.q_head + u64(query_of<K>(p, row)) * p.q_step : nullptr;
            });
        } else {
            const Cell* from = q + u64(kv) * p.q_head + u64(r0) * p.q_step;
            load_rows<K, K::BM, K::DQ>(to, rows > r0 ? from : k.bx0, p.q_step, rows - r0, p.size, (p.whole & WHOLE_Q) != 0u);
        }
    }
};

// Keys and values of a block, those of the past apart.
template <class K> struct BlockKeys {
    typedef typename K::Cell Cell;
    const Cell *now, *values_now, *past, *values_past;

    DEV BlockKeys(const K& k, const FlashParams& p, u32 b, u32 kv) : past(nullptr), values_past(nullptr) {
        now = k.bx1 + p.k_offset + u64(b) * p.k_batch + u64(kv) * p.k_head;
        values_now = k.bx2 + p.v_offset + u64(b) * p.v_batch + u64(kv) * p.v_head;
        if constexpr (K::PAST) {
            past = k.bx4 + p.past_k_offset + u64(b) * p.past_k_batch + u64(kv) * p.past_k_head;
            values_past = k.bx5 + p.past_v_offset + u64(b) * p.past_v_batch + u64(kv) * p.past_v_head;
        }
    }

    // Starts the copies of a stage of keys from j0 on, or of values.
    DEV void load(const FlashParams& p, u8* to, u32 j0, u32 last) const {
        load_keys<K, K::DQ>(p, to, past, p.past_k_step, now, p.k_step, j0, last, p.size, (p.whole & WHOLE_K) != 0u);
    }
    DEV void load_values(const FlashParams& p, u8* to, u32 j0, u32 last) const {
        load_keys<K, K::DV>(p, to, values_past, p.past_v_step, values_now, p.v_step, j0, last, p.value_size, (p.whole & WHOLE_V) != 0u);
    }
};

// The rows of a warp from `line` on: offsets into the mask, the last key that each row sees, and the last that all see.
template <class K> struct WarpRows {
    typename Shape<K>::Rows mask_at, sees;
    u32 all_see;

    DEV WarpRows(const FlashParams& p, const BlockWork<K>& w, u32 line) {
        constexpr u32 MI = Shape<K>::MI;
#pragma unroll
        for (u32 i = 0u; i < MI; i++) {
#pragma unroll
            for (u32 h = 0u; h < 2u; h++) {
                const u32 row = ::min(w.r0 + line + i * 16u + h * 8u + threadIdx.x % 32u / 4u, w.rows - 1u);
                const u32 head = w.kv * w.share + head_of<K>(p, row);
                mask_at[i][h] = p.mask_offset + w.b * p.mask_batch + head * p.mask_head + query_of<K>(p, row) * p.mask_query;
                sees[i][h] = query_of<K>(p, row) + p.past;
            }
        }
        const u32 low = ::min(w.r0 + line, w.rows - 1u);
        const u32 high = ::min(w.r0 + line + MI * 16u, w.rows) - 1u;
        all_see = (head_of<K>(p, low) == head_of<K>(p, high) ? query_of<K>(p, low) : 0u) + p.past;
    }
};
