// Matrix products: one thread an element, or tiles of 64 x 64.
#pragma once
#include "../prelude/launch.cuh"
#include "../reduce/side.cuh"

struct MatmulParams {
    u32 m;
    u32 n;
    u32 k;
    u32 a_row;
    u32 a_column;
    u32 b_row;
    u32 b_column;
    List batch;
    List a_batch;
    List b_batch;
};

template <class K> DEV typename K::Value matmul_naive(const K& k, u32 at) {
    const auto& p = params<MatmulParams>(k);
    const u32 j = at % p.n;
    const u32 i = at / p.n % p.m;
    const u32 batch = at / p.n / p.m;
    u32 pa = strided(k, p.batch, p.a_batch, batch) + i * p.a_row;
    u32 pb = strided(k, p.batch, p.b_batch, batch) + j * p.b_column;
    typename K::Value sum = K::ZERO;
    for (u32 t = 0u; t < p.k; t++) {
        mac(sum, k.x0(pa), k.factor(pb));
        pa += p.a_column;
        pb += p.b_row;
    }
    return sum;
}

// Blocks of 256 threads, each of which sums 4 x 4 results.
template <class K> DEV void matmul_tiled(const K& k) {
    __shared__ f32 tile_a[1088];
    __shared__ f32 tile_b[1088];
    const auto& p = params<MatmulParams>(k);
    const u32 l = threadIdx.x;
    const u32 across = (p.n + 63u) / 64u;
    const u32 down = (p.m + 63u) / 64u;
    const u32 j0 = blockIdx.x % across * 64u;
    const u32 i0 = blockIdx.x / across % down * 64u;
    const u32 batch = blockIdx.x / across / down;
    const u32 pa = strided(k, p.batch, p.a_batch, batch);
    const u32 pb = strided(k, p.batch, p.b_batch, batch);
    const u32 ti = l / 16u;
    const u32 tj = l % 16u;
    f32 sum[4][4] = {};
    for (u32 k0 = 0u; k0 < p.k; k0 += 16u) {
        for (u32 q = 0u; q < 4u; q++) {
            const u32 e = q * 256u + l;
            // Neighbouring threads read neighbouring elements of a row.
            const u32 ka = k0 + e % 16u;
            const u32 ia = i0 + e / 16u;
            f32 va = 0.0f;
            if (ka < p.k && ia < p.m) {
                va = k.x0(pa + ia * p.a_row + ka * p.a_column);
            }
            tile_a[(e % 16u) * 68u + e / 16u] = va;
            const u32 kb = k0 + e / 64u;
            const u32 jb = j0 + e % 64u;
            f32 vb = 0.0f;
            if (kb < p.k && jb < p.n) {
                vb = k.factor(pb + kb * p.b_row + jb * p.b_column);
            }
            tile_b[(e / 64u) * 68u + e % 64u] = vb;
        }
        __syncthreads();
        for (u32 q = 0u; q < 16u; q++) {
            const u32 a = q * 68u + ti * 4u;
            const u32 b = q * 68u + tj * 4u;
            for (u32 di = 0u; di < 4u; di++) {
                for (u32 dj = 0u; dj < 4u; dj++) {
                    mac(sum[di][dj], tile_a[a + di], tile_b[b + dj]);
                }
            }
        }
        __syncthreads();
    }
    if constexpr (K::SIDE) {
        __shared__ typename K::SideSum found[SideTile<K>::SIZE];
        for (u32 di = 0u; di < 4u; di++) {
            const u32 i = i0 + ti * 4u + di;
            const u32 j = j0 + tj * 4u;
            if (i < p.m && j < p.n) {
                const u32 at = (batch * p.m + i) * p.n + j;
                side_put<K>(found, ti * 4u + di, tj * 4u, side_elements(k, at, sum[di], ::min(p.n - j, 4u)));
            }
        }
        side_tile(k, found, batch * p.m + i0, ::min(p.m - i0, 64u), j0);
        return;
    }
    for (u32 di = 0u; di < 4u; di++) {
        for (u32 dj = 0u; dj < 4u; dj++) {
            const u32 i = i0 + ti * 4u + di;
            const u32 j = j0 + tj * 4u + dj;
            if (i < p.m && j < p.n) {
                k.emit0((batch * p.m + i) * p.n + j, sum[di][dj]);
            }
        }
    }
}
