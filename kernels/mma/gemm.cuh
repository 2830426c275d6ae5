// Matrix products. Words as in generic/matmul.cuh. SPLIT blocks share the depth of a tile where it is more than 1; their
// sums lie in scratch memory and are added in order.

// ---- gemm
DEV u32 batch_offset(u32 batch, u32 which) const {
    const u32 rank = m(7u);
    u32 rest = batch;
    u32 at = 0u;
    for (u32 d = rank; d > 0u; d--) {
        const u32 n = m(7u + d);
        at += (rest % n) * m(7u + which * rank + d);
        rest = rest / n;
    }
    return at;
}

// A tile along K of LINES lines, `step` elements from one to the next.
template <u32 LINES, class T>
DEV static void load_along(u8* tile, const T* from, u32 line0, u32 lines, u32 step, u32 k0, u32 depth, bool whole) {
    if (whole) {
        constexpr u32 COPIES = KB / 16u;
        for (u32 e = threadIdx.x; e < LINES * COPIES; e += THREADS) {
            const u32 line = e / COPIES;
            const u32 k = k0 + e % COPIES * PER_COPY;
            const bool inside = line0 + line < lines && k < depth;
            copy16(tile + line * PITCH + e % COPIES * 16u, from + (inside ? (line0 + line) * step + k : 0u), inside);
        }
    } else {
        for (u32 e = threadIdx.x; e < LINES * BK; e += THREADS) {
            const u32 line = e / BK;
            const u32 k = k0 + e % BK;
            const bool inside = line0 + line < lines && k < depth;
            reinterpret_cast<T*>(tile + line * PITCH)[e % BK] = inside ? from[(line0 + line) * step + k] : T(0);
        }
    }
}

// A tile across K, `step` elements from one k to the next.
template <u32 LINES, class T>
DEV static void load_across(u8* tile, const T* from, u32 line0, u32 lines, u32 step, u32 k0, u32 depth, bool whole) {
    constexpr u32 WIDE = LINES * SIZE + SKEW;
    if (whole) {
        constexpr u32 COPIES = LINES / PER_COPY;
        for (u32 e = threadIdx.x; e < BK * COPIES; e += THREADS) {
            const u32 k = k0 + e / COPIES;
            const u32 line = line0 + e % COPIES * PER_COPY;
            const bool inside = line < lines && k < depth;
            copy16(tile + e / COPIES * WIDE + e % COPIES * 16u, from + (inside ? k * step + line : 0u), inside);
        }
    } else {
        for (u32 e = threadIdx.x; e < BK * LINES; e += THREADS) {
            const u32 k = k0 + e / LINES;
            const u32 line = line0 + e % LINES;
            const bool inside = line < lines && k < depth;
            reinterpret_cast<T*>(tile + e / LINES * WIDE)[e % LINES] = inside ? from[k * step + line] : T(0);
        }
    }
}

GROUPS gemm THREADS_OF_BLOCK {
    const u32 rows = m(0u);
    const u32 cols = m(1u);
    const u32 depth = m(2u);
    const u32 across = (cols + BN - 1u) / BN;
    const u32 down = (rows + BM - 1u) / BM;
    const u32 part = group % SPLIT;
    const u32 batch = group / SPLIT / across / down;
    u32 ti, tj;
    place_tile(group / SPLIT % (across * down), down, across, ti, tj);
    const u32 i0 = ti * BM;
    const u32 j0 = tj * BN;
    const u32 pa = batch_offset(batch, 1u);
    const u32 pb = batch_offset(batch, 2u);
    const u32 step_a = m(ACROSS_A ? 4u : 3u);
    const u32 step_b = m(ACROSS_B ? 5u : 6u);
    const bool whole_a = (step_a | pa | (ACROSS_A ? rows : depth)) % PER_COPY == 0u;
    const bool whole_b = (step_b | pb | (ACROSS_B ? cols : depth)) % PER_COPY == 0u;
    const u32 all = (depth + BK - 1u) / BK;
    const u32 share = (all + SPLIT - 1u) / SPLIT;
    const u32 first = ::min(part * share, all);
    ACC sum[WM / 16][WN / 8][4] = {};
    accumulate(sum, ::min(share, all - first), [&](u32 stage, u32 step) {
        const u32 k0 = (first + step) * BK;
        if constexpr (ACROSS_A) {
            load_across<BM>(stage_a(stage), bx0 + pa, i0, rows, step_a, k0, depth, whole_a);
        } else {
            load_along<BM>(stage_a(stage), bx0 + pa, i0, rows, step_a, k0, depth, whole_a);
        }
        if constexpr (ACROSS_B) {
            load_across<BN>(stage_b(stage), bx1 + pb, j0, cols, step_b, k0, depth, whole_b);
        } else {
            load_along<BN>(stage_b(stage), bx1 + pb, j0, cols, step_b, k0, depth, whole_b);
        }
    });
    const bool runs = cols % 8u == 0u;
    spread(sum, [&](u32 row, u32 col, const ACC* v) {
        row += i0;
        col += j0;
        if (row >= rows || col >= cols) {
            return;
        }
        put_sums(part, (batch * rows + row) * cols + col, v, cols - col, runs);
    });
}

// ---- whole
// Eight sums of a row, `left` of them inside.
DEV void put_sums(u32 part, u32 at, const ACC* v, u32 left, bool runs) const {
    if (runs) {
        emit0_run(at, v);
        return;
    }
    for (u32 q = 0u; q < 8u && q < left; q++) {
        emit0(at + q, v[q]);
    }
}

// ---- split
DEV void put_sums(u32 part, u32 at, const ACC* v, u32 left, bool runs) const {
    ACC* to = reinterpret_cast<ACC*>(scratch) + u64(part) * m(8u + 3u * m(7u)) + at;
    for (u32 q = 0u; q < 8u && q < left; q++) {
        to[q] = v[q];
    }
}

DEV ACC compute0(u32 at) const {
    const ACC* from = reinterpret_cast<const ACC*>(scratch) + at;
    ACC sum = ACC(0);
    for (u32 part = 0u; part < SPLIT; part++) {
        sum += from[u64(part) * extent];
    }
    return sum;
}
