// Products by weights that stay codes, by wgmma with TMA, for sm_90a. The weights are the first operand of the instruction, from
// registers: a lane reads codes where they are stored, two stages ahead, and makes them floats while the stage before is multiplied.
// Rows are the second operand: one warp copies them. A block makes GROUPS times 64 columns of ROWS rows; SPLIT blocks share the depth
// of a tile where it is more than 1. `Tile` is the structure of these constants, with the instruction, `multiply`, and its type, Mma.
#pragma once
#include "codes_values.cuh"
#include "../wgmma/copies.cuh"

extern __shared__ __align__(1024) u8 block_memory[];

template <class K> struct CodeGroups {
    typedef typename K::Tile Tile;
    typedef CodeValues<K, typename Tile::Mma> Values;
    static constexpr u32 BN = Tile::ROWS;
    static constexpr u32 GROUPS = Tile::GROUPS;
    static constexpr u32 STAGES = Tile::STAGES;
    static constexpr u32 BK = 64u;
    static constexpr u32 STAGE = BN * 128u;
    // Words from one row of sums in shared memory to the next: no two lanes meet in a bank.
    static constexpr u32 PITCH = 68u;
    static constexpr u32 BYTES_SUMS = BN * PITCH * 4u;
    static constexpr u32 ROOM = STAGES * STAGE > GROUPS * BYTES_SUMS ? STAGES * STAGE : GROUPS * BYTES_SUMS;
    // Parts of a stage that have a scale each.
    static constexpr u32 PARTS = K::ONE_PART ? 1u : 4u;
    // Words of codes of a lane: those of a whole row, or halves of words of its own.
    static constexpr u32 WORDS = 8u;

    typedef f32 Sums[BN / 2u];

    DEV static u32 stages_at() { return (address(block_memory) + 1023u) & ~1023u; }
    DEV static u32 full(u32 stage) { return stages_at() + ROOM + stage * 8u; }
    DEV static u32 empty(u32 stage) { return full(STAGES + stage); }

    DEV static void settle_all(Sums& sum) {
#pragma unroll
        for (u32 q = 0u; q < BN / 2u; q++) {
            settle(sum[q]);
        }
    }

    // Codes and scales of two rows of weights, eight apart, for a stage.
    struct Codes {
        u32 words[2][WORDS];
        u32 scale[2][PARTS];
        i32 zero[2][K::HAS_ZERO ? PARTS : 1u];

        // Reads those of the outputs from `output` on, at `at` of the depth. Beyond the last ones those are repeated.
        DEV void read(const K& k, const CodesParams& p, u32 output, u32 at) {
#pragma unroll
            for (u32 half = 0u; half < 2u; half++) {
                const u32 row = ::min(output + threadIdx.x % 32u / 4u + half * 8u, p.columns - 1u);
                const u32* from = reinterpret_cast<const u32*>(k.bx1) + u64(row) * p.length + at / K::CODES;
                if constexpr (K::CODES == 8u) {
#pragma unroll
                    for (u32 q = 0u; q < WORDS; q += 4u) {
                        const uint4 four = *reinterpret_cast<const uint4*>(from + q);
                        words[half][q] = four.x;
                        words[half][q + 1u] = four.y;
                        words[half][q + 2u] = four.z;
                        words[half][q + 3u] = four.w;
                    }
                } else {
                    const u16* own = reinterpret_cast<const u16*>(from) + threadIdx.x % 4u;
#pragma unroll
                    for (u32 q = 0u; q < WORDS; q++) {
                        words[half][q] = own[q * 4u];
                    }
                }
#pragma unroll
                for (u32 r = 0u; r < PARTS; r++) {
                    const u32 part = row / K::ACROSS * p.scales + (at + r * 16u) / K::ALONG;
                    scale[half][r] = bits_of(k.bx2[part]);
                    if constexpr (K::HAS_ZERO) {
                        zero[half][r] = k.zero_at(part);
                    }
                }
            }
        }

        // The operands of a stage, made where this stands.
        DEV void all_operands(u32 (&to)[4][4]) const {
#pragma unroll
            for (u32 s = 0u; s < 4u; s++) {
                operands(to[s], s);
#pragma unroll
                for (u32 q = 0u; q < 4u; q++) {
                    asm volatile("" : "+r"(to[s][q])::"memory");
                }
            }
        }

        // The operands of 16 of the depth, from `step` times 16 on.
        DEV void operands(u32 (&to)[4], u32 step) const {
            const u32 part = K::ONE_PART ? 0u : step;
            const u32 at = K::CODES == 8u ? threadIdx.x % 4u : 0u;
#pragma unroll
            for (u32 q = 0u; q < 4u; q++) {
                const u32 half = q % 2u;
                const u32 w = words[half][step * 2u + q / 2u] ^ Unsigned<K>::TURN;
                const i32 less = K::HAS_ZERO ? zero[half][K::HAS_ZERO ? part : 0u] : 0;
                to[q] = Values::scaled(Values::neighbours(w, at, less), scale[half][part]);
            }
        }
    };

    // Copies the rows of all stages.
    DEV static void copy_all(const K& k, u32 row, u32 first, u32 steps) {
        for (u32 step = 0u; step < steps; step++) {
            const u32 stage = step % STAGES;
            if (step >= STAGES) {
                barrier_wait(empty(stage), (step / STAGES + 1u) & 1u);
            }
            barrier_expect(full(stage), STAGE);
            box(stages_at() + stage * STAGE, k.maps, full(stage), 0u, row, first + step);
        }
    }

    // The sums of a warpgroup, of columns from `column` on.
    DEV static void multiply_all(Sums& sum, const K& k, const CodesParams& p, u32 column, u32 first, u32 steps) {
        const u32 output = column + threadIdx.x / 32u % 4u * 16u;
        Codes codes;
        // The operands of a stage and those of the next one, in turns: registers of a product in progress are not written.
        u32 even[4][4] = {};
        u32 odd[4][4] = {};
        const auto multiply = [&](u32 step, const u32 (&weights)[4][4], u32 (&next)[4][4]) {
            const u32 stage = step % STAGES;
            barrier_wait(full(stage), step / STAGES & 1u);
            settle_all(sum);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (u32 s = 0u; s < 4u; s++) {
                Tile::multiply(sum, weights[s], descriptor(stages_at() + stage * STAGE + s * 32u, 1u));
            }
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            if (step + 1u < steps) {
                codes.all_operands(next);
            }
            if (step + 2u < steps) {
                codes.read(k, p, output, (first + step + 2u) * BK);
            }
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            settle_all(sum);
            if (threadIdx.x % 32u == 0u) {
                barrier_arrive(empty(stage));
            }
        };
        if (steps > 0u) {
            codes.read(k, p, output, first * BK);
            codes.all_operands(even);
        }
        if (steps > 1u) {
            codes.read(k, p, output, (first + 1u) * BK);
        }
#pragma unroll 1
        for (u32 step = 0u; step < steps; step += 2u) {
            multiply(step, even, odd);
            if (step + 1u < steps) {
                multiply(step + 1u, odd, even);
            }
        }
    }

    // Sums to shared memory, a row of the result after the other.
    DEV static void lay_down(f32* rows, const Sums& sum) {
        const u32 line = threadIdx.x / 32u % 4u * 16u + threadIdx.x % 32u / 4u;
#pragma unroll
        for (u32 q = 0u; q < BN / 2u; q++) {
            const u32 row = q / 4u * 8u + threadIdx.x % 4u * 2u + q % 2u;
            rows[row * PITCH + line + q / 2u % 2u * 8u] = sum[q];
        }
    }
};

// The products of a tile, or parts of their sums.
template <class K> DEV void codes_groups(const K& k) {
    typedef CodeGroups<K> T;
    const auto& p = params<CodesParams>(k);
    const u32 across = (p.columns + T::GROUPS * 64u - 1u) / (T::GROUPS * 64u);
    const u32 part = blockIdx.x % K::SPLIT;
    const u32 tile = blockIdx.x / K::SPLIT;
    const u32 row0 = tile / across * T::BN;
    const u32 all = p.depth / T::BK;
    const u32 share = (all + K::SPLIT - 1u) / K::SPLIT;
    const u32 first = ::min(part * share, all);
    const u32 steps = ::min(share, all - first);
    if (threadIdx.x == 0u) {
        for (u32 s = 0u; s < T::STAGES; s++) {
            barrier_init(T::full(s), 1u);
            barrier_init(T::empty(s), T::GROUPS * 4u);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const u32 group = threadIdx.x / 128u;
    if (group == T::GROUPS) {
        if (threadIdx.x % 32u == 0u) {
            T::copy_all(k, row0, first, steps);
        }
        return;
    }
    const u32 column0 = (tile % across * T::GROUPS + group) * 64u;
    typename T::Sums sum = {};
    T::multiply_all(sum, k, p, column0, first, steps);
    // All warpgroups are done with the stages.
    asm volatile("bar.sync 1, %0;" ::"n"(T::GROUPS * 128u) : "memory");
    f32* const own = reinterpret_cast<f32*>(block_memory + (T::stages_at() - address(block_memory)) + group * T::BYTES_SUMS);
    T::lay_down(own, sum);
    asm volatile("bar.sync 1, %0;" ::"n"(T::GROUPS * 128u) : "memory");
    const u32 column = column0 + threadIdx.x % 8u * 8u;
    const u32 left = column < p.columns ? p.columns - column : 0u;
    for (u32 row = threadIdx.x % 128u / 8u; row < T::BN && row0 + row < p.rows && left > 0u; row += 16u) {
        f32 v[8];
#pragma unroll
        for (u32 half = 0u; half < 8u; half += 4u) {
            const auto four = Pack<f32>::of(own + row * T::PITCH + threadIdx.x % 8u * 8u + half);
            for (u32 i = 0u; i < 4u; i++) {
                v[half + i] = four.v[i];
            }
        }
        const u32 at = (row0 + row) * p.columns + column;
        if constexpr (K::SPLIT > 1u) {
            f32* to = reinterpret_cast<f32*>(k.scratch) + u64(part) * p.rows * p.columns + at;
            for (u32 i = 0u; i < 8u && i < left; i++) {
                to[i] = v[i];
            }
        } else if (p.columns % 8u == 0u) {
            k.emit0_run(at, v);
        } else {
            for (u32 i = 0u; i < 8u && i < left; i++) {
                k.emit0(at + i, v[i]);
            }
        }
    }
}
