// Products of tiles on tensor cores by mma.sync, whatever the element type. `Tile` is the structure of constants of a tile:
// a block makes ROWS x COLUMNS sums, shared by WARPS_M x WARPS_N warps; BYTES of the depth (of every line) a stage go through
// STAGES buffers. Tiles lie "along" the depth (a row of the tile is a row of A or a column of B), or where ACROSS_A, ACROSS_B
// across it (a row of the tile is one k). `Tile::Mma` is the instruction, see instruction.cuh.
#pragma once
#include "instruction.cuh"

extern __shared__ __align__(128) u8 block_memory[];

DEV u32 address(const void* p) { return u32(__cvta_generic_to_shared(p)); }

// 16 bytes from memory, or zeros.
DEV void copy16(void* to, const void* from, bool inside) {
    const u32 bytes = inside ? 16u : 0u;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address(to)), "l"(from), "r"(bytes) : "memory");
}

DEV void matrices(u32& a, u32& b, u32& c, u32& d, const u8* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(address(p))
                 : "memory");
}

DEV void transposed(u32& a, u32& b, u32& c, u32& d, const u8* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "r"(address(p))
                 : "memory");
}

// The tile of a block among `down` x `across`: neighbours in time share rows and columns.
DEV void place_tile(u32 number, u32 down, u32 across, u32& i, u32& j) {
    constexpr u32 BAND = 8u;
    const u32 band = number / (BAND * across);
    const u32 height = ::min(down - band * BAND, BAND);
    const u32 rest = number % (BAND * across);
    i = band * BAND + rest % height;
    j = rest / height;
}

template <class Tile> struct MmaTiles {
    typedef typename Tile::Mma Mma;
    typedef typename Mma::Sum Sum;
    static constexpr u32 SIZE = Mma::SIZE;
    static constexpr u32 BM = Tile::ROWS;
    static constexpr u32 BN = Tile::COLUMNS;
    static constexpr u32 WARPS_N = Tile::WARPS_N;
    static constexpr u32 STAGES = Tile::STAGES;
    static constexpr u32 WM = BM / Tile::WARPS_M;
    static constexpr u32 WN = BN / WARPS_N;
    static constexpr u32 BK = Tile::BYTES / SIZE;
    static constexpr u32 K_STEP = 32u / SIZE;
    static constexpr u32 PARTS = BK / K_STEP;
    static constexpr u32 PER_COPY = 16u / SIZE;
    // Bytes from one line of a stage to the next: no two of eight neighbouring lines begin in the same banks.
    static constexpr u32 PITCH = Tile::BYTES + 16u;
    static constexpr u32 SKEW = SIZE == 4u ? 32u : 16u;
    static constexpr u32 PITCH_A = Tile::ACROSS_A ? BM * SIZE + SKEW : PITCH;
    static constexpr u32 PITCH_B = Tile::ACROSS_B ? BN * SIZE + SKEW : PITCH;
    static constexpr u32 BYTES_A = (Tile::ACROSS_A ? BK : BM) * PITCH_A;
    static constexpr u32 BYTES_B = (Tile::ACROSS_B ? BK : BN) * PITCH_B;
    static constexpr u32 THREADS = Tile::WARPS_M * WARPS_N * 32u;
    // Sums from one row to the next, where they go through shared memory.
    static constexpr u32 WIDE = WN + 4u;

    // The sums of a thread.
    typedef Sum Sums[WM / 16][WN / 8][4];

    DEV static u8* stage_a(u32 stage) { return block_memory + stage * (BYTES_A + BYTES_B); }
    DEV static u8* stage_b(u32 stage) { return stage_a(stage) + BYTES_A; }

    // Four bytes of K from element k on, of one line of a tile that lies across.
    DEV static u32 gather(const u8* tile, u32 pitch, u32 k, u32 line) {
        const u8* p = tile + k * pitch + line * SIZE;
        if constexpr (SIZE == 4u) {
            return *reinterpret_cast<const u32*>(p);
        } else {
            return u32(p[0]) | (u32(p[pitch]) << 8) | (u32(p[2u * pitch]) << 16) | (u32(p[3u * pitch]) << 24);
        }
    }

    // A's fragment of 16 lines from `line` on, 32 bytes of K from element k on.
    DEV static void fragment_a(u32 (&f)[4], const u8* tile, u32 line, u32 k) {
        const u32 lane = threadIdx.x % 32u;
        if constexpr (!Tile::ACROSS_A) {
            matrices(f[0], f[1], f[2], f[3], tile + (line + lane % 16u) * PITCH_A + k * SIZE + lane / 16u * 16u);
        } else if constexpr (SIZE == 2u) {
            const u8* p = tile + (k + lane / 16u * 8u + lane % 8u) * PITCH_A + (line + lane / 8u % 2u * 8u) * SIZE;
            transposed(f[0], f[1], f[2], f[3], p);
        } else {
            const u32 at = k + lane % 4u * (4u / SIZE);
#pragma unroll
            for (u32 r = 0u; r < 4u; r++) {
                f[r] = gather(tile, PITCH_A, at + r / 2u * (16u / SIZE), line + lane / 4u + r % 2u * 8u);
            }
        }
#pragma unroll
        for (u32 r = 0u; r < 4u; r++) {
            f[r] = Mma::operand(f[r]);
        }
    }

    // B's fragments of 16 lines.
    DEV static void fragment_b(u32 (&f)[2], u32 (&g)[2], const u8* tile, u32 line, u32 k) {
        const u32 lane = threadIdx.x % 32u;
        if constexpr (!Tile::ACROSS_B) {
            const u8* p = tile + (line + lane / 16u * 8u + lane % 8u) * PITCH_B + k * SIZE + lane / 8u % 2u * 16u;
            matrices(f[0], f[1], g[0], g[1], p);
        } else if constexpr (SIZE == 2u) {
            transposed(f[0], f[1], g[0], g[1], tile + (k + lane % 16u) * PITCH_B + (line + lane / 16u * 8u) * SIZE);
        } else {
            const u32 at = k + lane % 4u * (4u / SIZE);
#pragma unroll
            for (u32 r = 0u; r < 2u; r++) {
                f[r] = gather(tile, PITCH_B, at + r * (16u / SIZE), line + lane / 4u);
                g[r] = gather(tile, PITCH_B, at + r * (16u / SIZE), line + 8u + lane / 4u);
            }
        }
#pragma unroll
        for (u32 r = 0u; r < 2u; r++) {
            f[r] = Mma::operand(f[r]);
            g[r] = Mma::operand(g[r]);
        }
    }

    // The operands of 32 bytes of K of a warp's sums.
    struct Fragments {
        u32 a[WM / 16][4];
        u32 b[WN / 8][2];

        DEV void read(u32 stage, u32 wi, u32 wj, u32 k) {
#pragma unroll
            for (u32 i = 0u; i < WM / 16; i++) {
                fragment_a(a[i], stage_a(stage), wi + i * 16u, k);
            }
#pragma unroll
            for (u32 j = 0u; j < WN / 8; j += 2u) {
                fragment_b(b[j], b[j + 1], stage_b(stage), wj + j * 8u, k);
            }
        }
    };

    // All stages of a block: `load(stage, step, part)` starts a part of the copies of one, called for steps 0, 1, 2, ... in order
    // and for each of their PARTS, also for the STAGES - 1 steps behind the last one. Operands are read while those before them
    // are multiplied, of the next stage, too.
    template <class Load> DEV static void accumulate(Sums& sum, u32 steps, Load load) {
        const u32 warp = threadIdx.x / 32u;
        const u32 wi = warp / WARPS_N * WM;
        const u32 wj = warp % WARPS_N * WN;
        for (u32 s = 0u; s < STAGES - 1u; s++) {
#pragma unroll
            for (u32 part = 0u; part < PARTS; part++) {
                load(s, s, part);
            }
            asm volatile("cp.async.commit_group;" ::: "memory");
        }
        // All threads have the next stage, and are done with the one whose buffer is filled next.
        const auto arrive = [&] {
            asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2u) : "memory");
            __syncthreads();
        };
        u32 stage = 0u;
        u32 filled = STAGES - 1u;
        Fragments of[2];
        arrive();
        of[0].read(0u, wi, wj, 0u);
        for (u32 step = 0u; step < steps; step++) {
            const u32 after = stage + 1u == STAGES ? 0u : stage + 1u;
#pragma unroll
            for (u32 part = 0u; part < PARTS; part++) {
                Fragments& next = of[(part + 1u) % 2u];
                const bool ends = part + 1u == PARTS;
                if (!ends) {
                    next.read(stage, wi, wj, (part + 1u) * K_STEP);
                }
                load(filled, step + STAGES - 1u, part);
                if (ends) {
                    asm volatile("cp.async.commit_group;" ::: "memory");
                    filled = filled + 1u == STAGES ? 0u : filled + 1u;
                    arrive();
                    next.read(after, wi, wj, 0u);
                }
                const Fragments& now = of[part % 2u];
#pragma unroll
                for (u32 i = 0u; i < WM / 16; i++) {
#pragma unroll
                    for (u32 j = 0u; j < WN / 8; j++) {
                        Mma::product(sum[i][j], now.a[i], now.b[j]);
                    }
                }
            }
            stage = after;
        }
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncthreads();
    }

    // Brings the sums of a warp to shared memory, 16 rows at a time, and calls `rows(row, column, sums)` with the place of the first.
    template <class Rows> DEV static void by_rows(const Sums& sum, Rows rows) {
        const u32 warp = threadIdx.x / 32u;
        const u32 lane = threadIdx.x % 32u;
        Sum* own = reinterpret_cast<Sum*>(block_memory) + warp * 16u * WIDE;
#pragma unroll
        for (u32 i = 0u; i < WM / 16; i++) {
#pragma unroll
            for (u32 j = 0u; j < WN / 8; j++) {
#pragma unroll
                for (u32 r = 0u; r < 4u; r++) {
                    own[(lane / 4u + r / 2u * 8u) * WIDE + j * 8u + lane % 4u * 2u + r % 2u] = sum[i][j][r];
                }
            }
            __syncwarp();
            rows(warp / WARPS_N * WM + i * 16u, warp % WARPS_N * WN, own);
            __syncwarp();
        }
    }

    // Passes eight neighbouring sums at a time to `put(row, column, sums)`, by way of shared memory.
    template <class Put> DEV static void spread(const Sums& sum, Put put) {
        by_rows(sum, [&](u32 row0, u32 col0, const Sum* own) {
            for (u32 e = threadIdx.x % 32u; e < 2u * WN; e += 32u) {
                const u32 row = e / (WN / 8u);
                const u32 col = e % (WN / 8u) * 8u;
                Sum v[8];
#pragma unroll
                for (u32 q = 0u; q < 8u; q++) {
                    v[q] = own[row * WIDE + col + q];
                }
                put(row0 + row, col0 + col, v);
            }
        });
    }

    // Passes single sums to `put(row, column, sum)`: neighbouring threads have neighbouring columns.
    template <class Put> DEV static void spread_each(const Sums& sum, Put put) {
        by_rows(sum, [&](u32 row0, u32 col0, const Sum* own) {
            for (u32 e = threadIdx.x % 32u; e < 16u * WN; e += 32u) {
                put(row0 + e / WN, col0 + e % WN, own[e / WN * WIDE + e % WN]);
            }
        });
    }
};
