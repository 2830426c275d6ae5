// Attention in one pass over the keys, with a running maximum and sum for each row. A block takes BM rows of one key head
// (queries of the first query head of its group, then of the second, ...) and BN keys at a time; WARPS_M x WARPS_K warps
// share rows and keys. Where all keys find room in shared memory, ALL_KEYS of them with those that fill up an instruction, they
// are copied at once. Scores are in units of log2(e) once they are scaled.
//
// Words: 0 batch, 1 query heads, 2 key heads, 3 queries, 4 keys, 5 head size, 6 head size of v, 7 keys of the past, 8 length
// of the mask, 9-12 its strides, 13 factor of the mask, 14 scores to powers of 2, 15 cap, 16 scale / cap, 17 bits: may q, k with the
// past, v with the past, and results be copied by 16 bytes, lie the mask's keys side by side, and in aligned pairs;
// 18-21 offset and strides of q over batch, head and position, 22-25 of k, 26-29 of v, 30-33 of the past keys, 34-37 of the
// past values; 38-40 rows of the result from batch to batch, head to head, query to query; 41 parts, 42 keys of a part, 43 offset of the mask,
// 44 the least that a mask adds, 45 the score of keys that a bool mask hides, both in the units of the scores that they meet.

// ---- shape
static constexpr u32 MI = BM / WARPS_M / 16u;
static constexpr u32 WK = BN / WARPS_K;
static constexpr u32 NJ = WK / 8u;
static constexpr u32 THREADS = WARPS_M * WARPS_K * 32u;
static constexpr u32 PITCH_K = DQ * SIZE + 16u;
static constexpr u32 PITCH_V = DV * SIZE + 16u;
// Queries stay in registers if they are few.
static constexpr bool KEPT = MI * DQ * SIZE <= 256u;
static constexpr u32 WIDE = DV + 4u;
// Keys that lie in a stage.
static constexpr u32 LINES = ALL_KEYS > 0u ? ALL_KEYS : BN;
// Can a warp put its results where its queries lay?
static constexpr bool OWN_ROWS = WARPS_K == 1u && !SPLIT && PITCH_V <= PITCH_K;

// ---- flash
DEV static u8* keys_of(u32 stage) { return block_memory + BM * PITCH_K + stage * LINES * (PITCH_K + PITCH_V); }
DEV static u8* values_of(u32 stage) { return keys_of(stage) + LINES * PITCH_K; }

DEV static void queries_at(u32 (&f)[MI][4], u32 row, u32 k) {
    const u32 lane = threadIdx.x % 32u;
#pragma unroll
    for (u32 i = 0u; i < MI; i++) {
        matrices(f[i], block_memory + (row + i * 16u + lane % 16u) * PITCH_K + k * SIZE + lane / 16u * 16u);
    }
}

// s += queries x keys, KEYS of them, of which the first `live` count at an EDGE.
template <bool EDGE, u32 KEYS>
DEV static void score(f32 (&s)[MI][NJ][4], const u32 (&kept)[KEPT ? DQ / STEP : 1u][MI][4], const u8* keys, u32 row, u32 live) {
    const u32 lane = threadIdx.x % 32u;
    const u8* at = keys + (lane / 16u * 8u + lane % 8u) * PITCH_K + lane / 8u % 2u * 16u;
#pragma unroll
    for (u32 k = 0u; k < DQ / STEP; k++) {
        u32 own[MI][4];
        if constexpr (KEPT) {
#pragma unroll
            for (u32 e = 0u; e < MI * 4u; e++) {
                own[e / 4u][e % 4u] = kept[k][e / 4u][e % 4u];
            }
        } else {
            queries_at(own, row, k * STEP);
        }
#pragma unroll
        for (u32 j = 0u; j < KEYS / 8u; j += 2u) {
            if (EDGE && j * 8u >= live) {
                continue;
            }
            u32 f[4];
            matrices(f, at + j * 8u * PITCH_K + k * 32u);
#pragma unroll
            for (u32 i = 0u; i < MI; i++) {
                product(s[i][j], own[i], f[0], f[1]);
                product(s[i][j + 1u], own[i], f[2], f[3]);
            }
        }
    }
}

// Scores of KEYS keys to weights under a new maximum; what there is of sums and results is scaled down to it. Scores that may
// be far from 0 are rounded as the maximum is, so that the weight of the greatest is 1.
template <u32 KEYS>
DEV static void soften(f32 (&s)[MI][NJ][4], f32 (&o)[MI][DV / 8][4], f32 (&top)[MI][2], f32 (&sum)[MI][2], f32 c) {
#pragma unroll
    for (u32 i = 0u; i < MI; i++) {
#pragma unroll
        for (u32 h = 0u; h < 2u; h++) {
            f32 most = cf(0xff800000u);
#pragma unroll
            for (u32 j = 0u; j < KEYS / 8u; j++) {
                most = fmaxf(most, fmaxf(s[i][j][2u * h], s[i][j][2u * h + 1u]));
            }
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
            most = fmaxf(top[i][h], most * c);
            const f32 base = most == cf(0xff800000u) ? 0.0f : most;
            const f32 less = power(top[i][h] - base);
            top[i][h] = most;
            f32 all = 0.0f;
#pragma unroll
            for (u32 j = 0u; j < KEYS / 8u; j++) {
#pragma unroll
                for (u32 r = 2u * h; r < 2u * h + 2u; r++) {
                    s[i][j][r] = power(FAR ? __fmul_rn(s[i][j][r], c) - base : __fmaf_rn(s[i][j][r], c, -base));
                    all += s[i][j][r];
                }
            }
            sum[i][h] = __fmaf_rn(sum[i][h], less, all);
#pragma unroll
            for (u32 n = 0u; n < DV / 8; n++) {
                o[i][n][2u * h] *= less;
                o[i][n][2u * h + 1u] *= less;
            }
        }
    }
}

// Keys of a batch entry that take part.
DEV u32 bound(u32 b) const {
    u32 n = m(4u);
    BOUNDS
    return n;
}

// The head among those of a group, and the query, of a row.
DEV u32 head_of(u32 row) const { return GROUPED ? row / m(3u) : 0u; }
DEV u32 query_of(u32 row) const { return GROUPED ? row % m(3u) : row; }

// Keys, or values, from j0 on: those of the past, which lie at `past`, and then others at `now`.
template <u32 DEPTH>
DEV void load_keys(u8* tile, const CELL* past, u32 past_by, const CELL* now, u32 by, u32 j0, u32 last, u32 size, bool whole) const {
    const u32 before = PAST ? m(7u) : 0u;
    if (j0 >= before) {
        load_rows<LINES, DEPTH>(tile, now + u64(j0 - before) * by, by, last - j0, size, whole);
    } else if (j0 + LINES <= before) {
        load_rows<LINES, DEPTH>(tile, past + u64(j0) * past_by, past_by, last - j0, size, whole);
    } else {
        load_lines<LINES, DEPTH>(tile, past, size, whole, [&](u32 line) -> const CELL* {
            const u32 j = j0 + line;
            const CELL* from = j < before ? past + u64(j) * past_by : now + u64(j - before) * by;
            return j < last ? from : nullptr;
        });
    }
}

// All keys from number AT on, which lie in shared memory, for the rows of a warp from `line` on.
template <u32 AT>
DEV void attend(f32 (&o)[MI][DV / 8][4], f32 (&top)[MI][2], f32 (&sum)[MI][2], const u32 (&kept)[KEPT ? DQ / STEP : 1u][MI][4],
                const u32 (&mask_at)[MI][2], const u32 (&sees)[MI][2], u32 line, u32 all_see, u32 valid, u32 last) const {
    constexpr u32 KEYS = ALL_KEYS - AT < BN ? ALL_KEYS - AT : BN;
    if (!CAUSAL || AT < last) {
        f32 s[MI][NJ][4] = {};
        if constexpr (!LATE) {
            add_mask(s, mask_at, AT, last);
        }
        score<false, KEYS>(s, kept, keys_of(0u) + AT * PITCH_K, line, KEYS);
        if constexpr (LATE) {
            curb(s);
            add_mask(s, mask_at, AT, last);
        }
        if (AT + KEYS > ::min(valid, last) || (CAUSAL && AT + KEYS > all_see + 1u)) {
            exclude<KEYS>(s, sees, AT, valid, last);
        }
        soften<KEYS>(s, o, top, sum, mf(14u));
        weigh<false, KEYS>(o, s, values_of(0u) + AT * PITCH_V, KEYS);
    }
    if constexpr (AT + BN < ALL_KEYS) {
        attend<AT + BN>(o, top, sum, kept, mask_at, sees, line, all_see, valid, last);
    }
}

GROUPS flash THREADS_OF_BLOCK {
    const u32 share = GROUPED ? m(1u) / m(2u) : 1u;
    const u32 rows = share * m(3u);
    const u32 tiles = ::max((rows + BM - 1u) / BM, 1u);
    const u32 parts = m(41u);
    const u32 tile = group % tiles;
    const u32 part = group / tiles % parts;
    const u32 kv = group / tiles / parts % m(2u);
    const u32 b = group / tiles / parts / m(2u);
    const u32 r0 = tile * BM;
    const u32 valid = bound(b);
    u32 last = valid;
    if (CAUSAL) {
        const u32 end = ::min(r0 + BM, rows) - 1u;
        const u32 furthest = head_of(end) == head_of(r0) ? query_of(end) : m(3u) - 1u;
        last = ::min(last, furthest + m(7u) + 1u);
    }
    if (PRESENT && tile == 0u) {
        last = m(4u);
    }
    const u32 first = part * m(42u);
    last = ::min(last, first + m(42u));
    const u32 steps = last > first ? (last - first + BN - 1u) / BN : 0u;

    const u32 flags = m(17u);
    const CELL* q = bx0 + m(18u) + u64(b) * m(19u);
    if constexpr (GROUPED) {
        load_lines<BM, DQ>(block_memory, bx0, m(5u), (flags & 1u) != 0u, [&](u32 line) -> const CELL* {
            const u32 row = r0 + line;
            return row < rows ? q + u64(kv * share + head_of(row)) * m(20u) + u64(query_of(row)) * m(21u) : nullptr;
        });
    } else {
        const CELL* from = q + u64(kv) * m(20u) + u64(r0) * m(21u);
        load_rows<BM, DQ>(block_memory, rows > r0 ? from : bx0, m(21u), rows - r0, m(5u), (flags & 1u) != 0u);
    }
    const CELL* k = bx1 + m(22u) + u64(b) * m(23u) + u64(kv) * m(24u);
    const CELL* v = bx2 + m(26u) + u64(b) * m(27u) + u64(kv) * m(28u);
    PAST_BASES
    auto load = [&](u32 stage, u32 step) {
        const u32 j0 = first + step * BN;
        load_keys<DQ>(keys_of(stage), pk, m(33u), k, m(25u), j0, last, m(5u), (flags & 2u) != 0u);
        load_keys<DV>(values_of(stage), pv, m(37u), v, m(29u), j0, last, m(6u), (flags & 4u) != 0u);
    };
    if constexpr (ALL_KEYS > 0u) {
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
    const u32 line = warp / WARPS_K * MI * 16u;
    const u32 key = warp % WARPS_K * WK;
    const bool active = r0 + line < rows;
    // Offsets into the mask, and the last key that a row sees.
    u32 mask_at[MI][2];
    u32 sees[MI][2];
#pragma unroll
    for (u32 i = 0u; i < MI; i++) {
#pragma unroll
        for (u32 h = 0u; h < 2u; h++) {
            const u32 row = ::min(r0 + line + i * 16u + h * 8u + lane / 4u, rows - 1u);
            mask_at[i][h] = m(43u) + b * m(9u) + (kv * share + head_of(row)) * m(10u) + query_of(row) * m(11u);
            sees[i][h] = query_of(row) + m(7u);
        }
    }
    const u32 low = ::min(r0 + line, rows - 1u);
    const u32 high = ::min(r0 + line + MI * 16u, rows) - 1u;
    const u32 all_see = (head_of(low) == head_of(high) ? query_of(low) : 0u) + m(7u);

    f32 o[MI][DV / 8][4] = {};
    f32 top[MI][2];
    f32 sum[MI][2] = {};
#pragma unroll
    for (u32 i = 0u; i < MI; i++) {
        top[i][0] = top[i][1] = cf(0xff800000u);
    }
    u32 kept[KEPT ? DQ / STEP : 1u][MI][4];
    u32 stage = 0u;
    u32 filled = STAGES - 1u;
    const auto keep_queries = [&] {
#pragma unroll
        for (u32 d = 0u; KEPT && d < DQ / STEP; d++) {
            queries_at(kept[KEPT ? d : 0u], line, d * STEP);
        }
    };
    if constexpr (ALL_KEYS > 0u) {
        commit();
        arrived<0u>();
        __syncthreads();
        if (active) {
            keep_queries();
            attend<0u>(o, top, sum, kept, mask_at, sees, line, all_see, valid, last);
        }
    }
    for (u32 step = 0u; ALL_KEYS == 0u && step < steps; step++) {
        const u32 j0 = first + step * BN + key;
        const bool works = active && j0 < last;
        f32 s[MI][NJ][4] = {};
        if (works && !LATE) {
            add_mask(s, mask_at, j0, last);
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
        KEEP_STAGE
        if (works) {
            const u8* keys = keys_of(stage) + key * PITCH_K;
            const u8* values = values_of(stage) + key * PITCH_V;
            const u32 live = last - j0;
            const bool edge = j0 + WK > ::min(valid, last) || (CAUSAL && j0 + WK > all_see + 1u);
            if (edge) {
                score<true, WK>(s, kept, keys, line, live);
                if constexpr (LATE) {
                    curb(s);
                    add_mask(s, mask_at, j0, last);
                }
                exclude<WK>(s, sees, j0, valid, last);
                soften<WK>(s, o, top, sum, mf(14u));
                weigh<true, WK>(o, s, values, live);
            } else {
                score<false, WK>(s, kept, keys, line, live);
                if constexpr (LATE) {
                    curb(s);
                    add_mask(s, mask_at, j0, last);
                }
                soften<WK>(s, o, top, sum, mf(14u));
                weigh<false, WK>(o, s, values, live);
            }
        }
        stage = stage + 1u == STAGES ? 0u : stage + 1u;
        filled = filled + 1u == STAGES ? 0u : filled + 1u;
    }
    release();
    commit();
    arrived<0u>();
    if constexpr (OWN_ROWS) {
        if (steps == 0u) {
            __syncthreads();
        }
        if (active) {
            own_rows(o, sum, line, b, kv, r0, rows - r0 - line);
        }
    } else {
        __syncthreads();
        gather_rows(o, top, sum, part, b, kv, r0);
    }
}

// Results of a warp's rows, of which there are `left`, by way of the memory of its queries.
DEV void own_rows(const f32 (&o)[MI][DV / 8][4], f32 (&sum)[MI][2], u32 line, u32 b, u32 kv, u32 r0, u32 left) const {
    const u32 lane = threadIdx.x % 32u;
    u8* own = block_memory + line * PITCH_K;
    __syncwarp();
#pragma unroll
    for (u32 i = 0u; i < MI; i++) {
#pragma unroll
        for (u32 h = 0u; h < 2u; h++) {
            sum[i][h] += __shfl_xor_sync(0xffffffffu, sum[i][h], 1);
            sum[i][h] += __shfl_xor_sync(0xffffffffu, sum[i][h], 2);
            const bool good = sum[i][h] > 0.0f;
            const f32 by = 1.0f / sum[i][h];
            const f32 none = m(4u) == 0u ? 0.0f : cf(empty(sum[i][h]));
            u8* to = own + (i * 16u + h * 8u + lane / 4u) * PITCH_K + lane % 4u * 2u * SIZE;
#pragma unroll
            for (u32 n = 0u; n < DV / 8; n++) {
                put_pair(to + n * 8u * SIZE, good ? o[i][n][2u * h] * by : none, good ? o[i][n][2u * h + 1u] * by : none);
            }
        }
    }
    __syncwarp();
    constexpr u32 COPIES = DV / PER_COPY;
    struct alignas(16) Chunk {
        CELL v[PER_COPY];
    };
    const u32 size = m(6u);
    const u32 share = GROUPED ? m(1u) / m(2u) : 1u;
    auto at = [&](u32 row) {
        row += r0 + line;
        return (b * m(38u) + (kv * share + head_of(row)) * m(39u) + query_of(row) * m(40u)) * size;
    };
    if ((m(17u) & 8u) != 0u) {
#pragma unroll
        for (u32 k = 0u; k < MI * COPIES / 2u; k++) {
            const u32 row = (lane + k * 32u) / COPIES;
            const u32 d = (lane + k * 32u) % COPIES * PER_COPY;
            if (row < left && d < size) {
                *reinterpret_cast<Chunk*>(by0 + at(row) + d) = *reinterpret_cast<const Chunk*>(own + row * PITCH_K + d * SIZE);
            }
        }
        return;
    }
    for (u32 row = 0u; row < MI * 16u && row < left; row++) {
        for (u32 d = lane; d < size; d += 32u) {
            by0[at(row) + d] = reinterpret_cast<const CELL*>(own + row * PITCH_K)[d];
        }
    }
}

// Takes keys out that are beyond `valid` or `last`, or later than a row sees: their scores are minus infinity.
template <u32 KEYS>
DEV void exclude(f32 (&s)[MI][NJ][4], const u32 (&sees)[MI][2], u32 j0, u32 valid, u32 last) const {
#pragma unroll
    for (u32 i = 0u; i < MI; i++) {
#pragma unroll
        for (u32 j = 0u; j < KEYS / 8u; j++) {
            if (ALL_KEYS > 0u && !CAUSAL && j0 + j * 8u + 8u <= ::min(valid, last)) {
                continue;
            }
#pragma unroll
            for (u32 r = 0u; r < 4u; r++) {
                const u32 at = j0 + j * 8u + threadIdx.x % 4u * 2u + r % 2u;
                if (at >= ::min(valid, last) || (CAUSAL && at > sees[i][r / 2u])) {
                    s[i][j][r] = cf(0xff800000u);
                }
            }
        }
    }
}

// The rows of all warps: those of several that shared keys become one.
DEV void gather_rows(const f32 (&o)[MI][DV / 8][4], const f32 (&top)[MI][2], f32 (&sum)[MI][2], u32 part, u32 b, u32 kv,
                     u32 r0) const {
    const u32 warp = threadIdx.x / 32u;
    const u32 lane = threadIdx.x % 32u;
    f32* sums = reinterpret_cast<f32*>(block_memory);
    f32* tops = sums + WARPS_K * BM;
    f32* all = tops + WARPS_K * BM;
    const u32 own = warp % WARPS_K * BM + warp / WARPS_K * MI * 16u;
#pragma unroll
    for (u32 i = 0u; i < MI; i++) {
#pragma unroll
        for (u32 h = 0u; h < 2u; h++) {
            sum[i][h] += __shfl_xor_sync(0xffffffffu, sum[i][h], 1);
            sum[i][h] += __shfl_xor_sync(0xffffffffu, sum[i][h], 2);
            const u32 row = own + i * 16u + h * 8u + lane / 4u;
            if (lane % 4u == 0u) {
                sums[row] = sum[i][h];
                tops[row] = top[i][h];
            }
#pragma unroll
            for (u32 n = 0u; n < DV / 8; n++) {
                f32* to = all + row * WIDE + n * 8u + lane % 4u * 2u;
                to[0] = o[i][n][2u * h];
                to[1] = o[i][n][2u * h + 1u];
            }
        }
    }
    __syncthreads();
    const u32 share = GROUPED ? m(1u) / m(2u) : 1u;
    for (u32 e = threadIdx.x; e < BM * (DV / 8u); e += THREADS) {
        const u32 line = e / (DV / 8u);
        const u32 col = e % (DV / 8u) * 8u;
        const u32 row = r0 + line;
        if (row >= share * m(3u) || col >= m(6u)) {
            continue;
        }
        f32 most = cf(0xff800000u);
#pragma unroll
        for (u32 w = 0u; w < WARPS_K; w++) {
            most = fmaxf(most, tops[w * BM + line]);
        }
        const f32 base = most == cf(0xff800000u) ? 0.0f : most;
        f32 n = 0.0f;
        f32 v[8] = {};
#pragma unroll
        for (u32 w = 0u; w < WARPS_K; w++) {
            const f32 by = WARPS_K == 1u ? 1.0f : power(tops[w * BM + line] - base);
            n = __fmaf_rn(sums[w * BM + line], by, n);
#pragma unroll
            for (u32 d = 0u; d < 8u; d++) {
                v[d] = __fmaf_rn(all[(w * BM + line) * WIDE + col + d], by, v[d]);
            }
        }
        const u32 at = b * m(38u) + (kv * share + head_of(row)) * m(39u) + query_of(row) * m(40u);
        put_row(part, at, col, v, most, n);
    }
}

// A result from a sum of weighted values and the sum of weights; rows without any key, or with NaN, give one number.
DEV f32 mean(f32 v, f32 n) const { return n > 0.0f ? v / n : m(4u) == 0u ? 0.0f : cf(empty(n)); }

// Bits of the results of a row whose weights have the sum n: 0 without any key, else NaN.
DEV static u32 empty(f32 n) { return EMPTY; }
