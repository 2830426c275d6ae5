// Products of tiles by wgmma with TMA, for sm_90a, whatever the element type: a stage is 128 bytes of K. One warp copies,
// GROUPS_M warpgroups multiply, each PARTS x 64 rows by BN columns: of one tile, one below the other, or IN_TURNS of tiles of
// their own, so that one stores while the other multiplies. A block makes one tile after another. B lies along K (a row of the
// stage is a column of B), or across it in boxes of 64 columns; SPREAD, its columns lie in the order of `spread_box`.
// LENT, the warp that copies has three idle ones beside it, and all four leave their registers to those that multiply.

// ---- core
extern __shared__ __align__(1024) u8 block_memory[];
static constexpr u32 TURNS = IN_TURNS ? GROUPS_M : 1u;
static constexpr u32 BM = GROUPS_M / TURNS * PARTS * 64u;
static constexpr u32 BK = 128u / SIZE;
static constexpr u32 BYTES_A = BM * 128u;
static constexpr u32 STAGE = (BM + BN) * 128u;
static constexpr u32 SUMS = BN / 2u;
static constexpr u32 WARPS = GROUPS_M * 4u;
// Parts of 32 columns.
static constexpr u32 CHUNKS = BN / 32u;

// The first address that the swizzle of 128 bytes may start at.
DEV static u32 stages_at() { return (address(block_memory) + 1023u) & ~1023u; }
DEV static u32 stage_at(u32 stage) { return stages_at() + stage * STAGE; }
DEV static u32 full(u32 stage) { return stage_at(STAGES) + stage * 8u; }
DEV static u32 empty(u32 stage) { return full(STAGES + stage); }

// A tile: its first row and column, and what it is in other respects.
struct Tile {
    u32 row, col, batch, part;
};

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

// The order of tiles: neighbours share rows and columns.
struct Raster {
    static constexpr u32 BAND = 2048u / BM;
    u32 down;
    Divisor of_batch, of_band;

    DEV Raster(u32 down, u32 across) : down(down), of_batch(down * across), of_band(BAND * across) {}

    DEV Tile place(u32 turn) const {
        u32 number, rest;
        const u32 batch = of_batch.of(turn / SPLIT, number);
        const u32 band = of_band.of(number, rest);
        const u32 height = ::min(down - band * BAND, BAND);
        const u32 line = height == BAND ? rest % BAND : rest % height;
        const u32 col = height == BAND ? rest / BAND : rest / height;
        return Tile{(band * BAND + line) * BM, col * BN, batch, turn % SPLIT};
    }
};

// A product: SPLIT blocks share the steps of a tile. Copies of B, if it is `constant`, begin before what the kernel depends on
// is done.
struct Product {
    u32 rows, cols, tiles, steps;
    bool constant;
    Raster raster;

    DEV Product(u32 rows, u32 cols, u32 batch, u32 steps, bool constant)
        : rows(rows), cols(cols), steps(steps), constant(constant), raster((rows + BM - 1u) / BM, (cols + BN - 1u) / BN) {
        tiles = raster.of_batch.by * batch * SPLIT;
    }

    DEV u32 first(const Tile& t) const { return ::min(t.part * ((steps + SPLIT - 1u) / SPLIT), steps); }
    DEV u32 count(const Tile& t) const { return ::min((steps + SPLIT - 1u) / SPLIT, steps - first(t)); }
};

// All tiles of this block. `Cursor` starts the copies of the steps of a tile one after the other.
DEV void make_tiles(u32 rows, u32 cols, u32 batch, u32 steps, bool constant) const {
    const Product product(rows, cols, batch, steps, constant);
    if (threadIdx.x == 0u) {
        for (u32 s = 0u; s < STAGES; s++) {
            barrier_init(full(s), 1u);
            barrier_init(empty(s), WARPS / TURNS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x >= WARPS * 32u) {
        if constexpr (LENT) {
            asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        }
        if (threadIdx.x == WARPS * 32u) {
            copy_tiles(product);
        }
        return;
    }
    if constexpr (LENT) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    }
    depend();
    const u32 group = threadIdx.x / 128u;
    const u32 turn = IN_TURNS ? group : 0u;
    const u32 line = IN_TURNS ? 0u : group * PARTS * 64u;
    u32 done = turn * steps;
    for (u32 number = blockIdx.x + turn * gridDim.x; number < product.tiles; number += TURNS * gridDim.x) {
        const Tile tile = product.raster.place(number);
        const u32 own = product.count(tile);
        if (IN_TURNS && number >= gridDim.x) {
            asm volatile("bar.sync %0, %1;" ::"r"(1u + group), "n"(TURNS * 128u) : "memory");
        }
        // Ends the lives of the last tile's sums with their stores.
        ACC sum[PARTS][SUMS];
        clear(sum);
        multiply_steps(sum, own, done % STAGES, done / STAGES % 2u, line);
        if (IN_TURNS && number + gridDim.x < product.tiles) {
            asm volatile("bar.arrive %0, %1;" ::"r"(1u + (group + 1u) % TURNS), "n"(TURNS * 128u) : "memory");
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        settle(sum);
        done += own;
        if (SPLIT == 1u || own > 0u) {
            free_stage((done - 1u) % STAGES);
        }
        done += (TURNS - 1u) * steps;
        put_tile(product, tile, Place(product, tile, line), sum);
    }
}

DEV void copy_tiles(const Product& product) const {
    release();
    u32 ahead = 0u;
    if (product.constant && blockIdx.x < product.tiles) {
        const Tile tile = product.raster.place(blockIdx.x);
        Cursor cursor(*this, tile, product.first(tile));
        ahead = ::min(product.count(tile), STAGES);
        for (u32 step = 0u; step < ahead; step++) {
            barrier_expect(full(step), STAGE);
            cursor.copy_b(*this, stage_at(step) + BYTES_A, full(step));
            cursor.next(*this);
        }
    }
    depend();
    u32 stage = 0u;
    u32 parity = 0u;
    for (u32 number = blockIdx.x; number < product.tiles; number += gridDim.x) {
        const Tile tile = product.raster.place(number);
        Cursor cursor(*this, tile, product.first(tile));
        for (u32 step = product.count(tile); step > 0u; step--) {
            if (ahead > 0u) {
                ahead--;
            } else {
                barrier_wait(empty(stage), parity ^ 1u);
                barrier_expect(full(stage), STAGE);
                cursor.copy_b(*this, stage_at(stage) + BYTES_A, full(stage));
            }
            cursor.copy_a(*this, stage_at(stage), full(stage));
            cursor.next(*this);
            if (++stage == STAGES) {
                stage = 0u;
                parity ^= 1u;
            }
        }
    }
}

DEV static void free_stage(u32 stage) {
    if (threadIdx.x % 32u == 0u) {
        barrier_arrive(empty(stage));
    }
}

// Starts the products of the next steps, and waits for all but those of the last one.
DEV static void multiply_steps(ACC (&sum)[PARTS][SUMS], u32 steps, u32 stage, u32 parity, u32 line) {
    u32 last = 0u;
    for (u32 step = 0u; step < steps; step++) {
        barrier_wait(full(stage), parity);
        const u32 a = stage_at(stage) + line * 128u;
        const u32 b = stage_at(stage) + BYTES_A;
        settle(sum);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (u32 k = 0u; k < 4u; k++) {
            const u64 db = descriptor(b + k * (ACROSS_B ? 2048u : 32u), ACROSS_B ? 512u : 1u);
#pragma unroll
            for (u32 p = 0u; p < PARTS; p++) {
                multiply(sum[p], descriptor(a + p * 8192u + k * 32u, 1u), db, step + k);
            }
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        settle(sum);
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

DEV static void clear(ACC (&sum)[PARTS][SUMS]) {
#pragma unroll
    for (u32 p = 0u; p < PARTS; p++) {
#pragma unroll
        for (u32 q = 0u; q < SUMS; q++) {
            sum[p][q] = ACC(0);
        }
    }
}

DEV static void settle(ACC (&sum)[PARTS][SUMS]) {
#pragma unroll
    for (u32 p = 0u; p < PARTS; p++) {
#pragma unroll
        for (u32 q = 0u; q < SUMS; q++) {
            asm volatile("" : "+ACC_REG"(sum[p][q])::"memory");
        }
    }
}

// Eight neighbouring sums of a row, from `at` on, four from one pair to the next: SPREAD, they are those of this lane; else four
// lanes have two columns of every eight of a row of 32, and each gets all of its eight.
DEV static void gather_row(ACC (&v)[8], const ACC (&sum)[16], u32 at) {
    ACC own[4][2];
#pragma unroll
    for (u32 j = 0u; j < 4u; j++) {
        own[j][0] = sum[at + j * 4u];
        own[j][1] = sum[at + j * 4u + 1u];
    }
    // Transposes blocks of 1, then of 2, of a 4 x 4 matrix whose columns are the lanes.
#pragma unroll
    for (u32 step = 1u; step < 4u && !SPREAD; step *= 2u) {
        const bool upper = (threadIdx.x & step) != 0u;
#pragma unroll
        for (u32 j = 0u; j < 4u; j++) {
            if ((j & step) == 0u) {
#pragma unroll
                for (u32 b = 0u; b < 2u; b++) {
                    const ACC low = own[j][b];
                    const ACC high = own[j + step][b];
                    const ACC got = __shfl_xor_sync(0xffffffffu, upper ? low : high, step);
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

// ---- matmul
// Words: rows, columns, depth, batch; does A have the batch, does B?; all sums; is B constant?
struct Cursor {
    Tile tile;
    u32 step;

    DEV Cursor(const K&, const Tile& tile, u32 step) : tile(tile), step(step) {}

    DEV void copy_a(const K& k, u32 to, u32 barrier) const { box(to, k.maps, barrier, step * BK, tile.row, tile.batch * k.m(4u)); }

    DEV void copy_b(const K& k, u32 to, u32 barrier) const {
        if constexpr (SPREAD) {
            spread_box(to, k.maps + 1, barrier, step * BK, tile.col / 32u);
        } else if constexpr (ACROSS_B) {
            for (u32 n = 0u; n < BN; n += 64u) {
                box(to + n * 128u, k.maps + 1, barrier, tile.col + n, step * BK, tile.batch * k.m(5u));
            }
        } else {
            box(to, k.maps + 1, barrier, step * BK, tile.col, tile.batch * k.m(5u));
        }
    }

    DEV void next(const K&) { step++; }
};

EARLY matmul THREADS_OF_BLOCK {
    make_tiles(m(0u), m(1u), m(3u), (m(2u) + BK - 1u) / BK, m(7u) != 0u);
}

DEV u32 all_sums() const { return m(6u); }

// ---- conv
// Words 0 to 24 as in generic/window.cuh, then the number of windows, and of all sums; are weights constant?
struct Cursor {
    u32 col, step;
    Windows windows;

    DEV Cursor(const K& k, const Tile& tile, u32 step) : col(tile.col), step(step), windows(k, tile.row, step) {}

    DEV void copy_a(const K& k, u32 to, u32 barrier) const { windows.copy(k, to, barrier); }

    DEV void copy_b(const K& k, u32 to, u32 barrier) const {
        if constexpr (SPREAD) {
            spread_box(to, k.maps + 1, barrier, step * BK, col / 32u);
        } else {
            box(to, k.maps + 1, barrier, windows.channel, windows.tap, col);
        }
    }

    DEV void next(const K& k) {
        step++;
        windows.next(k);
    }
};

EARLY conv THREADS_OF_BLOCK {
    make_tiles(m(25u), m(22u), 1u, (m(21u) + BK - 1u) / BK * m(9u) * m(16u), m(27u) != 0u);
}

DEV u32 all_sums() const { return m(26u); }
