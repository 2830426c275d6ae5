// Products of few rows by weights that stay codes: a block reads the codes of four outputs, a word of each a thread at a time.
#pragma once
#include "../prelude/launch.cuh"
#include "../prelude/storage.cuh"

struct CodesParams {
    u32 rows;
    u32 columns;
    u32 depth;
    u32 length;
    u32 scales;
};

// Elements of rows under the codes of a word.
template <class K> DEV void codes_rows(const K& k, const CodesParams& p, u32 row, u32 at, f32 (&x)[K::ROWS][K::CODES]) {
#pragma unroll
    for (u32 r = 0u; r < K::ROWS; r++) {
        const u32 from = ::min(row + r, p.rows - 1u) * p.depth + at;
#pragma unroll
        for (u32 q = 0u; q < K::CODES; q++) {
            x[r][q] = k.x0(from + q);
        }
    }
}

template <class K> DEV void codes_few(const K& k) {
    __shared__ f32 parts[K::ROWS * 4u][K::SHARERS / 32u];
    const auto& p = params<CodesParams>(k);
    const u32 across = (p.columns + 3u) / 4u;
    const u32 column = blockIdx.x % across * 4u;
    const u32 row = blockIdx.x / across * K::ROWS;
    const u32* words = reinterpret_cast<const u32*>(k.bx1);
    f32 sums[K::ROWS][4] = {};
    for (u32 w = threadIdx.x; w < p.length; w += K::SHARERS) {
        u32 codes[4];
#pragma unroll
        for (u32 c = 0u; c < 4u; c++) {
            codes[c] = words[::min(column + c, p.columns - 1u) * p.length + w];
        }
        f32 x[K::ROWS][K::CODES];
        codes_rows(k, p, row, w * K::CODES, x);
#pragma unroll
        for (u32 c = 0u; c < 4u; c++) {
            const u32 part = ::min(column + c, p.columns - 1u) / K::ACROSS * p.scales + w * K::CODES / K::ALONG;
            const i32 zero = k.zero_at(part);
            f32 run[K::ROWS] = {};
#pragma unroll
            for (u32 q = 0u; q < K::CODES; q++) {
                const f32 code = f32(k.code_of(codes[c], q) - zero);
#pragma unroll
                for (u32 r = 0u; r < K::ROWS; r++) {
                    run[r] += code * x[r][q];
                }
            }
            const f32 scale = k.x2(part);
#pragma unroll
            for (u32 r = 0u; r < K::ROWS; r++) {
                sums[r][c] += run[r] * scale;
            }
        }
    }
#pragma unroll
    for (u32 r = 0u; r < K::ROWS; r++) {
#pragma unroll
        for (u32 c = 0u; c < 4u; c++) {
            f32 sum = sums[r][c];
#pragma unroll
            for (u32 step = 16u; step > 0u; step /= 2u) {
                sum += __shfl_xor_sync(0xffffffffu, sum, step);
            }
            if (threadIdx.x % 32u == 0u) {
                parts[r * 4u + c][threadIdx.x / 32u] = sum;
            }
        }
    }
    __syncthreads();
    const u32 r = threadIdx.x / 4u;
    const u32 c = threadIdx.x % 4u;
    if (r < K::ROWS && row + r < p.rows && column + c < p.columns) {
        f32 sum = 0.0f;
#pragma unroll
        for (u32 i = 0u; i < K::SHARERS / 32u; i++) {
            sum += parts[threadIdx.x][i];
        }
        k.emit0((row + r) * p.columns + column + c, sum);
    }
}
