// Shared memory of attention by wgmma: its stages, their barriers, and the products of a warpgroup.
#pragma once
#include "../wgmma/barriers.cuh"
#include "../wgmma/operands.cuh"
#include "scores.cuh"

template <class K> struct WgmmaShape {
    typedef Shape<K> T;
    static constexpr u32 STEPS_Q = (K::DQ + 15u) / 16u;
    static constexpr u32 BYTES_Q = (K::DQ + 63u) / 64u * K::BM * 128u;
    static constexpr u32 BYTES_K = (K::DQ + 63u) / 64u * K::BN * 128u;
    static constexpr u32 BYTES_V = (K::DV + 63u) / 64u * K::BN * 128u;
    // A stage of the mask is behind its keys.
    static constexpr u32 BYTES_M = K::BOXED_MASK ? K::BN / 64u * K::BM * 128u : 0u;
    static constexpr u32 KEY_STAGE = BYTES_K + BYTES_M;
    // Stages of keys and of values. AT_ONCE, one has all of them, and results have a place of their own.
    static constexpr u32 STAGES = K::AT_ONCE ? 1u : 2u;
    static constexpr u32 BYTES_Y = K::AT_ONCE ? (K::DV + 63u) / 64u * K::BM * 128u : 0u;
    // Arrivals that make a stage full.
    static constexpr u32 FILLERS = K::BOXES ? 1u : T::COPIERS;
    // The sums of a thread as the instruction has them.
    typedef f32 ScoreSums[K::BN / 2u];
    typedef f32 ValueSums[K::DV / 2u];
    typedef u32 Weights[K::BN / 16u][4];

    DEV static u8* queries() { return block_memory + ((1024u - address(block_memory) % 1024u) % 1024u); }
    DEV static u8* results() { return queries() + (K::AT_ONCE ? BYTES_Q : 0u); }
    DEV static u8* keys(u32 step) { return queries() + BYTES_Q + BYTES_Y + step % STAGES * KEY_STAGE; }
    DEV static u8* mask(u32 step) { return keys(step) + BYTES_K; }
    DEV static u8* values(u32 step) { return queries() + BYTES_Q + BYTES_Y + STAGES * KEY_STAGE + step % STAGES * BYTES_V; }

    // Barriers of the stage of a step: keys or values are there, or were read by all. Steps are counted over all tiles of a block.
    DEV static u32 barriers() { return address(queries() + BYTES_Q + BYTES_Y + STAGES * (KEY_STAGE + BYTES_V)); }
    DEV static u32 keys_full(u32 step) { return barriers() + step % STAGES * 8u; }
    DEV static u32 keys_empty(u32 step) { return barriers() + 16u + step % STAGES * 8u; }
    DEV static u32 values_full(u32 step) { return barriers() + 32u + step % STAGES * 8u; }
    DEV static u32 values_empty(u32 step) { return barriers() + 48u + step % STAGES * 8u; }

    // Barriers of the queries of a tile, where a block has several.
    DEV static u32 queries_full() { return barriers() + 64u; }
    DEV static u32 queries_empty() { return barriers() + 72u; }

    DEV static void init_barriers() {
        for (u32 i = 0u; i < STAGES; i++) {
            barrier_init(keys_full(i), FILLERS);
            barrier_init(values_full(i), FILLERS);
            barrier_init(keys_empty(i), T::THREADS / 32u);
            barrier_init(values_empty(i), T::THREADS / 32u);
        }
        barrier_init(queries_full(), FILLERS);
        barrier_init(queries_empty(), T::THREADS / 32u);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }

    // Waits until the stage of a step is full; for its use before, that it is empty.
    DEV static void wait_full(u32 barrier, u32 step) { barrier_wait(barrier, step / STAGES % 2u); }
    DEV static void wait_empty(u32 barrier, u32 step) { barrier_wait(barrier, step / STAGES % 2u ^ 1u); }

    // Tells that a warp has read a stage.
    DEV static void read(u32 barrier) {
        if (threadIdx.x % 32u == 0u) {
            barrier_arrive(barrier);
        }
    }

    // Waits for the turn of a warpgroup, and ends it.
    DEV static void begin_turn(u32 group) {
        if constexpr (K::IN_TURNS) {
            asm volatile("bar.sync %0, %1;" ::"r"(2u + group), "n"(T::THREADS) : "memory");
        }
    }
    DEV static void end_turn(u32 group) {
        if constexpr (K::IN_TURNS) {
            asm volatile("bar.arrive %0, %1;" ::"r"(3u - group), "n"(T::THREADS) : "memory");
        }
    }

    template <u32 N> DEV static void settle_all(f32 (&sums)[N]) {
#pragma unroll
        for (u32 i = 0u; i < N; i++) {
            settle(sums[i]);
        }
    }

    DEV static void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
    DEV static void end_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

    // Starts s = queries x keys for the rows of a warpgroup.
    DEV static void start_scores(typename T::Scores& s, u32 group, u32 step) {
        const u32 q = address(queries()) + group * 8192u;
        const u32 k = address(keys(step));
        ScoreSums& sums = reinterpret_cast<ScoreSums&>(s);
        fence();
#pragma unroll
        for (u32 d = 0u; d < STEPS_Q; d++) {
            const u64 a = descriptor(q + d / 4u * (K::BM * 128u) + d % 4u * 32u, 1u);
            const u64 b = descriptor(k + d / 4u * (K::BN * 128u) + d % 4u * 32u, 1u);
            if (d == 0u) {
                K::ScoreStep::begin(sums, a, b);
            } else {
                K::ScoreStep::multiply(sums, a, b);
            }
        }
        end_group();
    }

    // Starts o += weights x values.
    DEV static void start_values(typename T::Sums& o, const Weights& weights, u32 step) {
        const u32 v = address(values(step));
        ValueSums& sums = reinterpret_cast<ValueSums&>(o);
        settle_all(sums);
        fence();
#pragma unroll
        for (u32 j = 0u; j < K::BN / 16u; j++) {
            K::ValueStep::multiply(sums, weights[j], descriptor(v + j * 2048u, K::BN * 8u));
        }
        end_group();
    }

    // Waits for the scores, which were started before at most one other group.
    template <u32 OTHERS> DEV static void finish_scores(typename T::Scores& s) {
        asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(OTHERS) : "memory");
        settle_all(reinterpret_cast<ScoreSums&>(s));
    }

    DEV static void finish_values(typename T::Sums& o) {
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        settle_all(reinterpret_cast<ValueSums&>(o));
    }

    // Applies the mask of a step to the scores of a warp, whose lines begin with `line`.
    DEV static void put_boxed_mask(const K& k, const FlashParams& p, typename T::Scores& s, u32 line, u32 step) {
        const u32 lane = threadIdx.x % 32u;
        const u8* rows = mask(step) + (line + lane / 4u) * 128u + lane % 4u * 4u;
        struct alignas(4) Pair {
            typename K::MaskCell a, b;
        };
#pragma unroll
        for (u32 h = 0u; h < 2u; h++) {
#pragma unroll
            for (u32 j = 0u; j < K::BN / 8u; j++) {
                const Pair x = *reinterpret_cast<const Pair*>(rows + j / 8u * (K::BM * 128u) + h * 1024u + (j % 8u ^ lane / 4u) * 16u);
                put_mask(k, p, s[0][j][2u * h], x.a);
                put_mask(k, p, s[0][j][2u * h + 1u], x.b);
            }
        }
    }

    // Weights as operands of 16 bits.
    DEV static void pack(Weights& weights, const typename T::Scores& s) {
#pragma unroll
        for (u32 j = 0u; j < K::BN / 16u; j++) {
#pragma unroll
            for (u32 r = 0u; r < 4u; r++) {
                const f32* at = s[0][2u * j + r / 2u] + r % 2u * 2u;
                weights[j][r] = pair<K>(at[0], at[1]);
            }
        }
    }
};
