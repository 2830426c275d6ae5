// Products by packed 2:4 sparse weights on tensor cores by mma.sp. The weights are the instruction's first operand, so that its
// rows are columns of the result. `Tile` is the structure of constants of a tile, as in tiles.cuh: ROWS of the result by COLUMNS,
// BYTES of the depth a stage. 64 bytes of the depth are one step: 32 bytes of values.
#pragma once
#include "tiles.cuh"

// `mma_sp_A_B`: `product` adds 16 x 64 bytes of the depth of A, packed, by 64 bytes x 8 of B to d. `places` are those of A; SELECT
// says which lanes of four have them. SHARED: a word of places serves two steps.
#define MMA_SPARSE(A, B, BYTES, SHAPE, SUM, SUM_NAME, REGISTER, TWO_STEPS)                                                              \
    struct mma_sp_##A##_##B {                                                                                                          \
        typedef SUM Sum;                                                                                                               \
        static constexpr u32 SIZE = BYTES;                                                                                             \
        static constexpr bool SHARED = TWO_STEPS;                                                                                      \
        template <u32 SELECT> DEV static void product(SUM (&d)[4], const u32 (&a)[4], const u32 (&b)[4], u32 places) {                \
            asm volatile("mma.sp::ordered_metadata.sync.aligned." SHAPE ".row.col." SUM_NAME "." #A "." #B "." SUM_NAME                \
                         " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;"                        \
                         : REGISTER(d[0]), REGISTER(d[1]), REGISTER(d[2]), REGISTER(d[3])                                              \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(places),        \
                           "n"(SELECT));                                                                                               \
        }                                                                                                                              \
    };

MMA_SPARSE(f16, f16, 2u, "m16n8k32", f32, "f32", "+f", true)
MMA_SPARSE(bf16, bf16, 2u, "m16n8k32", f32, "f32", "+f", true)
MMA_SPARSE(e4m3, e4m3, 1u, "m16n8k64", f32, "f32", "+f", false)
MMA_SPARSE(s8, s8, 1u, "m16n8k64", i32, "s32", "+r", false)
MMA_SPARSE(s8, u8, 1u, "m16n8k64", i32, "s32", "+r", false)
MMA_SPARSE(u8, s8, 1u, "m16n8k64", i32, "s32", "+r", false)
MMA_SPARSE(u8, u8, 1u, "m16n8k64", i32, "s32", "+r", false)

// Lines of values: half of the bytes.
template <class Tile> struct ValuesOf : Tile {
    static constexpr u32 BYTES = Tile::BYTES / 2u;
};

template <class Tile> struct SparseTiles {
    typedef typename Tile::Mma Mma;
    typedef typename Mma::Sum Sum;
    static constexpr u32 SIZE = Mma::SIZE;
    static constexpr u32 STAGES = Tile::STAGES;
    static constexpr u32 WARPS_N = Tile::WARPS_N;
    static constexpr u32 THREADS = Tile::WARPS_M * WARPS_N * 32u;
    // Rows and columns of the result of a warp.
    static constexpr u32 WM = Tile::ROWS / Tile::WARPS_M;
    static constexpr u32 WN = Tile::COLUMNS / WARPS_N;
    static constexpr u32 BK = Tile::BYTES / SIZE;
    static constexpr u32 PARTS = Tile::BYTES / 64u;
    // Bytes of the depth whose places lie together, and words of the places of 16 columns of it.
    static constexpr u32 CHUNK = 128u;
    static constexpr u32 WORDS = 64u / SIZE;
    static constexpr u32 CHUNKS = Tile::BYTES / CHUNK;
    // No two of eight neighbouring lines begin in the same banks.
    static constexpr u32 PITCH_X = Tile::BYTES + 16u;
    static constexpr u32 PITCH_W = Tile::BYTES / 2u + 16u;
    static constexpr u32 BYTES_X = Tile::ROWS * PITCH_X;
    static constexpr u32 BYTES_W = Tile::COLUMNS * PITCH_W;
    static constexpr u32 BYTES_P = Tile::COLUMNS / 16u * CHUNKS * WORDS * 4u;
    static constexpr u32 STAGE = BYTES_X + BYTES_W + BYTES_P;

    // Columns of the result in steps of 16, rows in steps of 8.
    typedef Sum Sums[WN / 16][WM / 8][4];

    DEV static u8* stage_x(u32 stage) { return block_memory + stage * STAGE; }
    DEV static u8* stage_w(u32 stage) { return stage_x(stage) + BYTES_X; }
    DEV static u8* stage_p(u32 stage) { return stage_w(stage) + BYTES_W; }

    // The operands of 64 bytes of the depth of a warp's sums.
    struct Fragments {
        u32 w[WN / 16][4];
        u32 p[WN / 16];
        u32 x[WM / 8][4];

        DEV void read(u32 stage, u32 wi, u32 wj, u32 part) {
            const u32 lane = threadIdx.x % 32u;
            const u32* places = reinterpret_cast<const u32*>(stage_p(stage));
#pragma unroll
            for (u32 j = 0u; j < WN / 16; j++) {
                const u32 line = wj + j * 16u;
                const u8* at = stage_w(stage) + (line + lane % 16u) * PITCH_W + part * 32u + lane / 16u * 16u;
                matrices(w[j][0], w[j][1], w[j][2], w[j][3], at);
                const u32 chunk = (line / 16u * CHUNKS + part / 2u) * WORDS;
                p[j] = places[chunk + (Mma::SHARED ? 0u : part % 2u * 32u) + lane];
            }
#pragma unroll
            for (u32 i = 0u; i < WM / 8; i++) {
                const u8* at = stage_x(stage) + (wi + i * 8u + lane % 8u) * PITCH_X + part * 64u + lane / 8u * 16u;
                matrices(x[i][0], x[i][1], x[i][2], x[i][3], at);
            }
        }
    };

    template <u32 SELECT> DEV static void multiply(Sums& sum, const Fragments& of) {
#pragma unroll
        for (u32 j = 0u; j < WN / 16; j++) {
#pragma unroll
            for (u32 i = 0u; i < WM / 8; i++) {
                Mma::template product<Mma::SHARED ? SELECT : 0u>(sum[j][i], of.w[j], of.x[i], of.p[j]);
            }
        }
    }

    // All stages of a block: `load(stage, step)` starts the copies of one, called for steps 0, 1, 2, ... in order, also for the
    // STAGES - 1 steps behind the last one.
    template <class Load> DEV static void accumulate(Sums& sum, u32 steps, Load load) {
        const u32 warp = threadIdx.x / 32u;
        const u32 wi = warp / WARPS_N * WM;
        const u32 wj = warp % WARPS_N * WN;
        for (u32 s = 0u; s < STAGES - 1u; s++) {
            load(s, s);
            asm volatile("cp.async.commit_group;" ::: "memory");
        }
        u32 stage = 0u;
        u32 filled = STAGES - 1u;
        for (u32 step = 0u; step < steps; step++) {
            // All threads have this stage, and are done with the one that is filled next.
            asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2u) : "memory");
            __syncthreads();
            Fragments of[2];
            of[0].read(stage, wi, wj, 0u);
            load(filled, step + STAGES - 1u);
            asm volatile("cp.async.commit_group;" ::: "memory");
#pragma unroll
            for (u32 part = 0u; part < PARTS; part += 2u) {
                of[1].read(stage, wi, wj, part + 1u);
                multiply<0u>(sum, of[0]);
                if (part + 2u < PARTS) {
                    of[0].read(stage, wi, wj, part + 2u);
                }
                multiply<1u>(sum, of[1]);
            }
            stage = stage + 1u == STAGES ? 0u : stage + 1u;
            filled = filled + 1u == STAGES ? 0u : filled + 1u;
        }
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncthreads();
    }

    // Passes eight neighbouring sums of a row at a time to `put(row, column, sums)`, by way of shared memory.
    template <class Put> DEV static void spread(const Sums& sum, Put put) {
        constexpr u32 WIDE = WN + 4u;
        const u32 warp = threadIdx.x / 32u;
        const u32 lane = threadIdx.x % 32u;
        Sum* own = reinterpret_cast<Sum*>(block_memory) + warp * 8u * WIDE;
#pragma unroll
        for (u32 i = 0u; i < WM / 8; i++) {
#pragma unroll
            for (u32 j = 0u; j < WN / 16; j++) {
#pragma unroll
                for (u32 r = 0u; r < 4u; r++) {
                    own[(lane % 4u * 2u + r % 2u) * WIDE + j * 16u + lane / 4u + r / 2u * 8u] = sum[j][i][r];
                }
            }
            __syncwarp();
            for (u32 e = lane; e < WN; e += 32u) {
                const u32 row = e / (WN / 8u);
                const u32 col = e % (WN / 8u) * 8u;
                Sum v[8];
#pragma unroll
                for (u32 q = 0u; q < 8u; q++) {
                    v[q] = own[row * WIDE + col + q];
                }
                put(warp / WARPS_N * WM + i * 8u + row, warp % WARPS_N * WN + col, v);
            }
            __syncwarp();
        }
    }

    // Copies the places of a stage: those of the tile's columns from `column` on, from chunk `chunk` of `chunks` on. Beyond the last
    // ones those are repeated: the instruction takes no word that is none, and values are zeros there.
    DEV static void load_places(u32 stage, const i32* places, u32 column, u32 columns, u32 chunk, u32 chunks) {
        constexpr u32 COPIES = WORDS / 4u;
        constexpr u32 ALL = Tile::COLUMNS / 16u * CHUNKS * COPIES;
        const u32 tiles = (columns + 15u) / 16u;
        for (u32 e = threadIdx.x; e < ALL; e += THREADS) {
            const u32 tile = ::min(column / 16u + e / (CHUNKS * COPIES), tiles - 1u);
            const u32 at = ::min(chunk + e / COPIES % CHUNKS, chunks - 1u);
            copy16(stage_p(stage) + e * 16u, places + (u64(tile) * chunks + at) * WORDS + e % COPIES * 4u, true);
        }
    }
};
