// Matrix products. Words as in generic/matmul.cuh. SPLIT blocks share the depth of a tile where it is more than 1; their
// sums lie in scratch memory and are added in order. WHOLE tells that lines of both operands are known to be whole vectors of
// 16 bytes; else words tell whether they are.

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

// Copies a tile of LINES lines by vectors, stage after stage: a thread keeps to its places. `step` elements lie from one line
// to the next, or ACROSS from one k to the next.
template <u32 LINES, bool ACROSS, class T> struct Copies {
    static constexpr u32 SIDE = ACROSS ? LINES / PER_COPY : KB / 16u;
    static constexpr u32 ROWS = ACROSS ? BK : LINES;
    static constexpr u32 WIDE = ACROSS ? LINES * SIZE + SKEW : PITCH;
    static constexpr u32 BELOW = THREADS / SIDE;
    static constexpr u32 COUNT = (ROWS + BELOW - 1u) / BELOW;
    const T* from;
    u32 step, inside;

    DEV void start(const T* base, u32 line0, u32 lines, u32 own_step, u32 k0) {
        const u32 row = threadIdx.x / SIDE;
        const u32 col = threadIdx.x % SIDE * PER_COPY;
        step = own_step;
        from = base + (ACROSS ? (k0 + row) * step + line0 + col : (line0 + row) * step + k0 + col);
        inside = 0u;
#pragma unroll
        for (u32 q = 0u; q < COUNT; q++) {
            inside |= u32(line0 + (ACROSS ? col : row + q * BELOW) < lines) << q;
        }
    }

    // Part `part` of `parts` of the next stage, of which `left` of the depth are there. Nothing is read where a line is not.
    DEV void load(u8* tile, u32 left, u32 part, u32 parts) {
        const u32 row = threadIdx.x / SIDE;
        const u32 col = threadIdx.x % SIDE * PER_COPY;
        u8* const to = tile + row * WIDE + threadIdx.x % SIDE * 16u;
        const u32 live = ACROSS || col < left ? inside : 0u;
        const u32 depth = live != 0u ? left : 0u;
#pragma unroll
        for (u32 q = COUNT * part / parts; q < COUNT * (part + 1u) / parts; q++) {
            const u32 down = row + q * BELOW;
            if (ROWS % BELOW == 0u || down < ROWS) {
                copy16(to + q * BELOW * WIDE, from + u64(q * BELOW) * step, ACROSS ? down < depth : (live >> q & 1u) != 0u);
            }
        }
        if (part + 1u == parts) {
            from += ACROSS ? BK * step : BK;
        }
    }
};

// The same element by element, of lines that do not start at multiples of 16 bytes: the stage from element `k0` on.
template <u32 LINES, bool ACROSS, class T>
DEV static void load_elements(u8* tile, const T* from, u32 line0, u32 lines, u32 step, u32 k0, u32 depth) {
    constexpr u32 WIDE = ACROSS ? LINES * SIZE + SKEW : PITCH;
    constexpr u32 SIDE = ACROSS ? LINES : BK;
    for (u32 e = threadIdx.x; e < LINES * BK; e += THREADS) {
        const u32 k = k0 + (ACROSS ? e / SIDE : e % SIDE);
        const u32 line = line0 + (ACROSS ? e % SIDE : e / SIDE);
        const bool inside = line < lines && k < depth;
        const u32 at = ACROSS ? k * step + line : line * step + k;
        reinterpret_cast<T*>(tile + e / SIDE * WIDE)[e % SIDE] = inside ? from[at] : T(0);
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
    Copies<BM, ACROSS_A, CELL_A> copies_a;
    Copies<BN, ACROSS_B, CELL_B> copies_b;
    copies_a.start(bx0 + pa, i0, rows, step_a, first * BK);
    copies_b.start(bx1 + pb, j0, cols, step_b, first * BK);
    const u32 steps = ::min(share, all - first);
    ACC sum[WM / 16][WN / 8][4] = {};
    accumulate(sum, steps, [&](u32 stage, u32 step, u32 part) {
        const u32 k0 = (first + step) * BK;
        if constexpr (WHOLE) {
            const u32 left = step < steps ? depth - k0 : 0u;
            copies_a.load(stage_a(stage), left, part, PARTS);
            copies_b.load(stage_b(stage), left, part, PARTS);
            return;
        }
        if (part != 0u || step >= steps) {
            return;
        }
        if (whole_a) {
            copies_a.load(stage_a(stage), depth - k0, 0u, 1u);
        } else {
            load_elements<BM, ACROSS_A>(stage_a(stage), bx0 + pa, i0, rows, step_a, k0, depth);
        }
        if (whole_b) {
            copies_b.load(stage_b(stage), depth - k0, 0u, 1u);
        } else {
            load_elements<BN, ACROSS_B>(stage_b(stage), bx1 + pb, j0, cols, step_b, k0, depth);
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
