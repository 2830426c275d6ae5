// Products of very few rows by weights, ROWS in all. Weights that lie along the depth: a warp computes OUTPUTS columns, and its lanes
// share the depth. Weights that lie across it: a block computes OUTPUTS columns, a lane a vector of them, and all others share the
// depth. Weights are read once; those of the first AHEAD parts of the depth before what the kernel waits for is done.
#pragma once
#include "../prelude/launch.cuh"
#include "read_here.cuh"

struct RowsMatmulParams {
    u32 columns;
    u32 depth;
    u32 constant;
};

// 16 bytes of elements.
template <class Cell> struct alignas(16) RowsVector {
    static constexpr u32 COUNT = 16u / u32(sizeof(Cell));
    Cell v[COUNT];
};

template <class K> DEV void rows(const K& k) {
    typedef typename K::Cell Cell;
    typedef RowsVector<Cell> Vector;
    constexpr u32 COUNT = Vector::COUNT;
    constexpr u32 PART = 32u * COUNT;
    const auto& p = params<RowsMatmulParams>(k);
    const u32 lane = threadIdx.x % 32u;
    const u32 column = (blockIdx.x * K::WARPS + threadIdx.x / 32u) * K::OUTPUTS;
    release();
    // Columns that are not there are the last one.
    const Cell* weights[K::OUTPUTS];
#pragma unroll
    for (u32 o = 0u; o < K::OUTPUTS; o++) {
        weights[o] = k.bx1 + u64(::min(column + o, p.columns - 1u)) * p.depth + lane * COUNT;
    }
    Vector own[K::AHEAD][K::OUTPUTS];
    const auto read = [&](u32 at) {
#pragma unroll
        for (u32 a = 0u; a < K::AHEAD; a++) {
#pragma unroll
            for (u32 o = 0u; o < K::OUTPUTS; o++) {
                const u32 from = at + a * PART;
                own[a][o] = from + lane * COUNT < p.depth ? bitcast<Vector>(read_here(weights[o] + from)) : Vector{};
            }
        }
    };
    if (p.constant != 0u) {
        read(0u);
    }
    depend();
    if (p.constant == 0u) {
        read(0u);
    }
    f32 sum[K::ROWS][K::OUTPUTS] = {};
    for (u32 at = 0u; at < p.depth; at += K::AHEAD * PART) {
#pragma unroll
        for (u32 a = 0u; a < K::AHEAD; a++) {
            const u32 from = at + a * PART + lane * COUNT;
            Vector x[K::ROWS];
#pragma unroll
            for (u32 m = 0u; m < K::ROWS; m++) {
                x[m] = from < p.depth ? *reinterpret_cast<const Vector*>(k.bx0 + u64(m) * p.depth + from) : Vector{};
            }
#pragma unroll
            for (u32 q = 0u; q < COUNT; q++) {
#pragma unroll
                for (u32 o = 0u; o < K::OUTPUTS; o++) {
                    const f32 w = k.wide(own[a][o].v[q]);
#pragma unroll
                    for (u32 m = 0u; m < K::ROWS; m++) {
                        sum[m][o] = __fmaf_rn(k.wide(x[m].v[q]), w, sum[m][o]);
                    }
                }
            }
        }
        if (at + K::AHEAD * PART < p.depth) {
            read(at + K::AHEAD * PART);
        }
    }
#pragma unroll
    for (u32 m = 0u; m < K::ROWS; m++) {
#pragma unroll
        for (u32 o = 0u; o < K::OUTPUTS; o++) {
#pragma unroll
            for (u32 by = 16u; by > 0u; by /= 2u) {
                sum[m][o] += __shfl_xor_sync(0xffffffffu, sum[m][o], by);
            }
            if (lane == m * K::OUTPUTS + o && column + o < p.columns) {
                k.emit0(m * p.columns + column + o, sum[m][o]);
            }
        }
    }
}

template <class K> DEV void rows_across(const K& k) {
    typedef typename K::Cell Cell;
    typedef RowsVector<Cell> Vector;
    constexpr u32 COUNT = Vector::COUNT;
    // Lanes beside each other, and lines of weights of a warp, and of a block.
    constexpr u32 BESIDE = K::OUTPUTS / COUNT;
    constexpr u32 LINES = 32u / BESIDE;
    constexpr u32 PART = LINES * K::WARPS;
    __shared__ f32 sums[K::WARPS][K::ROWS][K::OUTPUTS];
    const auto& p = params<RowsMatmulParams>(k);
    const u32 lane = threadIdx.x % 32u;
    const u32 warp = threadIdx.x / 32u;
    const u32 column = blockIdx.x * K::OUTPUTS + lane % BESIDE * COUNT;
    const u32 line = warp * LINES + lane / BESIDE;
    release();
    const Cell* weights = k.bx1 + (column < p.columns ? column : 0u);
    Vector own[K::AHEAD];
    const auto read = [&](u32 at) {
#pragma unroll
        for (u32 a = 0u; a < K::AHEAD; a++) {
            const u32 from = at + a * PART + line;
            own[a] = from < p.depth ? bitcast<Vector>(read_here(weights + u64(from) * p.columns)) : Vector{};
        }
    };
    if (p.constant != 0u) {
        read(0u);
    }
    depend();
    if (p.constant == 0u) {
        read(0u);
    }
    f32 sum[K::ROWS][COUNT] = {};
    for (u32 at = 0u; at < p.depth; at += K::AHEAD * PART) {
#pragma unroll
        for (u32 a = 0u; a < K::AHEAD; a++) {
            const u32 from = at + a * PART + line;
            f32 x[K::ROWS];
#pragma unroll
            for (u32 m = 0u; m < K::ROWS; m++) {
                x[m] = from < p.depth ? k.wide(k.bx0[m * p.depth + from]) : 0.0f;
            }
#pragma unroll
            for (u32 q = 0u; q < COUNT; q++) {
                const f32 w = k.wide(own[a].v[q]);
#pragma unroll
                for (u32 m = 0u; m < K::ROWS; m++) {
                    sum[m][q] = __fmaf_rn(x[m], w, sum[m][q]);
                }
            }
        }
        if (at + K::AHEAD * PART < p.depth) {
            read(at + K::AHEAD * PART);
        }
    }
#pragma unroll
    for (u32 m = 0u; m < K::ROWS; m++) {
#pragma unroll
        for (u32 q = 0u; q < COUNT; q++) {
#pragma unroll
            for (u32 by = BESIDE; by < 32u; by *= 2u) {
                sum[m][q] += __shfl_xor_sync(0xffffffffu, sum[m][q], by);
            }
            if (lane < BESIDE) {
                sums[warp][m][lane * COUNT + q] = sum[m][q];
            }
        }
    }
    __syncthreads();
    for (u32 e = threadIdx.x; e < K::ROWS * K::OUTPUTS; e += K::WARPS * 32u) {
        const u32 m = e / K::OUTPUTS;
        const u32 at = blockIdx.x * K::OUTPUTS + e % K::OUTPUTS;
        f32 all = 0.0f;
#pragma unroll
        for (u32 w = 0u; w < K::WARPS; w++) {
            all += sums[w][m][e % K::OUTPUTS];
        }
        if (at < p.columns) {
            k.emit0(m * p.columns + at, all);
        }
    }
}
