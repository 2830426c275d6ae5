// Norms of rows along the last axes, whole rows in registers. Scale and bias, if there are any, have an element for each of a
// row.
#pragma once
#include "row.cuh"

// Elements of the scale from i on.
template <class K> DEV void load_scale(const K& k, u32 i, f32 (&scale)[K::V]) {
    if constexpr (K::V == 1u) {
        scale[0] = k.x1(i);
    } else {
        const auto run = Run<typename K::Scale>::of(k.bx1 + i, 1u);
#pragma unroll
        for (u32 j = 0u; j < K::V; j++) {
            scale[j] = k.scale(run.v[j]);
        }
    }
}

// Elements of the bias from i on.
template <class K> DEV void load_bias(const K& k, u32 i, f32 (&bias)[K::V]) {
    if constexpr (K::V == 1u) {
        bias[0] = k.x2(i);
    } else {
        const auto run = Run<typename K::Bias>::of(k.bx2 + i, 1u);
#pragma unroll
        for (u32 j = 0u; j < K::V; j++) {
            bias[j] = k.bias(run.v[j]);
        }
    }
}

// Stores a row times `factor`, scaled and moved.
template <class K> DEV void store_normed(const Row<K>& r, f32 factor) {
    const K& k = r.k;
#pragma unroll
    for (u32 c = 0u; c < K::CHUNKS; c++) {
        const u32 i = r.chunk(c);
        if (i < r.n) {
            f32 scale[K::V], bias[K::V], y[K::V];
            if constexpr (K::HAS_SCALE) {
                load_scale(k, i, scale);
            }
            if constexpr (K::HAS_BIAS) {
                load_bias(k, i, bias);
            }
#pragma unroll
            for (u32 j = 0u; j < K::V; j++) {
                y[j] = r.v[c][j] * factor;
                if constexpr (K::HAS_SCALE) {
                    y[j] = y[j] * scale[j];
                }
                if constexpr (K::HAS_BIAS) {
                    y[j] = y[j] + bias[j];
                }
            }
            r.store(i, y);
        }
    }
}

template <class K> DEV void layer_norm_rows(const K& k) {
    const auto& p = params<RowParams>(k);
    Row<K> r(k);
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
    store_normed(r, factor);
}

template <class K> DEV void rms_norm_rows(const K& k) {
    const auto& p = params<RowParams>(k);
    Row<K> r(k);
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
    store_normed(r, factor);
}
