// Reductions of neighbouring axes. ACC is the type of sums, CELL that of elements in memory.

// ---- rows
// The last axes. Words: elements of a row, rows.
__shared__ ACC of_warps[8];

DEV ACC row_part(u32 row, u32 first, u32 step) const {
    const u32 n = m(0u);
    const u32 base = row * n;
    ACC acc = START;
    u32 i = first * 8u;
    for (; i + 8u <= n; i += step * 8u) {
        const auto r = Run<CELL>::of(bx0 + base + i, 1u);
#pragma unroll
        for (u32 j = 0u; j < 8u; j++) {
            const ACC v = ACC(VALUE);
            acc = STEP;
        }
    }
    for (; i < n; i++) {
        const ACC v = ACC(x0(base + i));
        acc = STEP;
    }
    return acc;
}

DEV ACC of_warp(ACC acc) const {
#pragma unroll
    for (u32 s = 16u; s > 0u; s /= 2u) {
        const ACC v = __shfl_xor_sync(0xffffffffu, acc, s);
        acc = MERGE;
    }
    return acc;
}

// Eight rows a block.
GROUPS warps 256 {
    const u32 row = group * 8u + l / 32u;
    if (row >= m(1u)) {
        return;
    }
    const u32 n = m(0u);
    const ACC acc = of_warp(row_part(row, l % 32u, 32u));
    if (l % 32u == 0u) {
        emit0(row, LAST);
    }
}

// A row a block.
GROUPS blocks 256 {
    const u32 n = m(0u);
    ACC acc = of_warp(row_part(group, l, 256u));
    if (l % 32u == 0u) {
        of_warps[l / 32u] = acc;
    }
    __syncthreads();
    if (l == 0u) {
        for (u32 w = 1u; w < 8u; w++) {
            const ACC v = of_warps[w];
            acc = MERGE;
        }
        emit0(group, LAST);
    }
}

// ---- columns
// Axes before the last ones that are kept. Words: reduced elements of a result, columns, threads side by side and the
// logarithm of that, parts, reduced elements of a part, blocks side by side, results.
__shared__ ACC partial[2048];

template <u32 V> DEV void take(ACC (&sums)[V], u32 at) const {
    if constexpr (V == 8u) {
        const auto r = Run<CELL>::of(bx0 + at, 1u);
#pragma unroll
        for (u32 j = 0u; j < V; j++) {
            const ACC v = ACC(VALUE);
            ACC acc = sums[j];
            sums[j] = STEP;
        }
    } else {
        const ACC v = ACC(x0(at));
        ACC acc = sums[0];
        sums[0] = STEP;
    }
}

template <u32 V> DEV void column(u32 group, u32 l) const {
    const u32 n = m(0u);
    const u32 columns = m(1u);
    const u32 wide = m(2u);
    const u32 high = 256u >> m(3u);
    const u32 x = l & (wide - 1u);
    const u32 y = l >> m(3u);
    const u32 part = group / m(6u) % m(4u);
    const u32 outer = group / m(6u) / m(4u);
    const u32 c = (group % m(6u) * wide + x) * V;
    ACC sums[V];
#pragma unroll
    for (u32 j = 0u; j < V; j++) {
        sums[j] = START;
    }
    if (c < columns) {
        const u32 end = min(n, (part + 1u) * m(5u));
#pragma unroll 4
        for (u32 r = part * m(5u) + y; r < end; r += high) {
            take<V>(sums, (outer * n + r) * columns + c);
        }
    }
#pragma unroll
    for (u32 j = 0u; j < V; j++) {
        partial[l * V + j] = sums[j];
    }
    __syncthreads();
    for (u32 h = high / 2u; h > 0u; h /= 2u) {
        if (y < h) {
#pragma unroll
            for (u32 j = 0u; j < V; j++) {
                ACC acc = partial[l * V + j];
                const ACC v = partial[(l + h * wide) * V + j];
                partial[l * V + j] = MERGE;
            }
        }
        __syncthreads();
    }
    if (y > 0u || c >= columns) {
        return;
    }
    if (m(4u) > 1u) {
#pragma unroll
        for (u32 j = 0u; j < V; j++) {
            reinterpret_cast<ACC*>(scratch)[part * m(7u) + outer * columns + c + j] = partial[l * V + j];
        }
        return;
    }
    REG done[V];
#pragma unroll
    for (u32 j = 0u; j < V; j++) {
        const ACC acc = partial[l * V + j];
        done[j] = LAST;
    }
    if constexpr (V == 8u) {
        emit0_run(outer * columns + c, done);
    } else {
        emit0(outer * columns + c, done[0]);
    }
}

GROUPS columns_of_8 256 {
    column<8u>(group, l);
}

GROUPS columns_of_1 256 {
    column<1u>(group, l);
}

// What the parts give together.
THREADS together {
    const u32 n = m(0u);
    ACC acc = START;
    for (u32 k = 0u; k < m(4u); k++) {
        const ACC v = reinterpret_cast<const ACC*>(scratch)[k * m(7u) + t];
        acc = MERGE;
    }
    emit0(t, LAST);
}
