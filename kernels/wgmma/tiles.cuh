// Products of tiles by wgmma with TMA, for sm_90a, whatever the element type: a stage is LINE bytes of K, 128 or 64. One warp copies,
// GROUPS warpgroups multiply, each PARTS x 64 rows by COLUMNS: of one tile, one below the other, or IN_TURNS of tiles of their
// own, so that one stores while the other multiplies. A block makes one tile after another. B lies along K (a row of the stage
// is a column of B), or across it in boxes of 64 columns; SPREAD, its columns are in the order of `spread_box`. LENT, the warp
// that copies has three idle ones beside it, and all four leave their registers to those that multiply. SPLIT blocks share the
// depth of a tile; EXCHANGE, they are of one cluster, make one tile, and each stores a share of it. CLUSTER blocks have tiles one below
// the other: each copies its share of B to all of them. `Tile` is the structure of these constants, with the type of sums and the instruction, `multiply`.
#pragma once
#include "copies.cuh"

extern __shared__ __align__(1024) u8 block_memory[];

// Division by a number that stays the same.
struct Divisor {
    u32 by, inverse;
    DEV explicit Divisor(u32 by) : by(by), inverse(0xffffffffu / by) {}
    DEV u32 of(u32 n, u32& rest) const {
        const u32 q = __umulhi(n, inverse);
        rest = n - q * by;
        const bool more = rest >= by;
        rest -= more ? by : 0u;
        return q + u32(more);
    }
};

// The place of a tile: its first row and column, the batch, and the part of the depth.
struct TilePlace {
    u32 row, col, batch, part;
};

template <class Tile> struct WgmmaTiles {
    typedef typename Tile::Sum Sum;
    static constexpr u32 BN = Tile::COLUMNS;
    static constexpr u32 PARTS = Tile::PARTS;
    static constexpr u32 STAGES = Tile::STAGES;
    static constexpr u32 TURNS = Tile::IN_TURNS ? Tile::GROUPS : 1u;
    static constexpr u32 BM = Tile::GROUPS / TURNS * PARTS * 64u;
    static constexpr u32 LINE = Tile::LINE;
    static constexpr u32 BK = LINE / Tile::SIZE;
    static constexpr u32 BYTES_A = BM * LINE;
    static constexpr u32 STAGE = (BM + BN) * LINE;
    static constexpr u32 SUMS = BN / 2u;
    static constexpr u32 WARPS = Tile::GROUPS * 4u;
    static constexpr u32 CLUSTER = Tile::CLUSTER;
    // Columns of B that a block copies.
    static constexpr u32 SHARE = BN / CLUSTER;
    // Parts of 32 columns; those of a thread that its block stores, and the bytes that each of the others sends for them.
    static constexpr u32 CHUNKS = BN / 32u;
    static constexpr bool EXCHANGE = Tile::EXCHANGE;
    static constexpr u32 OWN_CHUNKS = PARTS * CHUNKS / (EXCHANGE ? Tile::SPLIT : 1u);
    static constexpr u32 BYTES_CHUNK = 64u * 32u * 4u;
    static constexpr u32 BYTES_SHARE = EXCHANGE ? Tile::GROUPS * OWN_CHUNKS * BYTES_CHUNK : 0u;
    static_assert(CLUSTER == 1u || Tile::SPLIT == 1u || EXCHANGE, "parts of a depth that go through memory are of blocks alone");
    static_assert(LINE == 128u || !Tile::ACROSS_B, "boxes across the depth have lines of 128 bytes");
    static_assert(!EXCHANGE || (TURNS == 1u && PARTS * CHUNKS % Tile::SPLIT == 0u), "equal shares of a tile of all warpgroups");

    // The sums of a thread.
    typedef Sum Sums[PARTS][SUMS];

    // The first address that the swizzle of 128 bytes may start at.
    DEV static u32 stages_at() { return (address(block_memory) + 1023u) & ~1023u; }
    DEV static u32 stage_at(u32 stage) { return stages_at() + stage * STAGE; }
    DEV static u32 shares_at() { return stage_at(STAGES); }
    DEV static u32 full(u32 stage) { return shares_at() + (Tile::SPLIT - 1u) * BYTES_SHARE + stage * 8u; }
    DEV static u32 empty(u32 stage) { return full(STAGES + stage); }
    DEV static u32 received() { return full(2u * STAGES); }
    // Moments of rows of normalized products, those of every warpgroup.
    DEV static u32 moments_at() { return received() + 8u; }

    // The number among the blocks that share B, and the first of them in the cluster.
    DEV static u32 rank() { return blockIdx.x % CLUSTER; }
    DEV static u32 first_beside() { return EXCHANGE ? blockIdx.x / CLUSTER % Tile::SPLIT * CLUSTER : 0u; }

    // The order of tiles, those of a cluster as one: neighbours share rows and columns.
    struct Raster {
        static constexpr u32 BAND = 2048u / (BM * CLUSTER);
        u32 down;
        Divisor of_batch, of_band;

        DEV Raster(u32 down, u32 across) : down(down), of_batch(down * across), of_band(BAND * across) {}

        DEV TilePlace place(u32 turn) const {
            u32 number, rest;
            const u32 batch = of_batch.of(turn / (Tile::SPLIT * CLUSTER), number);
            const u32 band = of_band.of(number, rest);
            const u32 height = ::min(down - band * BAND, BAND);
            const u32 line = height == BAND ? rest % BAND : rest % height;
            const u32 col = height == BAND ? rest / BAND : rest / height;
            return TilePlace{((band * BAND + line) * CLUSTER + turn % CLUSTER) * BM, col * BN, batch, turn / CLUSTER % Tile::SPLIT};
        }
    };

    // The first chunk of a tile that this block stores.
    DEV static u32 first_chunk(const TilePlace& tile) { return EXCHANGE ? tile.part * OWN_CHUNKS : 0u; }

    // A product: SPLIT blocks share the steps of a tile. Copies of B, if it is `constant`, begin before what the kernel depends
    // on is done.
    struct Product {
        u32 rows, cols, tiles, steps;
        bool constant;
        Raster raster;

        DEV Product(u32 rows, u32 cols, u32 batch, u32 steps, bool constant)
            : rows(rows), cols(cols), steps(steps), constant(constant), raster((rows + BM * CLUSTER - 1u) / (BM * CLUSTER), (cols + BN - 1u) / BN) {
            tiles = raster.of_batch.by * batch * Tile::SPLIT * CLUSTER;
        }

        DEV u32 first(const TilePlace& t) const { return ::min(t.part * ((steps + Tile::SPLIT - 1u) / Tile::SPLIT), steps); }
        DEV u32 count(const TilePlace& t) const { return ::min((steps + Tile::SPLIT - 1u) / Tile::SPLIT, steps - first(t)); }
    };

    // For all blocks that copy into it.
    DEV static void free_stage(u32 stage) {
        if constexpr (CLUSTER > 1u) {
            if (threadIdx.x % 32u < CLUSTER) {
                barrier_arrive_in(address_in(empty(stage), first_beside() + threadIdx.x % 32u));
            }
        } else if (threadIdx.x % 32u == 0u) {
            barrier_arrive(empty(stage));
        }
    }

    // Starts the products of the next steps, and waits for all but those of the last one. Apart from the sums all numbers are those of
    // the warp. `beside(at)` is done with the rows of a stage while they are multiplied.
    template <class Beside> DEV static void multiply_steps(Sums& sum, u32 steps, u32 stage, u32 parity, u32 line, Beside beside) {
        constexpr u32 APART = Tile::ACROSS_B ? 512u : 1u;
        const u32 first_a = uniform(descriptor_low(stage_at(0u) + line * LINE, 1u));
        const u32 first_b = uniform(descriptor_low(stage_at(0u) + BYTES_A, APART));
        u32 last = 0u;
#pragma unroll 1
        for (u32 step = 0u; step < steps; step++) {
            barrier_wait(full(stage), parity);
            const u32 a = first_a + stage * (STAGE / 16u);
            const u32 b = first_b + stage * (STAGE / 16u);
            settle_all(sum);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (u32 k = 0u; k < LINE / 32u; k++) {
                const u64 db = descriptor_of<LINE>(b + k * (Tile::ACROSS_B ? 128u : 2u));
#pragma unroll
                for (u32 p = 0u; p < PARTS; p++) {
                    Tile::multiply(sum[p], descriptor_of<LINE>(a + p * (LINE * 4u) + k * 2u), db);
                }
            }
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            beside(stage_at(stage) + line * LINE);
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
            settle_all(sum);
            if (step > 0u) {
                free_stage(last);
            }
            last = stage;
            if (++stage == STAGES) {
                stage = 0u;
                parity ^= 1u;
            }
        }
    }

    // Integers start from a zero that the assembler does not know, block dimension y having one thread: it takes constants for
    // definitions of sums while products are under way, and lets these wait for each other.
    DEV static Sum zero() {
        if constexpr (Sum(1) / Sum(2) == Sum(0)) {
            return Sum(threadIdx.y);
        } else {
            return Sum(0);
        }
    }

    DEV static void clear(Sums& sum) {
#pragma unroll
        for (u32 p = 0u; p < PARTS; p++) {
#pragma unroll
            for (u32 q = 0u; q < SUMS; q++) {
                sum[p][q] = zero();
            }
        }
    }

    DEV static void settle_all(Sums& sum) {
#pragma unroll
        for (u32 p = 0u; p < PARTS; p++) {
#pragma unroll
            for (u32 q = 0u; q < SUMS; q++) {
                settle(sum[p][q]);
            }
        }
    }

    // Eight neighbouring sums of a row, from `at` on, four from one pair to the next: SPREAD, they are those of this lane; else
    // four lanes have two columns of every eight of a row of 32, and each gets all of its eight.
    DEV static void gather_row(Sum (&v)[8], const Sum (&sum)[16], u32 at) {
        Sum own[4][2];
#pragma unroll
        for (u32 j = 0u; j < 4u; j++) {
            own[j][0] = sum[at + j * 4u];
            own[j][1] = sum[at + j * 4u + 1u];
        }
        // Transposes blocks of 1, then of 2, of a 4 x 4 matrix whose columns are the lanes.
#pragma unroll
        for (u32 step = 1u; step < 4u && !Tile::SPREAD; step *= 2u) {
            const bool upper = (threadIdx.x & step) != 0u;
#pragma unroll
            for (u32 j = 0u; j < 4u; j++) {
                if ((j & step) == 0u) {
#pragma unroll
                    for (u32 b = 0u; b < 2u; b++) {
                        const Sum low = own[j][b];
                        const Sum high = own[j + step][b];
                        const Sum got = __shfl_xor_sync(0xffffffffu, upper ? low : high, step);
                        own[j][b] = upper ? got : low;
                        own[j + step][b] = upper ? high : got;
                    }
                }
            }
        }
#pragma unroll
        for (u32 q = 0u; q < 8u; q++) {
            v[q] = own[q / 2u][q % 2u];
        }
    }
};

// Starts the copies of all tiles of this block.
template <class Cursor, class K> DEV void copy_tiles(const K& k, const typename WgmmaTiles<typename K::Tile>::Product& product) {
    typedef WgmmaTiles<typename K::Tile> T;
    release();
    u32 ahead = 0u;
    if (product.constant && blockIdx.x < product.tiles) {
        const TilePlace tile = product.raster.place(blockIdx.x);
        Cursor cursor(k, tile, product.first(tile));
        ahead = ::min(product.count(tile), T::STAGES);
        for (u32 step = 0u; step < ahead; step++) {
            barrier_expect(T::full(step), T::STAGE);
            cursor.copy_b(k, T::stage_at(step) + T::BYTES_A, T::full(step));
            cursor.next(k);
        }
    }
    depend();
    u32 stage = 0u;
    u32 parity = 0u;
    for (u32 number = blockIdx.x; number < product.tiles; number += gridDim.x) {
        const TilePlace tile = product.raster.place(number);
        Cursor cursor(k, tile, product.first(tile));
        for (u32 step = product.count(tile); step > 0u; step--) {
            if (ahead > 0u) {
                ahead--;
            } else {
                barrier_wait(T::empty(stage), parity ^ 1u);
                barrier_expect(T::full(stage), T::STAGE);
                cursor.copy_b(k, T::stage_at(stage) + T::BYTES_A, T::full(stage));
            }
            cursor.copy_a(k, T::stage_at(stage), T::full(stage));
            cursor.next(k);
            if (++stage == T::STAGES) {
                stage = 0u;
                parity ^= 1u;
            }
        }
    }
}

// All tiles of this block. A `Cursor` starts the copies of the steps of a tile one after the other; a `Store` stores the sums of a
// warpgroup, from row `line` of the tile on, with what it has read ahead for them. `all` is the number of results.
template <class Cursor, class Store, class K>
DEV void make_tiles(const K& k, const typename WgmmaTiles<typename K::Tile>::Product& product, u32 all) {
    typedef typename K::Tile Tile;
    typedef WgmmaTiles<Tile> T;
    if (threadIdx.x == 0u) {
        for (u32 s = 0u; s < T::STAGES; s++) {
            barrier_init(T::full(s), 1u);
            barrier_init(T::empty(s), T::WARPS / T::TURNS * T::CLUSTER);
        }
        if constexpr (T::EXCHANGE) {
            barrier_init(T::received(), 1u);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        if constexpr (T::EXCHANGE) {
            barrier_expect(T::received(), (Tile::SPLIT - 1u) * T::BYTES_SHARE);
        }
    }
    __syncthreads();
    if constexpr (T::CLUSTER > 1u || T::EXCHANGE) {
        meet();
        met();
    }
    if (threadIdx.x >= T::WARPS * 32u) {
        if constexpr (Tile::LENT) {
            asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        }
        if (threadIdx.x == T::WARPS * 32u) {
            copy_tiles<Cursor>(k, product);
        }
        return;
    }
    if constexpr (Tile::LENT) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    }
    depend();
    const u32 group = uniform(threadIdx.x / 128u);
    const u32 turn = Tile::IN_TURNS ? group : 0u;
    const u32 line = Tile::IN_TURNS ? 0u : group * T::PARTS * 64u;
    u32 done = turn * product.steps;
    for (u32 number = blockIdx.x + turn * gridDim.x; number < product.tiles; number += T::TURNS * gridDim.x) {
        const TilePlace tile = product.raster.place(number);
        const u32 own = product.count(tile);
        const typename Store::Ahead ahead(k, product, tile, line);
        if (Tile::IN_TURNS && number >= gridDim.x) {
            asm volatile("bar.sync %0, 256;" ::"r"(1u + group) : "memory");
        }
        // Ends the lives of the last tile's sums with their stores.
        typename T::Sums sum;
        T::clear(sum);
        typename Store::Norms norms;
        T::multiply_steps(sum, own, done % T::STAGES, done / T::STAGES % 2u, line, [&](u32 at) { norms.add(k, at); });
        if (Tile::IN_TURNS && number + gridDim.x < product.tiles) {
            asm volatile("bar.arrive %0, 256;" ::"r"(1u + (group + 1u) % T::TURNS) : "memory");
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        T::settle_all(sum);
        done += own;
        if (Tile::SPLIT == 1u || own > 0u) {
            T::free_stage((done - 1u) % T::STAGES);
        }
        done += (T::TURNS - 1u) * product.steps;
        norms.find(k, product);
        Store::put_tile(k, product, all, tile, line, sum, ahead, norms);
    }
    // No block ends while others may come to its barriers.
    if constexpr (T::CLUSTER > 1u) {
        meet();
        met();
    }
}
