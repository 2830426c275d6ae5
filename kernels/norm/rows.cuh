// Norms of rows along the last axes, whole rows in registers. Scale and bias, if there are any, have an element for each of a
// row.
#pragma once
#include "row.cuh"

struct NormRowParams {
    u32 count;
    u32 rows;
    f32 epsilon;
    u32 constant;
};

// Neighbours in memory, read here and not later: other loads are moved to their use, behind the wait for the kernel in front.
template <class Cell, u32 N> DEV void read_now(const Cell* from, Cell (&to)[N]) {
    static_assert(N * sizeof(Cell) <= 8u || N * sizeof(Cell) % 16u == 0u, "vectors of eight");
    if constexpr (N * sizeof(Cell) >= 16u) {
        union {
            u32 words[N * sizeof(Cell) / 4u];
            Cell cells[N];
        } x;
#pragma unroll
        for (u32 q = 0u; q < N * sizeof(Cell) / 16u; q++) {
            asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(x.words[q * 4u]), "=r"(x.words[q * 4u + 1u]), "=r"(x.words[q * 4u + 2u]), "=r"(x.words[q * 4u + 3u])
                         : "l"(reinterpret_cast<const u8*>(from) + q * 16u)
                         : "memory");
        }
#pragma unroll
        for (u32 j = 0u; j < N; j++) {
            to[j] = x.cells[j];
        }
    } else {
#pragma unroll
        for (u32 j = 0u; j < N; j++) {
            to[j] = static_cast<const volatile Cell*>(from)[j];
        }
    }
}

// Scale and bias of a thread's part of a row.
template <class K> struct Factors {
    typename K::Scale scale[K::HAS_SCALE ? K::CHUNKS : 1u][K::V];
    typename K::Bias bias[K::HAS_BIAS ? K::CHUNKS : 1u][K::V];

    DEV void load(const K& k, u32 count) {
#pragma unroll
        for (u32 c = 0u; c < K::CHUNKS; c++) {
            const u32 i = Row<K>::chunk(c);
            if (i < count) {
                if constexpr (K::HAS_SCALE) {
                    read_now(k.bx1 + i, scale[c]);
                }
                if constexpr (K::HAS_BIAS) {
                    read_now(k.bx2 + i, bias[c]);
                }
            }
        }
    }

    // Loads them, and waits for the kernel in front: before that where they are constant.
    DEV void load_early(const K& k) {
        const auto& p = params<NormRowParams>(k);
        if (p.constant != 0u) {
            load(k, p.count);
        }
        depend();
        if (yields(k)) {
            release();
        }
        if (p.constant == 0u) {
            load(k, p.count);
        }
    }

    // Stores a row times `factor`, scaled and moved.
    DEV void store(const Row<K>& r, f32 factor) const {
        const K& k = r.k;
#pragma unroll
        for (u32 c = 0u; c < K::CHUNKS; c++) {
            const u32 i = r.chunk(c);
            if (i < r.n) {
                f32 y[K::V];
#pragma unroll
                for (u32 j = 0u; j < K::V; j++) {
                    y[j] = r.v[c][j] * factor;
                    if constexpr (K::HAS_SCALE) {
                        y[j] = y[j] * k.scale(scale[c][j]);
                    }
                    if constexpr (K::HAS_BIAS) {
                        y[j] = y[j] + k.bias(bias[c][j]);
                    }
                }
                r.store(i, y);
            }
        }
    }
};

template <class K> DEV void layer_norm_rows(const K& k) {
    const auto& p = params<NormRowParams>(k);
    Factors<K> factors;
    factors.load_early(k);
    Row<K> r(k, p.count, p.rows);
    r.load(0.0f);
    f32 sum = 0.0f;
#pragma unroll
    for (u32 c = 0u; c < K::CHUNKS; c++) {
#pragma unroll
        for (u32 j = 0u; j < K::V; j++) {
            sum += r.v[c][j];
        }
    }
    const f32 count = f32(p.count);
    const f32 mean = row_sum<K>(0u, sum) / count;
    f32 squares = 0.0f;
#pragma unroll
    for (u32 c = 0u; c < K::CHUNKS; c++) {
        if (r.chunk(c) < r.n) {
#pragma unroll
            for (u32 j = 0u; j < K::V; j++) {
                r.v[c][j] = r.v[c][j] - mean;
                mac(squares, r.v[c][j], r.v[c][j]);
            }
        }
    }
    const f32 factor = 1.0f / sqrtf(row_sum<K>(1u, squares) / count + p.epsilon);
    if constexpr (K::STATISTICS) {
        if (r.n > 0u && threadIdx.x % K::T == 0u) {
            k.emit1(r.row, mean);
            k.emit2(r.row, factor);
        }
    }
    factors.store(r, factor);
}

template <class K> DEV void rms_norm_rows(const K& k) {
    const auto& p = params<NormRowParams>(k);
    Factors<K> factors;
    factors.load_early(k);
    Row<K> r(k, p.count, p.rows);
    r.load(0.0f);
    f32 squares = 0.0f;
#pragma unroll
    for (u32 c = 0u; c < K::CHUNKS; c++) {
#pragma unroll
        for (u32 j = 0u; j < K::V; j++) {
            mac(squares, r.v[c][j], r.v[c][j]);
        }
    }
    const f32 factor = 1.0f / sqrtf(row_sum<K>(0u, squares) / f32(p.count) + p.epsilon);
    factors.store(r, factor);
}
