// Products of recurrences that one block runs alone; see block.cuh. A quad is up to four rows of R that a group of SPLIT lanes has: the
// gates of a unit, or four units of a plain network. A group has QUADS of them. A lane multiplies all rows of its group, at every
// SPLIT-th four of the depth, so that a state that it reads is good for all of them; then lanes exchange sums.
#pragma once
#include "../prelude/storage.cuh"

// Weights that find no room in registers.
extern __shared__ __align__(128) u8 block_memory[];

template <class K> struct Quads {
    static constexpr u32 QUADS = K::QUADS;
    static constexpr u32 SPLIT = K::SPLIT;
    static constexpr u32 HIDDEN = K::HIDDEN;
    static constexpr u32 ROWS = K::GRU ? 3u : 4u;
    static constexpr bool PLAIN = K::GATES == 1u;
    // Units of a quad.
    static constexpr u32 UNITS = PLAIN ? 4u : 1u;
    // Fours of the depth of a lane.
    static constexpr u32 FOURS = (HIDDEN + 4u * SPLIT - 1u) / (4u * SPLIT);
    static constexpr u32 ALL = FOURS * QUADS * ROWS;
    // States of all units, zeros behind them.
    static constexpr u32 PADDED = FOURS * SPLIT * 4u;

    // The thread's number, out of a shuffle: from the register of threads a compiler would read it again at each step, which takes long.
    const u32 l;
    float4 held[K::HELD];

    DEV Quads() : l(__shfl_sync(~0u, threadIdx.x, threadIdx.x % 32u)) {}

    // The unit of a quad of this thread; units beyond HIDDEN have no weights.
    DEV u32 unit(u32 q) const {
        const u32 quad = l / SPLIT * QUADS + q;
        return PLAIN ? quad * 4u + l % 4u : quad;
    }

    DEV static f32 float_of(u16 v) { return K::BF16 ? bf16_to_f32(v) : f16_to_f32(v); }

    // Four neighbouring elements of a row of R, zeros beyond it.
    DEV float4 four_of(const K& frame, u32 d, u32 q, u32 r, u32 c) const {
        const u32 quad = l / SPLIT * QUADS + q;
        const u32 j = PLAIN ? quad * 4u + r : quad;
        const u32 from = (c * SPLIT + l % SPLIT) * 4u;
        if (j >= HIDDEN || from >= HIDDEN) {
            return make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        }
        const u32 at = ((d * K::GATES + (PLAIN ? 0u : r)) * HIDDEN + j) * HIDDEN + from;
        if constexpr (HIDDEN % 4u != 0u) {
            return make_float4(frame.x2(at), from + 1u < HIDDEN ? frame.x2(at + 1u) : 0.0f,
                               from + 2u < HIDDEN ? frame.x2(at + 2u) : 0.0f, from + 3u < HIDDEN ? frame.x2(at + 3u) : 0.0f);
        } else if constexpr (K::NARROW) {
            const auto a = Pack<u16>::of(frame.bx2 + at);
            return make_float4(float_of(a.v[0]), float_of(a.v[1]), float_of(a.v[2]), float_of(a.v[3]));
        } else {
            return *reinterpret_cast<const float4*>(frame.bx2 + at);
        }
    }

    DEV float4* stored(u32 i) const {
        return reinterpret_cast<float4*>(block_memory) + (i - K::HELD) * K::THREADS + l;
    }

    DEV void hold(const K& frame, u32 d) {
#pragma unroll
        for (u32 i = 0u; i < ALL; i++) {
            const float4 a = four_of(frame, d, i / ROWS % QUADS, i % ROWS, i / ROWS / QUADS);
            if (i < K::HELD) {
                held[i] = a;
            } else {
                *stored(i) = a;
            }
        }
    }

    // Adds this lane's share of COUNT rows of each quad.
    template <u32 FROM, u32 COUNT> DEV void multiply(const f32* state, f32 (&sum)[QUADS][COUNT]) const {
        const float4* from = reinterpret_cast<const float4*>(state) + l % SPLIT;
#pragma unroll
        for (u32 c = 0u; c < FOURS; c++) {
            const float4 h = from[c * SPLIT];
#pragma unroll
            for (u32 q = 0u; q < QUADS; q++) {
#pragma unroll
                for (u32 r = 0u; r < COUNT; r++) {
                    const u32 i = (c * QUADS + q) * ROWS + FROM + r;
                    const float4 a = i < K::HELD ? held[i] : *stored(i);
                    mac(sum[q][r], a.x, h.x);
                    mac(sum[q][r], a.y, h.y);
                    mac(sum[q][r], a.z, h.z);
                    mac(sum[q][r], a.w, h.w);
                }
            }
        }
    }

    DEV static f32 plus(f32 v, u32 distance) { return v + __shfl_xor_sync(~0u, v, distance); }

    // The sum of one of two rows over lanes that differ in a bit.
    DEV f32 one_of(f32 low, f32 high, u32 bit) const {
        const bool upper = (l & bit) != 0u;
        return (upper ? high : low) + __shfl_xor_sync(~0u, upper ? low : high, bit);
    }

    // The sum of a row over the lanes of a group: lane l gets that of row l % 4 where there are three or four rows, of row l % 2 of two.
    template <u32 COUNT> DEV f32 total(const f32 (&v)[COUNT]) const {
        f32 sum;
        if constexpr (COUNT == 1u) {
            sum = plus(plus(v[0], 1u), 2u);
        } else if constexpr (COUNT == 2u) {
            sum = plus(one_of(v[0], v[1], 1u), 2u);
        } else {
            const f32 even = one_of(v[0], v[2], 2u);
            sum = one_of(even, one_of(v[1], COUNT == 4u ? v[COUNT - 1u] : 0.0f, 2u), 1u);
        }
#pragma unroll
        for (u32 distance = 4u; distance < SPLIT; distance *= 2u) {
            sum = plus(sum, distance);
        }
        return sum;
    }
};
