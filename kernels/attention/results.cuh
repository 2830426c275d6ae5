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

// Eight components of row `at` of the result, from column `col` on, from sums of weighted values and the sum of weights.
template <class K> DEV void put_means(const K& k, const FlashParams& p, u32 at, u32 col, f32* v, f32 n) {
    const u32 size = p.value_size;
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

// Eight components of row `at`, of a part of the keys. Parts of rows go to scratch memory: values, then maximum and sum.
template <class K> DEV void put_row(const K& k, const FlashParams& p, u32 part, u32 at, u32 col, f32* v, f32 most, f32 n) {
    if constexpr (K::SPLIT) {
        const u32 size = p.value_size;
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
        put_means(k, p, at, col, v, n);
    }
}

// Sums of eight components of a row over some of the keys, by powers of two above the greatest score.
struct Weighed {
    f32 v[8];
    f32 most, n;

    // Adds sums over other keys.
    DEV void add(const Weighed& other) {
        const f32 now = fmaxf(most, other.most);
        const f32 base = now == cf(MINUS_INFINITY) ? 0.0f : now;
        const f32 by = power_of_two(most - base);
        const f32 of_other = power_of_two(other.most - base);
        n = __fmaf_rn(n, by, other.n * of_other);
#pragma unroll
        for (u32 d = 0u; d < 8u; d++) {
            v[d] = __fmaf_rn(v[d], by, other.v[d] * of_other);
        }
        most = now;
    }
};

// Rows of the result from their parts: threads that share eight components of a row read MERGED_AT_ONCE parts each at a time, and then
// add up what they have found.
constexpr u32 MERGE_THREADS = 128u;
constexpr u32 MERGED_AT_ONCE = 4u;
template <class K> DEV void merge_parts(const K& k) {
    __shared__ Weighed all[MERGE_THREADS];
    const auto& p = params<FlashParams>(k);
    const u32 size = p.value_size;
    const u32 eights = ::max((size + 7u) / 8u, 1u);
    const u32 sharing = ::min(MERGE_THREADS / eights, p.parts);
    const u32 own = threadIdx.x / eights;
    const u64 rows = u64(p.batch) * p.heads * p.queries;
    const u32 row = blockIdx.x * (MERGE_THREADS / eights / sharing) + own / sharing;
    const u32 first = own % sharing;
    const u32 col = threadIdx.x % eights * 8u;
    const bool active = own < MERGE_THREADS / eights / sharing * sharing && row < rows;
    const Weighed none = {{}, cf(MINUS_INFINITY), 0.0f};
    Weighed sum = none;
    const f32* values = reinterpret_cast<const f32*>(k.scratch) + u64(row) * size + col;
    const f32* pairs = reinterpret_cast<const f32*>(k.scratch) + p.parts * rows * size + row * 2u;
    for (u32 part = first; active && part < p.parts; part += sharing * MERGED_AT_ONCE) {
        Weighed next[MERGED_AT_ONCE];
#pragma unroll
        for (u32 i = 0u; i < MERGED_AT_ONCE; i++) {
            const u64 at = part + i * sharing;
            next[i] = none;
            if (at < p.parts) {
                next[i].most = pairs[at * rows * 2u];
                next[i].n = pairs[at * rows * 2u + 1u];
                const f32* from = values + at * rows * size;
                if (size % 8u == 0u) {
                    const Pack<f32> low = Pack<f32>::of(from);
                    const Pack<f32> high = Pack<f32>::of(from + 4);
#pragma unroll
                    for (u32 d = 0u; d < 8u; d++) {
                        next[i].v[d] = d < 4u ? low.v[d % 4u] : high.v[d % 4u];
                    }
                } else {
#pragma unroll
                    for (u32 d = 0u; d < 8u; d++) {
                        next[i].v[d] = col + d < size ? from[d] : 0.0f;
                    }
                }
            }
        }
#pragma unroll
        for (u32 i = 0u; i < MERGED_AT_ONCE; i++) {
            sum.add(next[i]);
        }
    }
    all[threadIdx.x] = sum;
    __syncthreads();
    if (active && first == 0u) {
        for (u32 i = 1u; i < sharing; i++) {
            sum.add(all[threadIdx.x + i * eights]);
        }
        put_means(k, p, row, col, sum.v, sum.n);
    }
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
