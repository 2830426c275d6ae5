// Results of attention: of a warp's own rows, of rows that several warps share, or of parts of the keys, which another kernel merges;
// and keys and values that go to a cache.
#pragma once
#include "instructions.cuh"

// Eight results of a row, of which there are `left` in it, from shared memory to element `at` and those behind it.
template <class K> DEV void put_cells(const K& k, const FlashParams& p, const u8* from, u32 at, u32 left) {
    typedef typename K::Cell Cell;
    const Cell* const cells = reinterpret_cast<const Cell*>(from);
    if (p.value_size % 8u == 0u) {
        const Run<Cell> all = Run<Cell>::template next<true>(cells);
        if constexpr (K::FUSED) {
            f32 v[8];
#pragma unroll
            for (u32 d = 0u; d < 8u; d++) {
                v[d] = k.wide(all.v[d]);
            }
            k.emit0_run(at, v);
        } else {
            all.put(k.by0 + at);
        }
        return;
    }
    for (u32 d = 0u; d < 8u && d < left; d++) {
        if constexpr (K::FUSED) {
            k.emit0(at + d, k.wide(cells[d]));
        } else {
            k.by0[at + d] = cells[d];
        }
    }
}

// Bits of the results of a row whose weights have the sum n: 0 without any key, else NaN.
template <class K> DEV u32 empty(f32 n) { return K::ZERO_NAN || (K::ZERO_EMPTY && n == 0.0f) ? 0u : 0x7fc00000u; }

// A result from a sum of weighted values and the sum of weights; rows without any key, or with NaN, give one number.
template <class K> DEV f32 mean(const FlashParams& p, f32 v, f32 n) {
    return n > 0.0f ? v / n : p.keys == 0u ? 0.0f : cf(empty<K>(n));
}

// Eight components of row `at` of the result. Parts of rows go to scratch memory: values, then maximum and sum.
template <class K> DEV void put_row(const K& k, const FlashParams& p, u32 part, u32 at, u32 col, f32* v, f32 most, f32 n) {
    const u32 size = p.value_size;
    if constexpr (K::SPLIT) {
        const u64 rows = u64(p.batch) * p.heads * p.queries;
        f32* to = reinterpret_cast<f32*>(k.scratch) + (part * rows + at) * size + col;
        for (u32 d = 0u; d < 8u && col + d < size; d++) {
            to[d] = v[d];
        }
        if (col == 0u) {
            f32* pair = reinterpret_cast<f32*>(k.scratch) + p.parts * rows * size + (part * rows + at) * 2u;
            pair[0] = most;
            pair[1] = n;
        }
    } else {
#pragma unroll
        for (u32 d = 0u; d < 8u; d++) {
            v[d] = mean<K>(p, v[d], n);
        }
        if (size % 8u == 0u) {
            k.emit0_run(at * size + col, v);
            return;
        }
        for (u32 d = 0u; d < 8u && col + d < size; d++) {
            k.emit0(at * size + col + d, v[d]);
        }
    }
}

// An element of the result from the parts of its row.
template <class K> DEV f32 merged(const K& k, u32 at) {
    const auto& p = params<FlashParams>(k);
    const u32 size = p.value_size;
    const u32 parts = p.parts;
    const u64 rows = u64(p.batch) * p.heads * p.queries;
    const f32* values = reinterpret_cast<const f32*>(k.scratch);
    const f32* pairs = values + parts * rows * size + at / size * 2u;
    f32 most = cf(MINUS_INFINITY);
    for (u32 part = 0u; part < parts; part++) {
        most = fmaxf(most, pairs[part * rows * 2u]);
    }
    const f32 base = most == cf(MINUS_INFINITY) ? 0.0f : most;
    f32 n = 0.0f;
    f32 v = 0.0f;
    for (u32 part = 0u; part < parts; part++) {
        const f32 by = power_of_two(pairs[part * rows * 2u] - base);
        n = __fmaf_rn(pairs[part * rows * 2u + 1u], by, n);
        v = __fmaf_rn(values[part * rows * size + at], by, v);
    }
    return mean<K>(p, v, n);
}

// The sums of weights of a warp's rows, each of which four threads share.
template <class K> DEV void add_up(typename Shape<K>::OfRows& sum, u32 i, u32 h) {
    sum[i][h] += __shfl_xor_sync(0xffffffffu, sum[i][h], 1);
    sum[i][h] += __shfl_xor_sync(0xffffffffu, sum[i][h], 2);
}

// Results of a warp's rows, of which there are `left`, by way of the memory of its queries.
template <class K>
DEV void own_rows(const K& k, const FlashParams& p, const typename Shape<K>::Sums& o, typename Shape<K>::OfRows& sum, u32 line, u32 b, u32 kv,
                  u32 r0, u32 left) {
    typedef Shape<K> T;
    typedef typename K::Cell Cell;
    const u32 lane = threadIdx.x % 32u;
    u8* own = block_memory + line * T::PITCH_K;
    __syncwarp();
#pragma unroll
    for (u32 i = 0u; i < T::MI; i++) {
#pragma unroll
        for (u32 h = 0u; h < 2u; h++) {
            add_up<K>(sum, i, h);
            const bool good = sum[i][h] > 0.0f;
            const f32 by = 1.0f / sum[i][h];
            const f32 none = p.keys == 0u ? 0.0f : cf(empty<K>(sum[i][h]));
            u8* to = own + (i * 16u + h * 8u + lane / 4u) * T::PITCH_K + lane % 4u * 2u * T::SIZE;
#pragma unroll
            for (u32 n = 0u; n < K::DV / 8; n++) {
                const f32 low = good ? o[i][n][2u * h] * by : none;
                const f32 high = good ? o[i][n][2u * h + 1u] * by : none;
                put_pair<K>(to + n * 8u * T::SIZE, low, high);
            }
        }
    }
    __syncwarp();
    const u32 size = p.value_size;
    auto at = [&](u32 row) { return result_row<K>(p, b, kv, row + r0 + line) * size; };
    if constexpr (K::FUSED) {
        constexpr u32 EIGHTS = K::DV / 8u;
#pragma unroll
        for (u32 e = 0u; e < T::MI * EIGHTS / 2u; e++) {
            const u32 row = (lane + e * 32u) / EIGHTS;
            const u32 d = (lane + e * 32u) % EIGHTS * 8u;
            if (row < left && d < size) {
                put_cells(k, p, own + row * T::PITCH_K + d * T::SIZE, at(row) + d, size - d);
            }
        }
        return;
    }
    constexpr u32 COPIES = K::DV / T::PER_COPY;
    struct alignas(16) Chunk {
        Cell v[T::PER_COPY];
    };
    if ((p.whole & WHOLE_Y) != 0u) {
#pragma unroll
        for (u32 e = 0u; e < T::MI * COPIES / 2u; e++) {
            const u32 row = (lane + e * 32u) / COPIES;
            const u32 d = (lane + e * 32u) % COPIES * T::PER_COPY;
            if (row < left && d < size) {
                *reinterpret_cast<Chunk*>(k.by0 + at(row) + d) = *reinterpret_cast<const Chunk*>(own + row * T::PITCH_K + d * T::SIZE);
            }
        }
        return;
    }
    for (u32 row = 0u; row < T::MI * 16u && row < left; row++) {
        for (u32 d = lane; d < size; d += 32u) {
            k.by0[at(row) + d] = reinterpret_cast<const Cell*>(own + row * T::PITCH_K)[d];
        }
    }
}

// Writes a warp's rows of results, from row `first` on, through `own`: 128 bytes of all lines one after the other, swizzled.
template <class K>
DEV void boxed_rows(const K& k, const FlashParams& p, u8* own, const typename Shape<K>::Sums& o, typename Shape<K>::OfRows& sum, u32 b, u32 kv,
                    u32 first, u32 left) {
    typedef Shape<K> T;
    typedef typename K::Cell Cell;
    const u32 lane = threadIdx.x % 32u;
    const auto chunk = [&](u32 row, u32 c) { return own + c / 8u * (K::BM * 128u) + row * 128u + (c % 8u ^ row % 8u) * 16u; };
#pragma unroll
    for (u32 h = 0u; h < 2u; h++) {
        add_up<K>(sum, 0u, h);
        const bool good = sum[0][h] > 0.0f;
        const f32 by = 1.0f / sum[0][h];
        const f32 none = p.keys == 0u ? 0.0f : cf(empty<K>(sum[0][h]));
#pragma unroll
        for (u32 n = 0u; n < K::DV / 8u; n++) {
            const f32 low = good ? o[0][n][2u * h] * by : none;
            const f32 high = good ? o[0][n][2u * h + 1u] * by : none;
            put_pair<K>(chunk(h * 8u + lane / 4u, n) + lane % 4u * 4u, low, high);
        }
    }
    __syncwarp();
    constexpr u32 COPIES = K::DV / 8u;
    const u32 size = p.value_size;
#pragma unroll
    for (u32 e = 0u; e < COPIES / 2u; e++) {
        const u32 row = (lane + e * 32u) / COPIES;
        const u32 c = (lane + e * 32u) % COPIES;
        if (row < left && c * 8u < size) {
            put_cells(k, p, chunk(row, c), result_row<K>(p, b, kv, first + row) * size + c * 8u, size - c * 8u);
        }
    }
}

// The rows of all warps: those of several that shared keys become one.
template <class K>
DEV void gather_rows(const K& k, const FlashParams& p, const typename Shape<K>::Sums& o, const typename Shape<K>::OfRows& top,
                     typename Shape<K>::OfRows& sum, u32 part, u32 b, u32 kv, u32 r0) {
    typedef Shape<K> T;
    const u32 warp = threadIdx.x / 32u;
    const u32 lane = threadIdx.x % 32u;
    f32* sums = reinterpret_cast<f32*>(block_memory);
    f32* tops = sums + K::WARPS_K * K::BM;
    f32* all = tops + K::WARPS_K * K::BM;
    const u32 own = warp % K::WARPS_K * K::BM + warp / K::WARPS_K * T::MI * 16u;
#pragma unroll
    for (u32 i = 0u; i < T::MI; i++) {
#pragma unroll
        for (u32 h = 0u; h < 2u; h++) {
            add_up<K>(sum, i, h);
            const u32 row = own + i * 16u + h * 8u + lane / 4u;
            if (lane % 4u == 0u) {
                sums[row] = sum[i][h];
                tops[row] = top[i][h];
            }
#pragma unroll
            for (u32 n = 0u; n < K::DV / 8; n++) {
                f32* to = all + row * T::WIDE + n * 8u + lane % 4u * 2u;
                to[0] = o[i][n][2u * h];
                to[1] = o[i][n][2u * h + 1u];
            }
        }
    }
    T::meet();
    for (u32 e = threadIdx.x; e < K::BM * (K::DV / 8u); e += T::THREADS) {
        const u32 line = e / (K::DV / 8u);
        const u32 col = e % (K::DV / 8u) * 8u;
        const u32 row = r0 + line;
        if (row >= group_size<K>(p) * p.queries || col >= p.value_size) {
            continue;
        }
        f32 most = cf(MINUS_INFINITY);
#pragma unroll
        for (u32 w = 0u; w < K::WARPS_K; w++) {
            most = fmaxf(most, tops[w * K::BM + line]);
        }
        const f32 base = most == cf(MINUS_INFINITY) ? 0.0f : most;
        f32 n = 0.0f;
        f32 v[8] = {};
#pragma unroll
        for (u32 w = 0u; w < K::WARPS_K; w++) {
            const f32 by = K::WARPS_K == 1u ? 1.0f : power_of_two(tops[w * K::BM + line] - base);
            n = __fmaf_rn(sums[w * K::BM + line], by, n);
#pragma unroll
            for (u32 d = 0u; d < 8u; d++) {
                v[d] = __fmaf_rn(all[(w * K::BM + line) * T::WIDE + col + d], by, v[d]);
            }
        }
        put_row(k, p, part, result_row<K>(p, b, kv, row), col, v, most, n);
    }
}

// Lines of a stage to a cache.
template <class K, u32 DEPTH> DEV void keep_lines(typename K::Cell* to, const u8* tile, u32 size, u32 lines) {
    typedef Shape<K> T;
    typedef typename K::Cell Cell;
    constexpr u32 FROM = DEPTH * T::SIZE + 16u;
    constexpr u32 COPIES = DEPTH / T::PER_COPY;
    struct alignas(16) Chunk {
        Cell v[T::PER_COPY];
    };
    if (size % T::PER_COPY == 0u) {
        // Unrolled, its addresses take registers from the products.
#pragma unroll 1
        for (u32 e = threadIdx.x; e < K::BN * COPIES; e += T::THREADS) {
            const u32 line = e / COPIES;
            const u32 d = e % COPIES * T::PER_COPY;
            if (line < lines && d < size) {
                *reinterpret_cast<Chunk*>(to + u64(line) * size + d) =
                    *reinterpret_cast<const Chunk*>(tile + line * FROM + d * T::SIZE);
            }
        }
        return;
    }
    for (u32 e = threadIdx.x; e < K::BN * size; e += T::THREADS) {
        if (e / size < lines) {
            to[e] = reinterpret_cast<const Cell*>(tile + e / size * FROM)[e % size];
        }
    }
}

// Writes the keys and values of a stage to the cache that grows.
template <class K>
DEV void keep(const K& k, const FlashParams& p, const u8* keys, const u8* values, u32 j0, u32 last, u32 b, u32 kv) {
    const u64 at = (u64(b) * p.kv_heads + kv) * p.keys + j0;
    keep_lines<K, K::DQ>(k.by1 + at * p.size, keys, p.size, last - j0);
    keep_lines<K, K::DV>(k.by2 + at * p.value_size, values, p.value_size, last - j0);
}
