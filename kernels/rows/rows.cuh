// Operators on rows that lie along the last axes, whole rows in registers: T neighbouring threads have one, CHUNKS chunks of V
// elements each. With V of 8 rows are multiples of 8 elements.
// Words: elements of a row, rows, epsilon.

DEV u32 row_at(u32 group, u32 l) const { return group * (LANES / T) + l / T; }

// The first element of a thread's k-th chunk.
DEV u32 chunk(u32 k, u32 l) const { return (k * T + l % T) * V; }

// ---- segment
DEV f32 row_sum(u32, f32 v) const {
#pragma unroll
    for (u32 s = T / 2u; s > 0u; s /= 2u) {
        v += __shfl_xor_sync(0xffffffffu, v, s);
    }
    return v;
}

DEV f32 row_max(u32, f32 v) const {
#pragma unroll
    for (u32 s = T / 2u; s > 0u; s /= 2u) {
        v = kmax(v, __shfl_xor_sync(0xffffffffu, v, s));
    }
    return v;
}

// ---- block
__shared__ f32 of_warps[2][32];

DEV f32 row_sum(u32 round, f32 v) const {
#pragma unroll
    for (u32 s = 16u; s > 0u; s /= 2u) {
        v += __shfl_xor_sync(0xffffffffu, v, s);
    }
    of_warps[round][threadIdx.x / 32u] = v;
    __syncthreads();
    f32 all = 0.0f;
#pragma unroll
    for (u32 w = 0u; w < T / 32u; w++) {
        all += of_warps[round][w];
    }
    return all;
}

DEV f32 row_max(u32 round, f32 v) const {
#pragma unroll
    for (u32 s = 16u; s > 0u; s /= 2u) {
        v = kmax(v, __shfl_xor_sync(0xffffffffu, v, s));
    }
    of_warps[round][threadIdx.x / 32u] = v;
    __syncthreads();
    f32 all = of_warps[round][0];
#pragma unroll
    for (u32 w = 1u; w < T / 32u; w++) {
        all = kmax(all, of_warps[round][w]);
    }
    return all;
}

// ---- load_run
// A thread's part of a row, `gap` beyond its end.
DEV void load(f32 (&v)[CHUNKS][V], u32 base, u32 n, u32 l, f32 gap) const {
#pragma unroll
    for (u32 k = 0u; k < CHUNKS; k++) {
        const u32 i = chunk(k, l);
        if (i < n) {
            const auto r = Run<CELL>::of(bx0 + base + i, 1u);
#pragma unroll
            for (u32 j = 0u; j < V; j++) {
                v[k][j] = VALUE;
            }
        } else {
#pragma unroll
            for (u32 j = 0u; j < V; j++) {
                v[k][j] = gap;
            }
        }
    }
}

// ---- load_one
DEV void load(f32 (&v)[CHUNKS][V], u32 base, u32 n, u32 l, f32 gap) const {
#pragma unroll
    for (u32 k = 0u; k < CHUNKS; k++) {
        const u32 i = chunk(k, l);
        v[k][0] = i < n ? x0(base + i) : gap;
    }
}

// ---- softmax
GROUPS rows THREADS_OF_BLOCK {
    const u32 row = row_at(group, l);
    const u32 base = row * m(0u);
    const u32 n = row < m(1u) ? m(0u) : 0u;
    f32 v[CHUNKS][V];
    load(v, base, n, l, cf(0xff800000u));
    f32 top = cf(0xff800000u);
#pragma unroll
    for (u32 k = 0u; k < CHUNKS; k++) {
#pragma unroll
        for (u32 j = 0u; j < V; j++) {
            top = kmax(top, v[k][j]);
        }
    }
    top = row_max(0u, top);
    f32 sum = 0.0f;
#pragma unroll
    for (u32 k = 0u; k < CHUNKS; k++) {
        if (chunk(k, l) < n) {
#pragma unroll
            for (u32 j = 0u; j < V; j++) {
                v[k][j] = v[k][j] - top;
                const f32 e = kexp(v[k][j]);
                sum += e;
                KEEP
            }
        }
    }
    sum = row_sum(1u, sum);
    LAST
#pragma unroll
    for (u32 k = 0u; k < CHUNKS; k++) {
        const u32 i = chunk(k, l);
        if (i < n) {
            f32 y[V];
#pragma unroll
            for (u32 j = 0u; j < V; j++) {
                y[j] = RESULT;
            }
            PUT
        }
    }
}

// ---- layer_norm
GROUPS rows THREADS_OF_BLOCK {
    const u32 row = row_at(group, l);
    const u32 base = row * m(0u);
    const u32 n = row < m(1u) ? m(0u) : 0u;
    const f32 count = f32(m(0u));
    f32 v[CHUNKS][V];
    load(v, base, n, l, 0.0f);
    f32 sum = 0.0f;
#pragma unroll
    for (u32 k = 0u; k < CHUNKS; k++) {
#pragma unroll
        for (u32 j = 0u; j < V; j++) {
            sum += v[k][j];
        }
    }
    const f32 mean = row_sum(0u, sum) / count;
    f32 squares = 0.0f;
#pragma unroll
    for (u32 k = 0u; k < CHUNKS; k++) {
        if (chunk(k, l) < n) {
#pragma unroll
            for (u32 j = 0u; j < V; j++) {
                v[k][j] = v[k][j] - mean;
                mac(squares, v[k][j], v[k][j]);
            }
        }
    }
    const f32 factor = 1.0f / sqrtf(row_sum(1u, squares) / count + mf(2u));
    STATISTICS
    STORE
}

// ---- rms_norm
GROUPS rows THREADS_OF_BLOCK {
    const u32 row = row_at(group, l);
    const u32 base = row * m(0u);
    const u32 n = row < m(1u) ? m(0u) : 0u;
    f32 v[CHUNKS][V];
    load(v, base, n, l, 0.0f);
    f32 squares = 0.0f;
#pragma unroll
    for (u32 k = 0u; k < CHUNKS; k++) {
#pragma unroll
        for (u32 j = 0u; j < V; j++) {
            mac(squares, v[k][j], v[k][j]);
        }
    }
    const f32 factor = 1.0f / sqrtf(row_sum(0u, squares) / f32(m(0u)) + mf(2u));
    STORE
}

// ---- store
#pragma unroll
    for (u32 k = 0u; k < CHUNKS; k++) {
        const u32 i = chunk(k, l);
        if (i < n) {
            PARAMETERS
            f32 y[V];
#pragma unroll
            for (u32 j = 0u; j < V; j++) {
                y[j] = v[k][j] * factor;
                AFFINE
            }
            PUT
        }
    }
