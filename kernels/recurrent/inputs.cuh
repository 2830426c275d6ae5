// The product of all inputs of a recurrence with their weights, f32 in scratch memory: rows as those of x, columns by direction, gate,
// unit.
#pragma once
#include "../matmul/mma.cuh"
#include "states.cuh"

// By tiles of `mma.sync`.
template <class K> DEV void inputs_mma(const K& k) {
    typedef typename K::Tile Tile;
    const auto& p = params<RecurrentChipParams>(k);
    const Matrices m{p.rows, p.columns, p.depth, p.depth, 1u, 1u, p.depth};
    const TilePlace place = place_of<Tile>(blockIdx.x, 1u, p.rows, p.columns);
    const bool runs = p.columns % 8u == 0u;
    typename MmaTiles<Tile>::Sums sum = {};
    multiply_tile<Tile, 1u, ANY_LINES, ANY_LINES>(sum, m, k.bx0, k.bx1, 0u, 0u, place);
    MmaTiles<Tile>::spread(sum, [&](u32 row, u32 col, const f32* v) {
        row += place.row;
        col += place.column;
        if (row >= p.rows || col >= p.columns) {
            return;
        }
        const u32 at = row * p.columns + col;
        f32* to = reinterpret_cast<f32*>(k.scratch) + at;
        if (at == 0u) {
            clear_counters(k, p);
        }
        if (runs) {
            Pack<f32> a, b;
#pragma unroll
            for (u32 q = 0u; q < 4u; q++) {
                a.v[q] = v[q];
                b.v[q] = v[q + 4u];
            }
            a.put(to);
            b.put(to + 4u);
            return;
        }
        for (u32 q = 0u; q < 8u && q < p.columns - col; q++) {
            to[q] = v[q];
        }
    });
}

// In f32, by tiles of 64 x 64 of 256 threads.
template <class K> DEV void inputs_f32(const K& k) {
    __shared__ f32 tile_a[1088];
    __shared__ f32 tile_b[1088];
    const auto& p = params<RecurrentChipParams>(k);
    const u32 across = (p.columns + 63u) / 64u;
    const u32 j0 = blockIdx.x % across * 64u;
    const u32 i0 = blockIdx.x / across * 64u;
    const u32 ti = threadIdx.x / 16u;
    const u32 tj = threadIdx.x % 16u;
    f32 sum[4][4] = {};
    for (u32 k0 = 0u; k0 < p.depth; k0 += 16u) {
        for (u32 q = 0u; q < 4u; q++) {
            const u32 e = q * 256u + threadIdx.x;
            // Neighbouring threads read neighbouring elements of a row of x.
            const u32 ka = k0 + e % 16u;
            const u32 ia = i0 + e / 16u;
            tile_a[e % 16u * 68u + e / 16u] = ka < p.depth && ia < p.rows ? k.x0(ia * p.depth + ka) : 0.0f;
            const u32 kb = k0 + e / 64u;
            const u32 jb = j0 + e % 64u;
            tile_b[e / 64u * 68u + e % 64u] = kb < p.depth && jb < p.columns ? k.x1(kb + jb * p.depth) : 0.0f;
        }
        __syncthreads();
        for (u32 i = 0u; i < 16u; i++) {
            const u32 a = i * 68u + ti * 4u;
            const u32 b = i * 68u + tj * 4u;
            for (u32 di = 0u; di < 4u; di++) {
                for (u32 dj = 0u; dj < 4u; dj++) {
                    mac(sum[di][dj], tile_a[a + di], tile_b[b + dj]);
                }
            }
        }
        __syncthreads();
    }
    for (u32 di = 0u; di < 4u; di++) {
        for (u32 dj = 0u; dj < 4u; dj++) {
            const u32 i = i0 + ti * 4u + di;
            const u32 j = j0 + tj * 4u + dj;
            if (i < p.rows && j < p.columns) {
                const u32 at = i * p.columns + j;
                if (at == 0u) {
                    clear_counters(k, p);
                }
                reinterpret_cast<f32*>(k.scratch)[at] = sum[di][dj];
            }
        }
    }
}
