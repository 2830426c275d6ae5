// What becomes of scores and sums: masks, caps, results of a whole row or of a part of its keys, and keys and values that go
// to a cache.

// ---- whole
// Eight components of row `at` of the result.
DEV void put_row(u32, u32 at, u32 col, f32* v, f32, f32 n) const {
    const u32 size = m(6u);
#pragma unroll
    for (u32 d = 0u; d < 8u; d++) {
        v[d] = mean(v[d], n);
    }
    if (size % 8u == 0u) {
        emit0_run(at * size + col, v);
        return;
    }
    for (u32 d = 0u; d < 8u && col + d < size; d++) {
        emit0(at * size + col + d, v[d]);
    }
}

// ---- split
// Parts of rows go to scratch memory: values, then maximum and sum.
DEV void put_row(u32 part, u32 at, u32 col, const f32* v, f32 most, f32 n) const {
    const u32 size = m(6u);
    const u64 rows = u64(m(0u)) * m(1u) * m(3u);
    f32* to = reinterpret_cast<f32*>(scratch) + (part * rows + at) * size + col;
    for (u32 d = 0u; d < 8u && col + d < size; d++) {
        to[d] = v[d];
    }
    if (col == 0u) {
        f32* pair = reinterpret_cast<f32*>(scratch) + m(41u) * rows * size + (part * rows + at) * 2u;
        pair[0] = most;
        pair[1] = n;
    }
}

DEV f32 compute0(u32 at) const {
    const u32 size = m(6u);
    const u32 parts = m(41u);
    const u64 rows = u64(m(0u)) * m(1u) * m(3u);
    const f32* values = reinterpret_cast<const f32*>(scratch);
    const f32* pairs = values + parts * rows * size + at / size * 2u;
    f32 most = cf(0xff800000u);
    for (u32 p = 0u; p < parts; p++) {
        most = fmaxf(most, pairs[p * rows * 2u]);
    }
    const f32 base = most == cf(0xff800000u) ? 0.0f : most;
    f32 n = 0.0f;
    f32 v = 0.0f;
    for (u32 p = 0u; p < parts; p++) {
        const f32 by = power(pairs[p * rows * 2u] - base);
        n = __fmaf_rn(pairs[p * rows * 2u + 1u], by, n);
        v = __fmaf_rn(values[p * rows * size + at], by, v);
    }
    return mean(v, n);
}

// ---- mask
// Applies the mask in the units of the scores: scores begin with it, unless it comes LATE.
DEV void add_mask(f32 (&s)[MI][NJ][4], const u32 (&mask_at)[MI][2], u32 j0, u32 last) const {
    const u32 end = ::min(last, m(8u));
    const u32 col = j0 + threadIdx.x % 4u * 2u;
    const bool inside = j0 + WK <= end && (m(17u) & 16u) != 0u;
    const bool pairs = inside && (m(17u) & 32u) != 0u;
    struct alignas(2 * sizeof(MASK_CELL)) Pair {
        MASK_CELL a, b;
    };
#pragma unroll
    for (u32 i = 0u; i < MI; i++) {
#pragma unroll
        for (u32 h = 0u; h < 2u; h++) {
            const MASK_CELL* row = bx3 + mask_at[i][h] + (inside ? col : 0u);
            if (pairs) {
#pragma unroll
                for (u32 j = 0u; j < NJ; j++) {
                    const Pair p = *reinterpret_cast<const Pair*>(row + j * 8u);
                    put(s[i][j][2u * h], p.a);
                    put(s[i][j][2u * h + 1u], p.b);
                }
            } else if (inside) {
#pragma unroll
                for (u32 j = 0u; j < NJ; j++) {
                    put(s[i][j][2u * h], row[j * 8u]);
                    put(s[i][j][2u * h + 1u], row[j * 8u + 1u]);
                }
            } else {
#pragma unroll
                for (u32 j = 0u; j < NJ; j++) {
#pragma unroll
                    for (u32 r = 0u; r < 2u; r++) {
                        const u32 at = col + j * 8u + r;
                        if (at < end) {
                            put(s[i][j][2u * h + r], row[u64(at) * m(12u)]);
                        }
                    }
                }
            }
        }
    }
}

// ---- no_mask
DEV void add_mask(f32 (&)[MI][NJ][4], const u32 (&)[MI][2], u32, u32) const {}

// ---- float_mask
// Finite numbers stay finite in the units of powers of 2, so that rows of them alone are means.
DEV f32 added(MASK_CELL x) const {
    const f32 by = MASK_OF(x) * mf(13u);
    return MASK_WIDE && by < mf(44u) && MASK_OF(x) != cf(0xff800000u) ? mf(44u) : by;
}

DEV void put(f32& s, MASK_CELL x) const { s = LATE ? s + added(x) : added(x); }

// ---- bool_mask
DEV void put(f32& s, MASK_CELL x) const {
    s = x == 0 ? HIDDEN : (LATE ? s : 0.0f);
}

// ---- cap
DEV void curb(f32 (&s)[MI][NJ][4]) const {
    const f32 cap = mf(15u);
    const f32 by = mf(16u);
#pragma unroll
    for (u32 i = 0u; i < MI; i++) {
#pragma unroll
        for (u32 j = 0u; j < NJ; j++) {
#pragma unroll
            for (u32 r = 0u; r < 4u; r++) {
                s[i][j][r] = cap * tanhf(s[i][j][r] * by);
            }
        }
    }
}

// ---- no_cap
DEV void curb(f32 (&)[MI][NJ][4]) const {}

// ---- present
// Writes the keys and values of a stage to the cache that grows.
DEV void keep(const u8* keys, const u8* values, u32 j0, u32 last, u32 b, u32 kv) const {
    const u64 at = (u64(b) * m(2u) + kv) * m(4u) + j0;
    keep_lines<DQ>(by1 + at * m(5u), keys, m(5u), last - j0);
    keep_lines<DV>(by2 + at * m(6u), values, m(6u), last - j0);
}

template <u32 DEPTH> DEV static void keep_lines(CELL* to, const u8* tile, u32 size, u32 lines) {
    constexpr u32 FROM = DEPTH * SIZE + 16u;
    constexpr u32 COPIES = DEPTH / PER_COPY;
    struct alignas(16) Chunk {
        CELL v[PER_COPY];
    };
    if (size % PER_COPY == 0u) {
        for (u32 e = threadIdx.x; e < BN * COPIES; e += THREADS) {
            const u32 line = e / COPIES;
            const u32 d = e % COPIES * PER_COPY;
            if (line < lines && d < size) {
                *reinterpret_cast<Chunk*>(to + u64(line) * size + d) =
                    *reinterpret_cast<const Chunk*>(tile + line * FROM + d * SIZE);
            }
        }
        return;
    }
    for (u32 e = threadIdx.x; e < BN * size; e += THREADS) {
        if (e / size < lines) {
            to[e] = reinterpret_cast<const CELL*>(tile + e / size * FROM)[e % size];
        }
    }
}
