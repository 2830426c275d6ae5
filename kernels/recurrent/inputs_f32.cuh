// The product of all inputs of a recurrence with their weights in f32, in scratch memory as in inputs.cuh: tiles of 32 x 32 by 256
// threads. Recurrences have few rows and columns, and hence few tiles: four parts of a block share each piece of 64 of the depth, and
// the next piece is on its way meanwhile.
#pragma once
#include "states.cuh"

template <class K> DEV void inputs_f32(const K& k) {
    constexpr u32 SIDE = 32u;
    constexpr u32 DEPTH = 64u;
    // Fours of eight neighbouring lines are in different banks.
    constexpr u32 PITCH = DEPTH + 4u;
    constexpr u32 EACH = SIDE * DEPTH / 256u;
    __shared__ __align__(16) f32 tile[2u * SIDE * PITCH];
    const auto& p = params<RecurrentChipParams>(k);
    const u32 l = threadIdx.x;
    const u32 across = (p.columns + SIDE - 1u) / SIDE;
    const u32 j0 = blockIdx.x % across * SIDE;
    const u32 i0 = blockIdx.x / across * SIDE;
    // A thread has rows ti + 8 i, columns tj + 8 j, and 16 of each 64 of the depth.
    const u32 part = l / 64u;
    const u32 ti = l % 64u / 8u;
    const u32 tj = l % 8u;
    f32 next[2][EACH];
    const auto fetch = [&](u32 k0) {
        const u32 at = k0 + l % DEPTH;
#pragma unroll
        for (u32 q = 0u; q < EACH; q++) {
            const u32 line = q * (256u / DEPTH) + l / DEPTH;
            next[0][q] = at < p.depth && i0 + line < p.rows ? k.x0((i0 + line) * p.depth + at) : 0.0f;
            next[1][q] = at < p.depth && j0 + line < p.columns ? k.x1((j0 + line) * p.depth + at) : 0.0f;
        }
    };
    const auto four = [&](u32 line, u32 at) { return *reinterpret_cast<const float4*>(tile + line * PITCH + at); };
    f32 sum[4][4] = {};
    fetch(0u);
    for (u32 k0 = 0u; k0 < p.depth; k0 += DEPTH) {
#pragma unroll
        for (u32 q = 0u; q < EACH; q++) {
            const u32 line = q * (256u / DEPTH) + l / DEPTH;
            tile[line * PITCH + l % DEPTH] = next[0][q];
            tile[(SIDE + line) * PITCH + l % DEPTH] = next[1][q];
        }
        __syncthreads();
        fetch(k0 + DEPTH);
        // The rest of the depth may end before a part of it begins.
        for (u32 at = part * 16u; at < part * 16u + 16u && k0 + at < p.depth; at += 4u) {
            float4 a[4], b[4];
#pragma unroll
            for (u32 i = 0u; i < 4u; i++) {
                a[i] = four(ti + i * 8u, at);
                b[i] = four(SIDE + tj + i * 8u, at);
            }
#pragma unroll
            for (u32 i = 0u; i < 4u; i++) {
#pragma unroll
                for (u32 j = 0u; j < 4u; j++) {
                    mac(sum[i][j], a[i].x, b[j].x);
                    mac(sum[i][j], a[i].y, b[j].y);
                    mac(sum[i][j], a[i].z, b[j].z);
                    mac(sum[i][j], a[i].w, b[j].w);
                }
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (u32 i = 0u; i < 4u; i++) {
#pragma unroll
        for (u32 j = 0u; j < 4u; j++) {
            tile[(part * SIDE + ti + i * 8u) * SIDE + tj + j * 8u] = sum[i][j];
        }
    }
    __syncthreads();
    for (u32 e = l; e < SIDE * SIDE; e += 256u) {
        const u32 row = i0 + e / SIDE;
        const u32 col = j0 + e % SIDE;
        if (row < p.rows && col < p.columns) {
            const u32 at = row * p.columns + col;
            if (at == 0u) {
                clear_counters(k, p);
            }
            const f32* of = tile + e;
            reinterpret_cast<f32*>(k.scratch)[at] =
                (of[0] + of[SIDE * SIDE]) + (of[2u * SIDE * SIDE] + of[3u * SIDE * SIDE]);
        }
    }
}
