// Products by weights that stay codes, on tensor cores by mma.sync: words of codes go through shared memory as they are stored, and
// become operands in registers. A sum does not depend on the order of its depth: where the instruction deals pairs of neighbours to
// the lanes, a lane takes eight neighbours here, of both operands, and four lanes a round of 32.
#pragma once
#include "codes_values.cuh"
#include "mma.cuh"

template <class K> struct CodeTiles {
    typedef typename K::Tile Tile;
    typedef MmaTiles<Tile> T;
    typedef typename T::Mma Mma;
    typedef typename T::Sums Sums;
    // Words of eight codes, registers of eight operands, and rounds of a stage.
    static constexpr u32 WORDS = 8u / K::CODES;
    static constexpr u32 VALUES = 2u * T::SIZE;
    static constexpr u32 ROUNDS = T::BK / 32u;
    // Fragments of a warp, eight columns each.
    static constexpr u32 COLUMNS = T::WN / 8u;
    // Bytes of an output's codes in a stage, and from one output to the next: an odd number of rounds, so that outputs that are
    // read at once begin in different banks.
    static constexpr u32 BYTES = ROUNDS * 16u * WORDS;
    static constexpr u32 PITCH = (ROUNDS | 1u) * 16u * WORDS;
    static constexpr u32 BYTES_X = T::BM * T::PITCH;
    static constexpr u32 STAGE = BYTES_X + T::BN * PITCH;
    // Scales of an output in a stage.
    static constexpr u32 PARTS = K::ONE_PART ? 1u : ROUNDS;

    DEV static u8* stage_x(u32 stage) { return block_memory + stage * STAGE; }
    DEV static u8* stage_w(u32 stage) { return stage_x(stage) + BYTES_X; }

    // The row of eight that is row `i` of a fragment: lanes that read at once begin in different banks.
    DEV static u32 row_of(u32 i) { return T::SIZE == 2u ? i / 2u + i % 2u * 4u : i; }

    // Scales and zero points of a stage: those of each part and column of a warp.
    struct Parts {
        u32 scale[PARTS][COLUMNS];
        i32 zero[K::HAS_ZERO ? PARTS : 1u][K::HAS_ZERO ? COLUMNS : 1u];

        // Reads those of the columns from `column` on, at `at` of the depth. Beyond the last ones those are repeated.
        DEV void read(const K& k, const CodesParams& p, u32 column, u32 at) {
            const u32 lane = threadIdx.x % 32u;
#pragma unroll
            for (u32 r = 0u; r < PARTS; r++) {
                const u32 along = ::min(at + r * 32u + lane % 4u * 8u, p.depth - 1u) / K::ALONG;
#pragma unroll
                for (u32 j = 0u; j < COLUMNS; j++) {
                    const u32 output = ::min(column + j * 8u + lane / 4u, p.columns - 1u);
                    const u32 part = output / K::ACROSS * p.scales + along;
                    scale[r][j] = bits_of(k.bx2[part]);
                    if constexpr (K::HAS_ZERO) {
                        zero[r][j] = k.zero_at(part);
                    }
                }
            }
        }
    };

    // Copies the codes of a stage, `line` bytes an output, those from byte `at` on.
    DEV static void load_codes(u8* to, const u8* codes, u32 column, u32 columns, u32 line, u32 at) {
        constexpr u32 COPIES = BYTES / 16u;
        for (u32 e = threadIdx.x; e < T::BN * COPIES; e += T::THREADS) {
            const u32 output = e / COPIES;
            const u32 byte = at + e % COPIES * 16u;
            const bool inside = column + output < columns && byte < line;
            copy16(to + output * PITCH + e % COPIES * 16u, codes + u64(column + output) * line + byte, inside);
        }
    }

    // Multiplies a round of a stage.
    DEV static void multiply(Sums& sum, u32 stage, u32 wi, u32 wj, u32 round, const Parts& parts) {
        const u32 lane = threadIdx.x % 32u;
        u32 a[T::WM / 16u][2][VALUES];
#pragma unroll
        for (u32 i = 0u; i < T::WM / 16u; i++) {
#pragma unroll
            for (u32 half = 0u; half < 2u; half++) {
                const u32 row = wi + i * 16u + half * 8u + row_of(lane / 4u);
                const u8* from = stage_x(stage) + row * T::PITCH + (round * 32u + lane % 4u * 8u) * T::SIZE;
#pragma unroll
                for (u32 v = 0u; v < VALUES; v += 4u) {
                    const uint4 four = *reinterpret_cast<const uint4*>(from + v * 4u);
                    a[i][half][v] = Mma::operand(four.x);
                    a[i][half][v + 1u] = Mma::operand(four.y);
                    a[i][half][v + 2u] = Mma::operand(four.z);
                    a[i][half][v + 3u] = Mma::operand(four.w);
                }
            }
        }
#pragma unroll
        for (u32 j = 0u; j < COLUMNS; j++) {
            const u8* from = stage_w(stage) + (wj + j * 8u + lane / 4u) * PITCH + (round * 4u + lane % 4u) * 4u * WORDS;
            const u32 part = K::ONE_PART ? 0u : round;
            const i32 zero = K::HAS_ZERO ? parts.zero[K::HAS_ZERO ? part : 0u][K::HAS_ZERO ? j : 0u] : 0;
            u32 codes[WORDS];
            if constexpr (WORDS == 1u) {
                codes[0] = *reinterpret_cast<const u32*>(from);
            } else {
                const uint2 two = *reinterpret_cast<const uint2*>(from);
                codes[0] = two.x;
                codes[WORDS - 1u] = two.y;
            }
            u32 b[VALUES];
            CodeValues<K, Mma>::dequantize(b, codes, parts.scale[part][j], zero);
#pragma unroll
            for (u32 s = 0u; s < VALUES; s += 2u) {
                const u32 weights[2] = {b[s], b[s + 1u]};
#pragma unroll
                for (u32 i = 0u; i < T::WM / 16u; i++) {
                    const u32 rows[4] = {a[i][0][s], a[i][1][s], a[i][0][s + 1u], a[i][1][s + 1u]};
                    Mma::product(sum[i][j], rows, weights);
                }
            }
        }
    }

    // Adds up the share of the depth of a block. Scales of the next stage arrive during a stage.
    DEV static void accumulate(Sums& sum, const K& k, const CodesParams& p, const TilePlace& place) {
        const u32 warp = threadIdx.x / 32u;
        const u32 wi = warp / T::WARPS_N * T::WM;
        const u32 wj = warp % T::WARPS_N * T::WN;
        const u32 all = (p.depth + T::BK - 1u) / T::BK;
        const u32 share = (all + K::SPLIT - 1u) / K::SPLIT;
        const u32 first = ::min(place.part * share, all);
        const u32 steps = ::min(share, all - first);
        const u8* codes = reinterpret_cast<const u8*>(k.bx1);
        LineCopies<Tile, T::BM, false, typename K::CellX> rows;
        rows.start(k.bx0, place.row, p.rows, p.depth, first * T::BK);
        const auto load = [&](u32 stage, u32 step) {
            if (step < steps) {
                rows.load(stage_x(stage), p.depth - (first + step) * T::BK, 0u, 1u);
                load_codes(stage_w(stage), codes, place.column, p.columns, p.length * 4u, (first + step) * BYTES);
            }
            asm volatile("cp.async.commit_group;" ::: "memory");
        };
        for (u32 s = 0u; s < T::STAGES - 1u; s++) {
            load(s, s);
        }
        Parts next;
        next.read(k, p, place.column + wj, first * T::BK);
        u32 stage = 0u;
        u32 filled = T::STAGES - 1u;
        for (u32 step = 0u; step < steps; step++) {
            // All threads have this stage, and are done with the one that is filled next.
            asm volatile("cp.async.wait_group %0;" ::"n"(T::STAGES - 2u) : "memory");
            __syncthreads();
            load(filled, step + T::STAGES - 1u);
            const Parts parts = next;
            next.read(k, p, place.column + wj, (first + step + 1u) * T::BK);
#pragma unroll
            for (u32 round = 0u; round < ROUNDS; round++) {
                multiply(sum, stage, wi, wj, round, parts);
            }
            stage = stage + 1u == T::STAGES ? 0u : stage + 1u;
            filled = filled + 1u == T::STAGES ? 0u : filled + 1u;
        }
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncthreads();
    }
};

// The products of a tile, or parts of their sums.
template <class K> DEV void codes_gemm(const K& k) {
    typedef CodeTiles<K> Codes;
    typedef typename Codes::T T;
    const auto& p = params<CodesParams>(k);
    const TilePlace place = place_of<typename K::Tile>(blockIdx.x, K::SPLIT, p.rows, p.columns);
    typename Codes::Sums sum = {};
    Codes::accumulate(sum, k, p, place);
    const bool runs = p.columns % 8u == 0u;
    const auto put = [&](u32 row, u32 col, const f32* v, u32 count) {
        row = place.row + (row & ~7u) + Codes::row_of(row % 8u);
        col += place.column;
        if (row >= p.rows || col >= p.columns) {
            return;
        }
        const u32 at = row * p.columns + col;
        if constexpr (K::SPLIT > 1u) {
            f32* to = reinterpret_cast<f32*>(k.scratch) + u64(place.part) * p.rows * p.columns + at;
            for (u32 q = 0u; q < count; q++) {
                to[q] = v[q];
            }
        } else if (count == 1u) {
            k.emit0(at, v[0]);
        } else {
            k.emit0_run(at, v);
        }
    };
    if (runs) {
        T::spread(sum, [&](u32 row, u32 col, const f32* v) { put(row, col, v, 8u); });
    } else {
        T::spread_each(sum, [&](u32 row, u32 col, f32 v) { put(row, col, &v, 1u); });
    }
}
