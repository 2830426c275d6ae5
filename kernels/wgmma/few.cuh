// Products with few rows by wgmma with TMA, for sm_90a, whatever the element type: 64 columns of the result are the rows of
// the instruction, ROWS rows of the result its columns, so that little is multiplied in vain. A block makes one tile: one warp
// copies, a warpgroup multiplies. A stage is CHUNK times 128 bytes of K, a block multiplies STEPS of them, and STAGES have room.
// Constant weights are on their way before what the kernel depends on is done. SPLIT blocks of a cluster share the depth of a
// tile: each adds up a share of its rows. `Tile` is the structure of these constants, with the type of sums and the instruction,
// `multiply`; ACROSS_W, the weights are across the depth.
// Moments of rows travel in the words between rows of sums.
#pragma once
#include "copies.cuh"
#include "moments.cuh"
#include "results.cuh"

extern __shared__ __align__(1024) u8 block_memory[];

DEV void sync_group() { asm volatile("bar.sync 1, 128;" ::: "memory"); }

// Sends shared memory of this block to another one, whose barrier counts the bytes.
DEV void send(u32 to, u32 from, u32 bytes, u32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "r"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

template <class Tile> struct FewTiles {
    typedef typename Tile::Sum Sum;
    static constexpr u32 BN = Tile::ROWS;
    static constexpr u32 SPLIT = Tile::SPLIT;
    static constexpr u32 STEPS = Tile::STEPS;
    static constexpr u32 CHUNK = Tile::CHUNK;
    static constexpr u32 STAGES = Tile::STAGES;
    static constexpr u32 BK = 128u / Tile::SIZE;
    static constexpr u32 BYTES_W = CHUNK * 8192u;
    static constexpr u32 BYTES_X = CHUNK * BN * 128u;
    static constexpr u32 STAGE = BYTES_W + BYTES_X;
    static constexpr u32 SUMS = BN / 2u;
    // Elements of the whole depth.
    static constexpr f32 DEPTH = f32(SPLIT * STEPS * CHUNK * BK);
    // Parts of the depth that are multiplied without a loop at most.
    static constexpr u32 UNROLLED = 24u;
    // Words from one row of sums in shared memory to the next: no two lanes meet in a bank.
    static constexpr u32 PITCH = 68u;
    static constexpr u32 SHARE = BN / SPLIT;
    static constexpr u32 BYTES_SHARE = SHARE * PITCH * 4u;
    // Stages, or all sums.
    static constexpr u32 ROOM = STAGES * STAGE > SPLIT * BYTES_SHARE ? STAGES * STAGE : SPLIT * BYTES_SHARE;
    // Columns of a tile.
    static constexpr u32 COLUMNS = 64u;

    // The sums of a thread.
    typedef Sum Sums[SUMS];

    DEV static u32 stages_at() { return (address(block_memory) + 1023u) & ~1023u; }
    DEV static u32 shares_at() { return stages_at() + ROOM; }
    DEV static u32 full(u32 stage) { return shares_at() + (SPLIT - 1u) * BYTES_SHARE + stage * 8u; }
    DEV static u32 empty(u32 stage) { return full(STAGES + stage); }
    DEV static u32 received() { return full(2u * STAGES); }

    DEV static void settle_all(Sums& sum) {
#pragma unroll
        for (u32 q = 0u; q < SUMS; q++) {
            settle(sum[q]);
        }
    }

    // Starts all copies of a block, from part `part` of the depth: `weights(step, to, barrier)` and `rows(step, to, barrier)`
    // those of a step. `constant` weights need not wait.
    template <class Weights, class Rows> DEV static void copy_all(bool constant, Weights weights, Rows rows) {
        release();
        constexpr u32 AHEAD = STAGES < STEPS ? STAGES : STEPS;
        const auto begin = [&](u32 step) {
            barrier_expect(full(step % STAGES), STAGE);
            weights(step, stages_at() + step % STAGES * STAGE, full(step % STAGES));
        };
        const auto end = [&](u32 step) { rows(step, stages_at() + step % STAGES * STAGE + BYTES_W, full(step % STAGES)); };
        if (constant) {
            for (u32 step = 0u; step < AHEAD; step++) {
                begin(step);
            }
        }
        depend();
        for (u32 step = 0u; step < AHEAD; step++) {
            if (!constant) {
                begin(step);
            }
            end(step);
        }
        for (u32 step = AHEAD; step < STEPS; step++) {
            barrier_wait(empty(step % STAGES), (step / STAGES + 1u) & 1u);
            begin(step);
            end(step);
        }
    }

    // Starts the products of a stage.
    DEV static void multiply_stage(Sums& sum, u32 at) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (u32 c = 0u; c < CHUNK; c++) {
#pragma unroll
            for (u32 k = 0u; k < 4u; k++) {
                const u64 w = descriptor(at + c * 8192u + k * (Tile::ACROSS_W ? 2048u : 32u), Tile::ACROSS_W ? 512u : 1u);
                Tile::multiply(sum, w, descriptor(at + BYTES_W + c * BN * 128u + k * 32u, 1u));
            }
        }
    }

    DEV static void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

    // Waits for the products of all stages but the last one.
    DEV static void settle_before() { asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory"); }

    DEV static void free_stage(u32 stage) {
        if (threadIdx.x % 32u == 0u) {
            barrier_arrive(empty(stage));
        }
    }

    // The products of all stages: one after the other without a loop, where they are few. `beside(at)` is done with the rows of a stage
    // while they are multiplied.
    template <class Beside> DEV static void multiply_all(Sums& sum, Beside beside) {
        settle_all(sum);
        if constexpr (STEPS * CHUNK <= UNROLLED) {
#pragma unroll
            for (u32 step = 0u; step < STEPS; step++) {
                barrier_wait(full(step % STAGES), step / STAGES & 1u);
                multiply_stage(sum, stages_at() + step % STAGES * STAGE);
                if (STAGES < STEPS || step + 1u == STEPS) {
                    commit();
                }
                beside(stages_at() + step % STAGES * STAGE + BYTES_W);
                if (step > 0u && step - 1u + STAGES < STEPS) {
                    settle_before();
                    free_stage((step - 1u) % STAGES);
                }
            }
        } else {
#pragma unroll 1
            for (u32 step = 0u; step < STEPS; step++) {
                barrier_wait(full(step % STAGES), step / STAGES & 1u);
                settle_all(sum);
                multiply_stage(sum, stages_at() + step % STAGES * STAGE);
                commit();
                beside(stages_at() + step % STAGES * STAGE + BYTES_W);
                settle_before();
                settle_all(sum);
                if (step > 0u) {
                    free_stage((step - 1u) % STAGES);
                }
            }
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        settle_all(sum);
    }

    // Sums to shared memory, a row of the result after the other.
    DEV static void lay_down(Sum* rows, const Sums& sum) {
        const u32 line = threadIdx.x / 32u * 16u + threadIdx.x % 32u / 4u;
#pragma unroll
        for (u32 q = 0u; q < SUMS; q++) {
            const u32 row = q / 4u * 8u + threadIdx.x % 4u * 2u + q % 2u;
            rows[row * PITCH + line + q / 2u % 2u * 8u] = sum[q];
        }
    }
};

// One tile of a cluster's: `tile` counts tiles, of `rows` x `cols` results. `weights(column, step, ...)` and
// `operands(row, step, ...)` start copies as in `FewTiles::copy_all`.
template <class K, class Weights, class Operands>
DEV void make_few(const K& k, u32 rows, u32 cols, bool constant, Weights weights, Operands operands) {
    typedef FewTiles<typename K::Tile> T;
    typedef WholeSums<K> To;
    typedef typename T::Sum Sum;
    constexpr u32 SPLIT = T::SPLIT;
    constexpr u32 SHARE = T::SHARE;
    constexpr u32 PITCH = T::PITCH;
    constexpr u32 BOTH = SIDES<K>;
    static_assert(BOTH == 1u || K::SIDE == T::COLUMNS / 2u, "gates in front of their values");
    // Threads that share the results of a row, and runs of eight results of a thread.
    constexpr u32 ACROSS = T::COLUMNS / 8u / BOTH;
    constexpr u32 RUNS = (SHARE * ACROSS + 127u) / 128u;
    const u32 rank = blockIdx.x % SPLIT;
    const u32 tile = blockIdx.x / SPLIT;
    const u32 down = (rows + T::BN - 1u) / T::BN;
    const u32 row0 = tile % down * T::BN;
    const u32 col0 = tile / down * 64u;
    if (threadIdx.x == 0u) {
        for (u32 s = 0u; s < T::STAGES; s++) {
            barrier_init(T::full(s), 1u);
            barrier_init(T::empty(s), 4u);
        }
        barrier_init(T::received(), 1u);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        if constexpr (SPLIT > 1u) {
            barrier_expect(T::received(), (SPLIT - 1u) * T::BYTES_SHARE);
        }
    }
    __syncthreads();
    if constexpr (SPLIT > 1u) {
        meet();
    }
    if (threadIdx.x >= 128u) {
        if (threadIdx.x == 128u) {
            const u32 first = rank * T::STEPS;
            T::copy_all(
                constant, [&](u32 step, u32 to, u32 barrier) { weights(col0, (first + step) * T::CHUNK, to, barrier); },
                [&](u32 step, u32 to, u32 barrier) { operands(row0, (first + step) * T::CHUNK, to, barrier); });
        }
        __syncwarp();
        if constexpr (SPLIT > 1u) {
            met();
            meet();
            met();
        }
        return;
    }
    depend();
    // The first column of sums of this thread, and of their results.
    const u32 own_col = threadIdx.x % ACROSS * 8u;
    const u32 col = col0 + own_col;
    const u32 result = col0 / BOTH + own_col;
    const u32 results = cols / BOTH;
    const bool runs = cols % 8u == 0u && To::even(k);
    const typename To::Columns columns = runs ? To::fetch_columns(k, col < cols ? col : 0u, col < cols ? result : 0u) : typename To::Columns{};
    const auto fetch = [&](u32 q) {
        const u32 row = threadIdx.x / ACROSS + q * (128u / ACROSS);
        const bool inside = row < SHARE && row0 + rank * SHARE + row < rows && col < cols;
        return To::fetch_sums(k, inside ? (row0 + rank * SHARE + row) * results + result : 0u);
    };
    // More would not fit beside the sums.
    constexpr bool SOON = RUNS <= 8u;
    typename To::Beside beside[SOON ? RUNS : 1u];
    if (SOON && runs) {
#pragma unroll
        for (u32 q = 0u; q < RUNS; q++) {
            beside[SOON ? q : 0u] = fetch(q);
        }
    }
    u8* const stages = block_memory + (T::stages_at() - address(block_memory));
    RowMoments<K, T::BN> moments;
    typename T::Sums sum = {};
    T::multiply_all(sum, [&](u32 at) {
#pragma unroll
        for (u32 c = 0u; c < T::CHUNK; c++) {
            moments.add(k, stages + (at - T::stages_at()) + c * T::BN * 128u);
        }
    });
    // All warps are done with the stages.
    sync_group();
    Sum* const own = reinterpret_cast<Sum*>(stages);
    T::lay_down(own, sum);
    moments.put(reinterpret_cast<f32*>(stages) + 64u, PITCH);
    if constexpr (SPLIT > 1u) {
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        sync_group();
        met();
        if (threadIdx.x < SPLIT && threadIdx.x != rank) {
            const u32 to = threadIdx.x;
            const u32 place = T::shares_at() + (rank < to ? rank : rank - 1u) * T::BYTES_SHARE;
            send(address_in(place, to), T::stages_at() + to * T::BYTES_SHARE, T::BYTES_SHARE, address_in(T::received(), to));
        }
        barrier_wait(T::received(), 0u);
    } else {
        sync_group();
    }
    const Sum* const others = reinterpret_cast<const Sum*>(stages + T::ROOM);
#pragma unroll
    for (u32 q = 0u; q < RUNS; q++) {
        const u32 row = threadIdx.x / ACROSS + q * (128u / ACROSS);
        if (row >= SHARE || row0 + rank * SHARE + row >= rows || col >= cols) {
            continue;
        }
        Sum v[BOTH][8] = {};
        f32 of_row[2] = {};
#pragma unroll
        for (u32 part = 0u; part < SPLIT; part++) {
            const Sum* from = part == rank ? own + rank * SHARE * PITCH : others + (part < rank ? part : part - 1u) * SHARE * PITCH;
            if constexpr (K::NORMED) {
                of_row[0] += from[row * PITCH + 64u];
                of_row[1] += from[row * PITCH + 65u];
            }
#pragma unroll
            for (u32 n = 0u; n < BOTH * 2u; n++) {
                const auto four = Pack<Sum>::of(from + row * PITCH + n / 2u * (T::COLUMNS / 2u) + own_col + n % 2u * 4u);
                for (u32 i = 0u; i < 4u; i++) {
                    v[n / 2u][n % 2u * 4u + i] += four.v[i];
                }
            }
        }
        const u32 to = (row0 + rank * SHARE + row) * results + result;
        const RowNorm norm = norm_of(k, of_row[0], of_row[1], T::DEPTH);
        if (runs) {
            To::put(k, 0u, 0u, to, v, norm, columns, SOON ? beside[SOON ? q : 0u] : fetch(q));
        } else {
            for (u32 i = 0u; i < 8u && col + i < cols; i++) {
                Sum one[BOTH];
                for (u32 side = 0u; side < BOTH; side++) {
                    one[side] = v[side][i];
                }
                To::put_one(k, 0u, 0u, to + i, one, norm, col + i);
            }
        }
    }
    if constexpr (SPLIT > 1u) {
        // All that was sent has arrived before its memory goes.
        meet();
        met();
    }
}
