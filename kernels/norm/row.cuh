// Rows along the last axes in registers: T neighbouring threads have one, CHUNKS chunks of V elements each. With V of 8 rows are
// multiples of 8 elements.
#pragma once
#include "../prelude/launch.cuh"
#include "../prelude/math.cuh"

// A thread's part of a row.
template <class K> struct Row {
    const K& k;
    // Number of the row, its first element, how many it has (none beyond the last row).
    u32 row, base, n;
    f32 v[K::CHUNKS][K::V];

    // A tensor has `rows` rows of `count` elements; a thread takes its part of one of them.
    DEV Row(const K& k, u32 count, u32 rows) : k(k) {
        row = blockIdx.x * (K::LANES / K::T) + threadIdx.x / K::T;
        base = row * count;
        n = row < rows ? count : 0u;
    }

    // The first element of chunk c.
    DEV static u32 chunk(u32 c) { return (c * K::T + threadIdx.x % K::T) * K::V; }

    // Loads the elements, `gap` beyond the end.
    DEV void load(f32 gap) {
#pragma unroll
        for (u32 c = 0u; c < K::CHUNKS; c++) {
            const u32 i = chunk(c);
            if constexpr (K::V == 1u) {
                v[c][0] = i < n ? k.x0(base + i) : gap;
            } else if (i < n) {
                const auto r = Run<typename K::Cell>::of(k.bx0 + base + i, 1u);
#pragma unroll
                for (u32 j = 0u; j < K::V; j++) {
                    v[c][j] = k.decoded(r.v[j]);
                }
            } else {
#pragma unroll
                for (u32 j = 0u; j < K::V; j++) {
                    v[c][j] = gap;
                }
            }
        }
    }

    // Stores a chunk that starts at element i of the row.
    DEV void store(u32 i, const f32 (&y)[K::V]) const {
        if constexpr (K::V == 1u) {
            k.emit0(base + i, y[0]);
        } else {
            k.emit0_run(base + i, y);
        }
    }
};

// Numbers of the warps of a block, for each of two reductions.
template <class K> DEV f32* of_warps(u32 round) {
    __shared__ f32 all[2][32];
    return all[round];
}

// The sum over the threads of a row, known to all of them. Reductions of one kernel have different rounds, 0 and 1.
template <class K> DEV f32 row_sum(u32 round, f32 v) {
    if constexpr (K::T <= 32u) {
#pragma unroll
        for (u32 s = K::T / 2u; s > 0u; s /= 2u) {
            v += __shfl_xor_sync(0xffffffffu, v, s);
        }
        return v;
    } else {
#pragma unroll
        for (u32 s = 16u; s > 0u; s /= 2u) {
            v += __shfl_xor_sync(0xffffffffu, v, s);
        }
        f32* const warps = of_warps<K>(round);
        warps[threadIdx.x / 32u] = v;
        __syncthreads();
        f32 all = 0.0f;
#pragma unroll
        for (u32 w = 0u; w < K::T / 32u; w++) {
            all += warps[w];
        }
        return all;
    }
}

// Row-wise maximum: like the sum above, for the greatest number.
template <class K> DEV f32 row_max(u32 round, f32 v) {
    if constexpr (K::T <= 32u) {
#pragma unroll
        for (u32 s = K::T / 2u; s > 0u; s /= 2u) {
            v = kmax(v, __shfl_xor_sync(0xffffffffu, v, s));
        }
        return v;
    } else {
#pragma unroll
        for (u32 s = 16u; s > 0u; s /= 2u) {
            v = kmax(v, __shfl_xor_sync(0xffffffffu, v, s));
        }
        f32* const warps = of_warps<K>(round);
        warps[threadIdx.x / 32u] = v;
        __syncthreads();
        f32 all = warps[0];
#pragma unroll
        for (u32 w = 1u; w < K::T / 32u; w++) {
            all = kmax(all, warps[w]);
        }
        return all;
    }
}
