// Matrix products of 16-bit floats on tensor cores, sums in f32. Words as in generic/matmul.cuh. A block makes BM x BN
// elements; WARPS_M x WARPS_N warps share them; tiles of BK go through STAGES buffers by asynchronous copies where rows are
// contiguous and aligned, else element by element.

// ---- shared
__shared__ __align__(16) u16 tiles_a[STAGES * BM * (BK + 8)];
__shared__ __align__(16) u16 tiles_b[STAGES * BK * (BN + 8)];

DEV u32 batch_offset(u32 batch, u32 which) const {
    const u32 rank = m(7u);
    u32 rest = batch;
    u32 at = 0u;
    for (u32 d = rank; d > 0u; d--) {
        const u32 n = m(7u + d);
        at += (rest % n) * m(7u + which * rank + d);
        rest = rest / n;
    }
    return at;
}

// Eight elements from memory, or zeros.
DEV void copy8(u16* to, const u16* from, bool inside) const {
    const u32 address = u32(__cvta_generic_to_shared(to));
    const u32 bytes = inside ? 16u : 0u;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(bytes) : "memory");
}

// One tile of A, [BM, BK + 8], and of B, [BK, BN + 8], from column k0 on.
DEV void load_tiles(u32 stage, u32 l, u32 pa, u32 pb, u32 i0, u32 j0, u32 k0, bool whole_a, bool whole_b) const {
    const u32 rows = m(0u);
    const u32 cols = m(1u);
    const u32 depth = m(2u);
    u16* a = tiles_a + stage * BM * (BK + 8);
    u16* b = tiles_b + stage * BK * (BN + 8);
    if (whole_a) {
        for (u32 e = l; e < BM * BK / 8; e += LANES) {
            const u32 i = e / (BK / 8);
            const u32 k = e % (BK / 8) * 8u;
            const bool inside = i0 + i < rows && k0 + k < depth;
            copy8(a + i * (BK + 8) + k, bx0 + (inside ? pa + (i0 + i) * m(3u) + k0 + k : 0u), inside);
        }
    } else {
        for (u32 e = l; e < BM * BK; e += LANES) {
            const u32 i = e / BK;
            const u32 k = e % BK;
            const bool inside = i0 + i < rows && k0 + k < depth;
            a[i * (BK + 8) + k] = inside ? bx0[pa + (i0 + i) * m(3u) + (k0 + k) * m(4u)] : u16(0);
        }
    }
    if (whole_b) {
        for (u32 e = l; e < BK * BN / 8; e += LANES) {
            const u32 k = e / (BN / 8);
            const u32 j = e % (BN / 8) * 8u;
            const bool inside = k0 + k < depth && j0 + j < cols;
            copy8(b + k * (BN + 8) + j, bx1 + (inside ? pb + (k0 + k) * m(5u) + j0 + j : 0u), inside);
        }
    } else {
        // Neighbouring threads follow the operand's contiguous dimension.
        const bool down = m(5u) == 1u;
        for (u32 e = l; e < BK * BN; e += LANES) {
            const u32 k = down ? e % BK : e / BN;
            const u32 j = down ? e / BK : e % BN;
            const bool inside = k0 + k < depth && j0 + j < cols;
            b[k * (BN + 8) + j] = inside ? bx1[pb + (k0 + k) * m(5u) + (j0 + j) * m(6u)] : u16(0);
        }
    }
}

// ---- entry
GROUPS gemm THREADS_OF_BLOCK {
    constexpr u32 WM = BM / WARPS_M;
    constexpr u32 WN = BN / WARPS_N;
    const u32 rows = m(0u);
    const u32 cols = m(1u);
    const u32 depth = m(2u);
    const u32 across = (cols + BN - 1u) / BN;
    const u32 down = (rows + BM - 1u) / BM;
    const u32 j0 = group % across * BN;
    const u32 i0 = group / across % down * BM;
    const u32 batch = group / across / down;
    const u32 pa = batch_offset(batch, 1u);
    const u32 pb = batch_offset(batch, 2u);
    const bool whole_a = m(4u) == 1u && m(3u) % 8u == 0u && pa % 8u == 0u && depth % 8u == 0u;
    const bool whole_b = m(6u) == 1u && m(5u) % 8u == 0u && pb % 8u == 0u && cols % 8u == 0u;
    const u32 warp = l / 32u;
    const u32 lane = l % 32u;
    const u32 wi = warp / WARPS_N * WM;
    const u32 wj = warp % WARPS_N * WN;
    f32 sum[WM / 16][WN / 8][4] = {};
    const u32 tiles = (depth + BK - 1u) / BK;
    for (u32 s = 0u; s < STAGES - 1u; s++) {
        if (s < tiles) {
            load_tiles(s, l, pa, pb, i0, j0, s * BK, whole_a, whole_b);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    for (u32 tile = 0u; tile < tiles; tile++) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        // All threads have the tile, and are done with the one whose buffer is filled next.
        __syncthreads();
        const u32 next = tile + STAGES - 1u;
        if (next < tiles) {
            load_tiles(next % STAGES, l, pa, pb, i0, j0, next * BK, whole_a, whole_b);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        const u16* a = tiles_a + tile % STAGES * BM * (BK + 8);
        const u16* b = tiles_b + tile % STAGES * BK * (BN + 8);
#pragma unroll
        for (u32 k = 0u; k < BK; k += 16u) {
            u32 fa[WM / 16][4];
            u32 fb[WN / 8][2];
#pragma unroll
            for (u32 i = 0u; i < WM / 16; i++) {
                const u16* p = a + (wi + i * 16u + lane % 16u) * (BK + 8) + k + lane / 16u * 8u;
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                             : "=r"(fa[i][0]), "=r"(fa[i][1]), "=r"(fa[i][2]), "=r"(fa[i][3])
                             : "r"(u32(__cvta_generic_to_shared(p)))
                             : "memory");
            }
#pragma unroll
            for (u32 j = 0u; j < WN / 8; j += 2u) {
                const u16* p = b + (k + lane % 16u) * (BN + 8) + wj + j * 8u + lane / 16u * 8u;
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                             : "=r"(fb[j][0]), "=r"(fb[j][1]), "=r"(fb[j + 1][0]), "=r"(fb[j + 1][1])
                             : "r"(u32(__cvta_generic_to_shared(p)))
                             : "memory");
            }
#pragma unroll
            for (u32 i = 0u; i < WM / 16; i++) {
#pragma unroll
                for (u32 j = 0u; j < WN / 8; j++) {
                    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.MMA_TYPE.MMA_TYPE.f32 {%0, %1, %2, %3}, "
                                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                                 : "+f"(sum[i][j][0]), "+f"(sum[i][j][1]), "+f"(sum[i][j][2]), "+f"(sum[i][j][3])
                                 : "r"(fa[i][0]), "r"(fa[i][1]), "r"(fa[i][2]), "r"(fa[i][3]), "r"(fb[j][0]),
                                   "r"(fb[j][1]));
                }
            }
        }
    }
#pragma unroll
    for (u32 i = 0u; i < WM / 16; i++) {
#pragma unroll
        for (u32 j = 0u; j < WN / 8; j++) {
#pragma unroll
            for (u32 r = 0u; r < 4u; r++) {
                const u32 row = i0 + wi + i * 16u + lane / 4u + r / 2u * 8u;
                const u32 col = j0 + wj + j * 8u + lane % 4u * 2u + r % 2u;
                if (row < rows && col < cols) {
                    emit0((batch * rows + row) * cols + col, sum[i][j][r]);
                }
            }
        }
    }
}
