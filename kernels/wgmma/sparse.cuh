// Products by packed 2:4 sparse weights by wgmma.mma_async.sp with TMA, for sm_90a. The weights are the first operand of the
// instruction, so that its rows are columns of the result, and `WgmmaTiles` with its places counts these as rows. The depth is cut
// into chunks of 128 bytes of a row: 64 bytes of values. One warp copies: rows a chunk at a time into STAGES stages, values and
// their places for two chunks at a time into half as many and one. GROUPS warpgroups multiply, each PARTS x 64 columns by all rows
// of the tile. `Tile` is the structure of these constants, as `WgmmaTiles` takes it, with the instruction, `multiply<SELECT>`.
#pragma once
#include "tiles.cuh"

// Starts a copy of neighbouring bytes into shared memory, which a barrier counts.
DEV void bytes_to(u32 to, const void* from, u32 bytes, u32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
                 "r"(bytes), "r"(barrier)
                 : "memory");
}

template <class Tile> struct SparseGroups : WgmmaTiles<Tile> {
    typedef WgmmaTiles<Tile> Base;
    typedef typename Base::Sum Sum;
    typedef typename Base::Sums Sums;
    typedef typename Base::Product Product;
    static constexpr u32 BM = Base::BM;
    static constexpr u32 BN = Base::BN;
    static constexpr u32 PARTS = Base::PARTS;
    static constexpr u32 X_STAGES = Tile::STAGES;
    static constexpr u32 W_STAGES = X_STAGES / 2u + 1u;
    // Elements of 128 bytes.
    static constexpr u32 BK = 128u / Tile::SIZE;
    // Words of the places of 16 columns in a chunk, and of those a lane's.
    static constexpr u32 WORDS = 64u / Tile::SIZE;
    static constexpr u32 OWN = WORDS / 32u;
    // Pieces of 16 columns.
    static constexpr u32 LINES = BM / 16u;
    static constexpr u32 BYTES_W = BM * 128u;
    static constexpr u32 BYTES_X = BN * 128u;
    static constexpr u32 BYTES_P = LINES * 2u * WORDS * 4u;
    // A stage of a ring, and the parity of its barriers' phase.
    template <u32 STAGES> struct Turn {
        u32 stage = 0u;
        u32 parity = 0u;

        DEV void next() {
            if (++stage == STAGES) {
                stage = 0u;
                parity ^= 1u;
            }
        }
    };
    typedef Turn<W_STAGES> TurnW;
    typedef Turn<X_STAGES> TurnX;

    // Words of a lane: the places of a chunk.
    typedef u32 Places[PARTS][OWN];

    DEV static u32 stage_w(u32 stage) { return Base::stages_at() + stage * BYTES_W; }
    DEV static u32 stage_x(u32 stage) { return stage_w(W_STAGES) + stage * BYTES_X; }
    DEV static u32 stage_p(u32 stage) { return stage_x(X_STAGES) + stage * BYTES_P; }
    DEV static u32 full_w(u32 stage) { return stage_p(W_STAGES) + stage * 8u; }
    DEV static u32 empty_w(u32 stage) { return full_w(W_STAGES + stage); }
    DEV static u32 full_x(u32 stage) { return full_w(2u * W_STAGES + stage); }
    DEV static u32 empty_x(u32 stage) { return full_x(X_STAGES + stage); }

    DEV static void init() {
        for (u32 s = 0u; s < W_STAGES; s++) {
            barrier_init(full_w(s), 1u);
            barrier_init(empty_w(s), Base::WARPS);
        }
        for (u32 s = 0u; s < X_STAGES; s++) {
            barrier_init(full_x(s), 1u);
            barrier_init(empty_x(s), Base::WARPS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }

    // Chunks of a block's share of a tile; `all` are those of the depth. A step of `product` is two of them.
    DEV static u32 chunks_of(const Product& product, const TilePlace& tile, u32 all) {
        return ::min(product.count(tile) * 2u, all - ::min(product.first(tile) * 2u, all));
    }

    // Reads the places of a chunk, of the columns of a warpgroup from `line` of the tile on.
    DEV static void read_places(Places& to, u32 stage, u32 chunk, u32 line) {
        const u32* from = reinterpret_cast<const u32*>(block_memory + (stage_p(stage) - address(block_memory)));
        const u32 first = line / 16u + threadIdx.x % 128u / 32u;
#pragma unroll
        for (u32 p = 0u; p < PARTS; p++) {
#pragma unroll
            for (u32 o = 0u; o < OWN; o++) {
                to[p][o] = from[((first + p * 4u) * 2u + chunk % 2u) * WORDS + o * 32u + threadIdx.x % 32u];
            }
        }
    }

    // Holds the registers of places until the products that read them are done.
    DEV static void hold(const Places& places) {
#pragma unroll
        for (u32 p = 0u; p < PARTS; p++) {
#pragma unroll
            for (u32 o = 0u; o < OWN; o++) {
                asm volatile("" ::"r"(places[p][o]) : "memory");
            }
        }
    }

    // Starts the products of half HALF of a chunk: 32 bytes of values by 64 bytes of rows. A lane's word of places serves both
    // halves of elements of 2 bytes, of which the selector picks one.
    template <u32 HALF> DEV static void multiply_half(Sums& sum, u32 w, u32 x, const Places& places, u32 more) {
        const u64 rows = descriptor(x + HALF * 64u, 1u);
#pragma unroll
        for (u32 p = 0u; p < PARTS; p++) {
            const u64 values = descriptor(w + p * 8192u + HALF * 32u, 1u);
            Tile::template multiply<OWN == 1u ? HALF : 0u>(sum[p], values, rows, places[p][OWN == 1u ? 0u : HALF], more);
        }
    }

    DEV static void arrive(u32 barrier) {
        if (threadIdx.x % 32u == 0u) {
            barrier_arrive(barrier);
        }
    }

    // The sums of so many chunks, of the columns of a warpgroup from `line` of the tile on.
    DEV static void multiply_chunks(Sums& sum, u32 chunks, TurnW& w, TurnX& x, u32 line) {
        Places places;
        if (chunks > 0u) {
            barrier_wait(full_w(w.stage), w.parity);
            read_places(places, w.stage, 0u, line);
        }
#pragma unroll 1
        for (u32 chunk = 0u; chunk < chunks; chunk++) {
            barrier_wait(full_x(x.stage), x.parity);
            const u32 values = stage_w(w.stage) + line * 128u + chunk % 2u * 64u;
            const u32 rows = stage_x(x.stage);
            Base::settle_all(sum);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
            multiply_half<0u>(sum, values, rows, places, chunk);
            multiply_half<1u>(sum, values, rows, places, 1u);
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            const bool last = chunk + 1u == chunks;
            const bool ends = chunk % 2u == 1u || last;
            const u32 before = w.stage;
            if (ends) {
                w.next();
            }
            Places next = {};
            if (!last) {
                if (ends) {
                    barrier_wait(full_w(w.stage), w.parity);
                }
                read_places(next, w.stage, chunk + 1u, line);
            }
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            Base::settle_all(sum);
            hold(places);
            arrive(empty_x(x.stage));
            if (ends) {
                arrive(empty_w(before));
            }
            x.next();
#pragma unroll
            for (u32 p = 0u; p < PARTS; p++) {
#pragma unroll
                for (u32 o = 0u; o < OWN; o++) {
                    places[p][o] = next[p][o];
                }
            }
        }
    }

    // Eight sums of each of eight lanes, four apart, turned around: a lane gets the sums of one number of all of them.
    DEV static void turn(Sum (&v)[8]) {
#pragma unroll
        for (u32 step = 1u; step < 8u; step *= 2u) {
            const bool upper = (threadIdx.x / 4u & step) != 0u;
#pragma unroll
            for (u32 q = 0u; q < 8u; q++) {
                if ((q & step) == 0u) {
                    const Sum low = v[q];
                    const Sum high = v[q + step];
                    const Sum got = __shfl_xor_sync(0xffffffffu, upper ? low : high, step * 4u);
                    v[q] = upper ? got : low;
                    v[q + step] = upper ? high : got;
                }
            }
        }
    }
};
