// Attention in one pass over the keys by wgmma, for sm_90a and elements of 16 bits: every warpgroup has 64 rows, one more copies.
// Queries, and the rings of two stages of keys and of values, have the swizzle of 128 bytes. The next scores are computed together with
// the sums of the last weights and values. IN_TURNS, one of two warpgroups starts its products when the other one has started its own,
// so that it weighs while the other one's are computed; BESIDE, a warpgroup weighs while its own sums are computed.
#pragma once
#include "../wgmma/barriers.cuh"
#include "../wgmma/operands.cuh"
#include "results.cuh"
#include "scores.cuh"
#include "work.cuh"

template <class K> struct WgmmaShape {
    typedef Shape<K> T;
    static constexpr u32 STEPS_Q = (K::DQ + 15u) / 16u;
    static constexpr u32 BYTES_Q = (K::DQ + 63u) / 64u * K::BM * 128u;
    static constexpr u32 BYTES_K = (K::DQ + 63u) / 64u * K::BN * 128u;
    static constexpr u32 BYTES_V = (K::DV + 63u) / 64u * K::BN * 128u;
    // The sums of a thread as the instruction has them.
    typedef f32 ScoreSums[K::BN / 2u];
    typedef f32 ValueSums[K::DV / 2u];
    typedef u32 Weights[K::BN / 16u][4];

    DEV static u8* queries() { return block_memory + ((1024u - address(block_memory) % 1024u) % 1024u); }
    DEV static u8* keys(u32 stage) { return queries() + BYTES_Q + stage * BYTES_K; }
    DEV static u8* values(u32 stage) { return queries() + BYTES_Q + 2u * BYTES_K + stage * BYTES_V; }

    // Barriers of the stage of a step: keys or values are there, or were read by all.
    DEV static u32 barriers() { return address(values(2u)); }
    DEV static u32 keys_full(u32 step) { return barriers() + step % 2u * 8u; }
    DEV static u32 keys_empty(u32 step) { return barriers() + 16u + step % 2u * 8u; }
    DEV static u32 values_full(u32 step) { return barriers() + 32u + step % 2u * 8u; }
    DEV static u32 values_empty(u32 step) { return barriers() + 48u + step % 2u * 8u; }

    DEV static void init_barriers() {
        for (u32 i = 0u; i < 2u; i++) {
            barrier_init(keys_full(i), T::COPIERS);
            barrier_init(values_full(i), T::COPIERS);
            barrier_init(keys_empty(i), T::THREADS / 32u);
            barrier_init(values_empty(i), T::THREADS / 32u);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }

    // Waits until the stage of a step is full; for its use before, that it is empty.
    DEV static void wait_full(u32 barrier, u32 step) { barrier_wait(barrier, step / 2u % 2u); }
    DEV static void wait_empty(u32 barrier, u32 step) { barrier_wait(barrier, step / 2u % 2u ^ 1u); }

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
    DEV static void start_scores(typename T::Scores& s, u32 group, u32 stage) {
        const u32 q = address(queries()) + group * 8192u;
        const u32 k = address(keys(stage));
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
    DEV static void start_values(typename T::Sums& o, const Weights& weights, u32 stage) {
        const u32 v = address(values(stage));
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

// Copies queries, then keys and values in the order in which they are read. A stage is reported when the copies of the next one are
// on their way.
template <class K> DEV void copy_all(const K& k, const FlashParams& p, const BlockWork<K>& w) {
    typedef WgmmaShape<K> W;
    const BlockKeys<K> of_block(k, p, w.b, w.kv);
    u32 unreported = 0u;
    const auto report = [&](u32 barrier) {
        commit();
        if (unreported != 0u) {
            arrived<1u>();
            asm volatile("fence.proxy.async;" ::: "memory");
            barrier_arrive(unreported);
        }
        unreported = barrier;
    };
    const auto copy_keys = [&](u32 step) {
        if (step < w.steps) {
            W::wait_empty(W::keys_empty(step), step);
            of_block.load(p, W::keys(step % 2u), w.first + step * K::BN, w.last);
            report(W::keys_full(step));
        }
    };
    // Without keys there are results at once, where queries would be.
    if (w.steps == 0u) {
        return;
    }
    w.load_queries(k, p, W::queries());
    copy_keys(0u);
    for (u32 step = 0u; step < w.steps; step++) {
        copy_keys(step + 1u);
        W::wait_empty(W::values_empty(step), step);
        of_block.load_values(p, W::values(step % 2u), w.first + step * K::BN, w.last);
        report(W::values_full(step));
    }
    arrived<0u>();
    asm volatile("fence.proxy.async;" ::: "memory");
    barrier_arrive(unreported);
}

template <class K> DEV void flash_wgmma(const K& k) {
    typedef Shape<K> T;
    typedef WgmmaShape<K> W;
    constexpr u32 BN = K::BN;
    const auto& p = params<FlashParams>(k);
    const BlockWork<K> w(k, p);
    const u32 steps = w.steps;
    if (threadIdx.x == 0u) {
        W::init_barriers();
    }
    __syncthreads();
    if (threadIdx.x >= T::THREADS) {
        if constexpr (T::THREADS == 256u) {
            asm volatile("setmaxnreg.dec.sync.aligned.u32 88;");
        }
        copy_all(k, p, w);
        return;
    }
    if constexpr (T::THREADS == 256u) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
    }
    const u32 group = threadIdx.x / 128u;
    const u32 line = threadIdx.x / 32u * 16u;
    const WarpRows<K> of_rows(p, w, line);
    // Steps whose keys at least one row of the warpgroup sees.
    const u32 begin = w.r0 + group * 64u;
    const u32 reach = begin >= w.rows ? 0u : K::CAUSAL ? ::min(w.last, w.seen(p, begin, begin + 64u)) : w.last;
    const u32 own = reach > w.first ? (reach - w.first + BN - 1u) / BN : 0u;

    typename T::Sums o = {};
    typename T::OfRows top;
    typename T::OfRows sum = {};
    typename W::Weights weights;
    SoonMask<K> mask;
    mask.read(k, p, of_rows.mask_at, w.first, own > 0u ? w.last : 0u);
    top[0][0] = top[0][1] = cf(MINUS_INFINITY);
    // Scores of a step to weights; the mask of the next step is on its way from then on.
    const auto weigh_scores = [&](typename T::Scores& s, typename T::OfRows& less, u32 step) {
        const u32 j0 = w.first + step * BN;
        if constexpr (SoonMask<K>::SOON) {
            cap_scores<K>(p, s);
            if (!mask.put(k, p, s)) {
                add_mask(k, p, s, of_rows.mask_at, j0, w.last);
            }
            mask.read(k, p, of_rows.mask_at, j0 + BN, step + 1u < own ? w.last : 0u);
        } else {
            finish_scores(k, p, s, of_rows.mask_at, j0, w.last);
        }
        if (j0 + BN > ::min(w.valid, w.last) || (K::CAUSAL && j0 + BN > of_rows.all_see + 1u)) {
            exclude<K, BN>(s, of_rows.sees, j0, w.valid, w.last);
        }
        soften_scores<K, BN>(s, less, top, sum, p.power);
    };
    if (steps > 0u) {
        W::wait_full(W::keys_full(0u), 0u);
        if (group == 1u) {
            W::end_turn(group);
        }
    }
    if (own > 0u) {
        typename T::Scores s;
        typename T::OfRows less;
        W::start_scores(s, group, 0u);
        W::template finish_scores<0u>(s);
        weigh_scores(s, less, 0u);
        W::pack(weights, s);
    }
    W::read(W::keys_empty(0u));
    for (u32 step = 0u; step < steps; step++) {
        const u32 next = step + 1u;
        if (next < steps) {
            W::wait_full(W::keys_full(next), next);
        }
        if (next < own) {
            typename T::Scores s;
            typename T::OfRows less;
            W::begin_turn(group);
            W::start_scores(s, group, next % 2u);
            W::wait_full(W::values_full(step), step);
            W::start_values(o, weights, step % 2u);
            W::end_turn(group);
            W::template finish_scores<1u>(s);
            W::read(W::keys_empty(next));
            if constexpr (K::BESIDE) {
                weigh_scores(s, less, next);
                W::finish_values(o);
                W::read(W::values_empty(step));
            } else {
                // Stages are free again while weights are made, and other warpgroups multiply.
                W::finish_values(o);
                W::read(W::values_empty(step));
                weigh_scores(s, less, next);
            }
            scale_down<K>(o, less);
            W::pack(weights, s);
        } else {
            W::wait_full(W::values_full(step), step);
            if (step < own) {
                W::begin_turn(group);
                W::start_values(o, weights, step % 2u);
                W::end_turn(group);
                W::finish_values(o);
            } else {
                W::begin_turn(group);
                W::end_turn(group);
            }
            W::read(W::keys_empty(next));
            W::read(W::values_empty(step));
        }
    }
    // The turn after the last one.
    if (steps > 0u && group == 0u) {
        W::begin_turn(group);
    }
    release();
    T::meet();
    if constexpr (T::OWN_ROWS) {
        if (w.r0 + line < w.rows) {
            own_rows(k, p, o, sum, line, w.b, w.kv, w.r0, w.rows - w.r0 - line);
        }
    } else {
        gather_rows(k, p, o, top, sum, w.part, w.b, w.kv, w.r0);
    }
}
