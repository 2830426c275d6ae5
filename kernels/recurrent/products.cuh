// Products of a block's rows of R with the states of all units, in two ways; see chip.cuh. Both leave their sums in `part`:
// K_SPLIT parts of the depth, COLUMNS sequences, PART_PITCH rows (by gate, then unit).
#pragma once
#include "../prelude/storage.cuh"
#include "../mma/tiles.cuh"

// On tensor cores, 16-bit floats. A warp has TILES_M tiles of 16 rows and TILES_K of 16 units, in order: HELD_K of these in
// registers, SHARED_K in shared memory.
template <class K> struct MmaProducts {
    typedef typename K::Tile::Mma Mma;
    static constexpr u32 NEIGHBOURS = 8u;
    static constexpr u32 STATE_SIZE = 2u;
    static constexpr u32 STATE_PITCH = K::K_SPLIT * K::TILES_K * 32u + 16u;
    static constexpr u32 WEIGHTS_AT = 2u * K::STATE_BYTES + K::K_SPLIT * K::COLUMNS * K::PART_PITCH * 4u;

    DEV static u16 cell_of(f32 v) { return K::BF16 ? f32_to_bf16(v) : f32_to_f16(v); }

    struct Held {
        u32 a[K::TILES_M * K::HELD_K + 1u][4];
    };

    DEV static u32 state_offset(u32 column, u32 j) { return column * STATE_PITCH + j * 2u; }

    DEV static void put_state(u8* buffer, u32 column, u32 j, f32 v) {
        *reinterpret_cast<u16*>(buffer + state_offset(column, j)) = cell_of(v);
    }

    DEV static void gather16(u32 (&v)[4], f32 value) {
        const u32 lane = threadIdx.x % 32u;
        const u32 mine = cell_of(value);
        const u32 other = __shfl_xor_sync(~0u, mine, 1);
        const u32 pair = lane % 2u == 0u ? mine | (other << 16) : other | (mine << 16);
        const u32 pair2 = __shfl_xor_sync(~0u, pair, 2);
        const u32 low = lane / 2u % 2u == 0u ? pair : pair2;
        const u32 high = lane / 2u % 2u == 0u ? pair2 : pair;
        const u32 low2 = __shfl_xor_sync(~0u, low, 4);
        const u32 high2 = __shfl_xor_sync(~0u, high, 4);
        const bool even = lane / 4u % 2u == 0u;
        v[0] = even ? low : low2;
        v[1] = even ? high : high2;
        v[2] = even ? low2 : low;
        v[3] = even ? high2 : high;
    }

    // Two neighbouring elements of R, zeros beyond it.
    DEV static u32 pair_of(const K& frame, u32 d, u32 rank, u32 row, u32 k) {
        const u32 gate = row / K::UNITS;
        const u32 j = rank * K::UNITS + row % K::UNITS;
        if (gate >= K::GATES || j >= K::HIDDEN || k >= K::HIDDEN) {
            return 0u;
        }
        const u16* p = frame.bx2 + u64((d * K::GATES + gate) * K::HIDDEN + j) * K::HIDDEN + k;
        if constexpr (K::HIDDEN % 2u == 0u) {
            return *reinterpret_cast<const u32*>(p);
        } else {
            return u32(p[0]) | (k + 1u < K::HIDDEN ? u32(p[1]) << 16 : 0u);
        }
    }

    DEV static void fragment_of(const K& frame, u32 (&f)[4], u32 d, u32 rank, u32 tile, u32 step) {
        const u32 lane = threadIdx.x % 32u;
        const u32 row = tile * 16u + lane / 4u;
        const u32 k = step * 16u + lane % 4u * 2u;
        f[0] = pair_of(frame, d, rank, row, k);
        f[1] = pair_of(frame, d, rank, row + 8u, k);
        f[2] = pair_of(frame, d, rank, row, k + 8u);
        f[3] = pair_of(frame, d, rank, row + 8u, k + 8u);
    }

    DEV static uint4* stored(u32 i, u32 j) {
        const u32 at = (threadIdx.x / 32u * K::TILES_M + i) * K::SHARED_K + j;
        return reinterpret_cast<uint4*>(block_memory + WEIGHTS_AT) + at * 32u + threadIdx.x % 32u;
    }

    DEV static void hold(const K& frame, Held& held, u32 d, u32 rank) {
        const u32 warp = threadIdx.x / 32u;
        const u32 tile = warp % K::WARPS_OF_ROWS * K::TILES_M;
        const u32 step = warp / K::WARPS_OF_ROWS * K::TILES_K;
        if (warp >= K::WARPS_OF_ROWS * K::K_SPLIT) {
            return;
        }
#pragma unroll
        for (u32 i = 0u; i < K::TILES_M; i++) {
#pragma unroll
            for (u32 j = 0u; j < K::HELD_K; j++) {
                fragment_of(frame, held.a[i * K::HELD_K + j], d, rank, tile + i, step + j);
            }
            for (u32 j = 0u; j < K::SHARED_K; j++) {
                u32 f[4];
                fragment_of(frame, f, d, rank, tile + i, step + K::HELD_K + j);
                *stored(i, j) = make_uint4(f[0], f[1], f[2], f[3]);
            }
        }
    }

    DEV static void multiply(const K& frame, const Held& held, const u8* state, f32* part, u32 columns, u32 d, u32 rank) {
        const u32 warp = threadIdx.x / 32u;
        const u32 lane = threadIdx.x % 32u;
        const u32 tile = warp % K::WARPS_OF_ROWS * K::TILES_M;
        const u32 split = warp / K::WARPS_OF_ROWS;
        if (split >= K::K_SPLIT) {
            return;
        }
#pragma unroll
        for (u32 n = 0u; n < K::COLUMNS; n += 8u) {
            if (n >= columns) {
                break;
            }
            f32 sum[K::TILES_M][2][4] = {};
            const u8* from = state + (n + lane % 8u) * STATE_PITCH + split * K::TILES_K * 32u + lane / 8u * 16u;
#pragma unroll
            for (u32 j = 0u; j < K::HELD_K; j += 2u) {
                u32 b[2][2];
                matrices(b[0][0], b[0][1], b[1][0], b[1][1], from + j * 32u);
#pragma unroll
                for (u32 i = 0u; i < K::TILES_M; i++) {
                    Mma::product(sum[i][0], held.a[i * K::HELD_K + j], b[0]);
                    Mma::product(sum[i][1], held.a[i * K::HELD_K + j + 1u], b[1]);
                }
            }
#pragma unroll 2
            for (u32 j = 0u; j < K::SHARED_K; j += 2u) {
                u32 b[2][2];
                matrices(b[0][0], b[0][1], b[1][0], b[1][1], from + (K::HELD_K + j) * 32u);
#pragma unroll
                for (u32 i = 0u; i < K::TILES_M; i++) {
                    const uint4 p = *stored(i, j);
                    const uint4 q = *stored(i, j + 1u);
                    const u32 f[4] = {p.x, p.y, p.z, p.w};
                    const u32 g[4] = {q.x, q.y, q.z, q.w};
                    Mma::product(sum[i][0], f, b[0]);
                    Mma::product(sum[i][1], g, b[1]);
                }
            }
#pragma unroll 2
            for (u32 j = K::HELD_K + K::SHARED_K; j < K::TILES_K; j += 2u) {
                u32 b[2][2];
                matrices(b[0][0], b[0][1], b[1][0], b[1][1], from + j * 32u);
#pragma unroll
                for (u32 i = 0u; i < K::TILES_M; i++) {
                    u32 f[4], g[4];
                    fragment_of(frame, f, d, rank, tile + i, split * K::TILES_K + j);
                    fragment_of(frame, g, d, rank, tile + i, split * K::TILES_K + j + 1u);
                    Mma::product(sum[i][0], f, b[0]);
                    Mma::product(sum[i][1], g, b[1]);
                }
            }
#pragma unroll
            for (u32 i = 0u; i < K::TILES_M; i++) {
                const u32 row = (tile + i) * 16u + lane / 4u;
                f32* to = part + (split * K::COLUMNS + n + lane % 4u * 2u) * K::PART_PITCH + row;
                if ((tile + i) * 16u < K::UNITS * K::GATES) {
                    to[0] = sum[i][0][0] + sum[i][1][0];
                    to[K::PART_PITCH] = sum[i][0][1] + sum[i][1][1];
                    to[8] = sum[i][0][2] + sum[i][1][2];
                    to[K::PART_PITCH + 8u] = sum[i][0][3] + sum[i][1][3];
                }
            }
        }
    }
};

// In f32. A warp has TILES_M groups of 8 rows and TILES_K chunks of 128 units, four to a lane; HELD_K chunks in registers,
// SHARED_K in shared memory. AT_ONCE sequences share a read of weights.
template <class K> struct FmaProducts {
    static constexpr u32 NEIGHBOURS = 4u;
    static constexpr u32 STATE_SIZE = 4u;
    static constexpr u32 STATE_PITCH = K::K_SPLIT * K::TILES_K * 512u;
    static constexpr u32 WEIGHTS_AT = 2u * K::STATE_BYTES + K::K_SPLIT * K::COLUMNS * K::PART_PITCH * 4u;

    struct Held {
        float4 a[K::TILES_M * K::HELD_K + 1u][8];
    };

    DEV static u32 state_offset(u32 column, u32 j) { return column * STATE_PITCH + j * 4u; }

    DEV static void put_state(u8* buffer, u32 column, u32 j, f32 v) {
        *reinterpret_cast<f32*>(buffer + state_offset(column, j)) = v;
    }

    DEV static void gather16(u32 (&v)[4], f32 value) {
        const u32 lane = threadIdx.x % 32u;
        const u32 mine = bitcast<u32>(value);
        const u32 other = __shfl_xor_sync(~0u, mine, 1);
        const u32 low = lane % 2u == 0u ? mine : other;
        const u32 high = lane % 2u == 0u ? other : mine;
        const u32 low2 = __shfl_xor_sync(~0u, low, 2);
        const u32 high2 = __shfl_xor_sync(~0u, high, 2);
        const bool even = lane / 2u % 2u == 0u;
        v[0] = even ? low : low2;
        v[1] = even ? high : high2;
        v[2] = even ? low2 : low;
        v[3] = even ? high2 : high;
    }

    // Four neighbouring elements of R in every lane, zeros beyond it.
    DEV static float4 four_of(const K& frame, u32 d, u32 rank, u32 row, u32 chunk) {
        const u32 gate = row / K::UNITS;
        const u32 j = rank * K::UNITS + row % K::UNITS;
        const u32 k = chunk * 128u + threadIdx.x % 32u * 4u;
        if (gate >= K::GATES || j >= K::HIDDEN || k >= K::HIDDEN) {
            return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
        const f32* p = frame.bx2 + u64((d * K::GATES + gate) * K::HIDDEN + j) * K::HIDDEN + k;
        if constexpr (K::HIDDEN % 4u == 0u) {
            return *reinterpret_cast<const float4*>(p);
        } else {
            return make_float4(p[0], k + 1u < K::HIDDEN ? p[1] : 0.0f, k + 2u < K::HIDDEN ? p[2] : 0.0f,
                               k + 3u < K::HIDDEN ? p[3] : 0.0f);
        }
    }

    DEV static float4* stored(u32 i, u32 j) {
        const u32 at = (threadIdx.x / 32u * K::TILES_M + i) * K::SHARED_K + j;
        return reinterpret_cast<float4*>(block_memory + WEIGHTS_AT) + at * 256u + threadIdx.x % 32u;
    }

    DEV static void hold(const K& frame, Held& held, u32 d, u32 rank) {
        const u32 warp = threadIdx.x / 32u;
        const u32 tile = warp % K::WARPS_OF_ROWS * K::TILES_M;
        const u32 step = warp / K::WARPS_OF_ROWS * K::TILES_K;
        if (warp >= K::WARPS_OF_ROWS * K::K_SPLIT) {
            return;
        }
#pragma unroll
        for (u32 i = 0u; i < K::TILES_M; i++) {
#pragma unroll
            for (u32 j = 0u; j < K::HELD_K; j++) {
#pragma unroll
                for (u32 r = 0u; r < 8u; r++) {
                    held.a[i * K::HELD_K + j][r] = four_of(frame, d, rank, (tile + i) * 8u + r, step + j);
                }
            }
            for (u32 j = 0u; j < K::SHARED_K; j++) {
                for (u32 r = 0u; r < 8u; r++) {
                    stored(i, j)[r * 32u] = four_of(frame, d, rank, (tile + i) * 8u + r, step + K::HELD_K + j);
                }
            }
        }
    }

    DEV static void add(f32& sum, float4 a, float4 h) {
        mac(sum, a.x, h.x);
        mac(sum, a.y, h.y);
        mac(sum, a.z, h.z);
        mac(sum, a.w, h.w);
    }

    // The sum of row lane / 4 over all lanes.
    DEV static f32 total(f32 (&v)[8]) {
        const u32 lane = threadIdx.x % 32u;
#pragma unroll
        for (u32 half = 4u; half > 0u; half /= 2u) {
            const bool upper = (lane & (half * 4u)) != 0u;
#pragma unroll
            for (u32 r = 0u; r < half; r++) {
                const f32 keep = upper ? v[r + half] : v[r];
                const f32 give = upper ? v[r] : v[r + half];
                v[r] = keep + __shfl_xor_sync(~0u, give, half * 4u);
            }
        }
        v[0] += __shfl_xor_sync(~0u, v[0], 2);
        return v[0] + __shfl_xor_sync(~0u, v[0], 1);
    }

    DEV static void multiply(const K& frame, const Held& held, const u8* state, f32* part, u32 columns, u32 d, u32 rank) {
        const u32 warp = threadIdx.x / 32u;
        const u32 lane = threadIdx.x % 32u;
        const u32 tile = warp % K::WARPS_OF_ROWS * K::TILES_M;
        const u32 split = warp / K::WARPS_OF_ROWS;
        if (split >= K::K_SPLIT) {
            return;
        }
        for (u32 n = 0u; n < columns; n += K::AT_ONCE) {
            f32 sum[K::TILES_M][K::AT_ONCE][8] = {};
            const u8* from = state + n * STATE_PITCH + split * K::TILES_K * 512u + lane * 16u;
            const auto chunk = [&](u32 i, u32 j, const float4 (&a)[8]) {
#pragma unroll
                for (u32 c = 0u; c < K::AT_ONCE; c++) {
                    if (n + c < columns) {
                        const float4 h = *reinterpret_cast<const float4*>(from + c * STATE_PITCH + j * 512u);
#pragma unroll
                        for (u32 r = 0u; r < 8u; r++) {
                            add(sum[i][c][r], a[r], h);
                        }
                    }
                }
            };
#pragma unroll
            for (u32 i = 0u; i < K::TILES_M; i++) {
#pragma unroll
                for (u32 j = 0u; j < K::HELD_K; j++) {
                    chunk(i, j, held.a[i * K::HELD_K + j]);
                }
#pragma unroll 1
                for (u32 j = K::HELD_K; j < K::TILES_K; j++) {
                    float4 a[8];
#pragma unroll
                    for (u32 r = 0u; r < 8u; r++) {
                        a[r] = j < K::HELD_K + K::SHARED_K ? stored(i, j - K::HELD_K)[r * 32u]
                                                     : four_of(frame, d, rank, (tile + i) * 8u + r, split * K::TILES_K + j);
                    }
                    chunk(i, j, a);
                }
            }
#pragma unroll
            for (u32 i = 0u; i < K::TILES_M; i++) {
#pragma unroll
                for (u32 c = 0u; c < K::AT_ONCE; c++) {
                    if (n + c >= columns || (tile + i) * 8u >= K::UNITS * K::GATES) {
                        break;
                    }
                    const f32 sums = total(sum[i][c]);
                    if (lane % 4u == 0u) {
                        part[(split * K::COLUMNS + n + c) * K::PART_PITCH + (tile + i) * 8u + lane / 4u] = sums;
                    }
                }
            }
        }
    }
};
