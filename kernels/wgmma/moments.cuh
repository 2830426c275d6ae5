// Products of normalized rows: moments of the rows that lie in stages, and what becomes of sums by them. `K::NORMED`, there is such a
// product; `K::CENTERED`, `k.column_sums()` has the sums of all columns of the weights. `K::NormCell` is the type of elements, with their values
// by `norm_value`; `epsilon` is what is added to the variance.
#pragma once
#include "../prelude/launch.cuh"
#include "../prelude/storage.cuh"

// Mean and factor by which sums of a row are normalized.
struct RowNorm {
    f32 mean, factor;
};

template <class K> DEV RowNorm norm_of(const K& k, f32 sum, f32 squares, f32 depth) {
    if constexpr (K::NORMED) {
        const f32 mean = K::CENTERED ? sum / depth : 0.0f;
        return RowNorm{mean, 1.0f / sqrtf(fmaxf(squares / depth - mean * mean, 0.0f) + k.epsilon())};
    } else {
        return RowNorm{};
    }
}

// Moments of ROWS rows that 128 threads add up: eight neighbouring threads share a row, and each has a row of every 16.
template <class K, u32 ROWS, bool NORMED = K::NORMED> struct RowMoments {
    static constexpr u32 OWN = (ROWS + 15u) / 16u;
    f32 sum[OWN] = {};
    f32 squares[OWN] = {};

    DEV static u32 row(u32 i) { return threadIdx.x % 128u / 8u + i * 16u; }
    DEV static bool inside(u32 i) { return ROWS % 16u == 0u || row(i) < ROWS; }

    // Adds 128 bytes of every row, from `at` on. The order within a row is any.
    DEV void add(const K& k, const u8* at) {
        typedef typename K::NormCell Cell;
#pragma unroll
        for (u32 i = 0u; i < OWN; i++) {
            if (inside(i)) {
                const auto run = Run<Cell>::template next<true>(reinterpret_cast<const Cell*>(at + row(i) * 128u + threadIdx.x % 8u * 16u));
#pragma unroll
                for (u32 j = 0u; j < 8u; j++) {
                    const f32 x = k.norm_value(run.v[j]);
                    if constexpr (K::CENTERED) {
                        sum[i] += x;
                    }
                    squares[i] = fmaf(x, x, squares[i]);
                }
            }
        }
        // A lane that frees the stage does so for the others.
        __syncwarp();
    }

    // Writes the two moments of every row, one row `pitch` words behind the other.
    DEV void put(f32* to, u32 pitch) {
#pragma unroll
        for (u32 i = 0u; i < OWN; i++) {
#pragma unroll
            for (u32 step = 1u; step < 8u; step *= 2u) {
                sum[i] += __shfl_xor_sync(0xffffffffu, sum[i], step);
                squares[i] += __shfl_xor_sync(0xffffffffu, squares[i], step);
            }
            if (threadIdx.x % 8u == 0u && inside(i)) {
                to[row(i) * pitch] = sum[i];
                to[row(i) * pitch + 1u] = squares[i];
            }
        }
    }
};

template <class K, u32 ROWS> struct RowMoments<K, ROWS, false> {
    DEV void add(const K&, const u8*) {}
    DEV void put(f32*, u32) {}
};

// The sums of eight neighbouring columns of the weights.
template <class K, bool CENTERED = K::NORMED && K::CENTERED> struct ColumnSums {
    Pack<f32> low, high;

    DEV static bool even(const K& k) { return (u64(k.column_sums()) & 15u) == 0u; }
    DEV static ColumnSums read(const K& k, u32 col) { return ColumnSums{Pack<f32>::of(k.column_sums() + col), Pack<f32>::of(k.column_sums() + col + 4u)}; }

    // Eight sums of a row, normalized.
    template <class Sum> DEV void apply(Sum* v, const RowNorm& norm) const {
#pragma unroll
        for (u32 i = 0u; i < 8u; i++) {
            v[i] = norm.factor * (v[i] - norm.mean * (i < 4u ? low.v[i % 4u] : high.v[i % 4u]));
        }
    }

    // One sum of column `col`.
    template <class Sum> DEV static Sum applied(const K& k, Sum x, const RowNorm& norm, u32 col) {
        return norm.factor * (x - norm.mean * k.column_sums()[col]);
    }
};

template <class K> struct ColumnSums<K, false> {
    DEV static bool even(const K&) { return true; }
    DEV static ColumnSums read(const K&, u32) { return ColumnSums{}; }

    template <class Sum> DEV void apply(Sum* v, const RowNorm& norm) const {
        if constexpr (K::NORMED) {
#pragma unroll
            for (u32 i = 0u; i < 8u; i++) {
                v[i] *= norm.factor;
            }
        }
    }

    template <class Sum> DEV static Sum applied(const K&, Sum x, const RowNorm& norm, u32) { return K::NORMED ? x * norm.factor : x; }
};
