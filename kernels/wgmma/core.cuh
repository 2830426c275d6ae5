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

// ---- stores
// Where a lane's sums go: rows from `row` on, of every 32 columns eight neighbours from `col` on.
struct Place {
    u32 row, col, at;

    DEV Place(const Product& product, const Tile& tile, u32 line) {
        row = tile.row + line + threadIdx.x % 128u / 32u * 16u + threadIdx.x % 32u / 4u;
        col = tile.col + threadIdx.x % 4u * 8u;
        at = (tile.batch * product.rows + row) * product.cols + col;
    }

    // Chunk `c`, row `e`.
    DEV static u32 line(u32 e) { return e / 2u * 64u + e % 2u * 8u; }
    DEV bool inside(const Product& p, u32 c, u32 e) const { return row + line(e) < p.rows && col + c * 32u < p.cols; }
    DEV u32 of(const Product& p, u32 c, u32 e) const { return at + line(e) * p.cols + c * 32u; }
};

// Of how many chunks operands of the epilogue are read before those in front are stored, and of how many rows at once: as
// registers allow, and ONE_BY_ONE, where it takes many to find them, few.
static constexpr u32 BESIDE_WORDS = sizeof(Beside) / 4u;
static constexpr bool ROOMY = LENT ? BESIDE_WORDS > 0u && BESIDE_WORDS <= 8u : PARTS * SUMS <= 128u;
static constexpr u32 EARLY_CHUNKS = ROOMY && !ONE_BY_ONE ? 1u : 0u;
static constexpr u32 LINES = ONE_BY_ONE ? 1u : 2u;

// What sums of 32 columns of a part of a lane are stored with, of LINES of its two rows.
struct Chunk {
    Biases biases;
    Across across;
    Beside beside[LINES];

    DEV void read(const K& k, const Product& product, const Place& place, u32 c, u32 first) {
        if (SPLIT == 1u && first % 2u == 0u) {
            const u32 col = place.col + c * 32u < product.cols ? place.col + c * 32u : 0u;
            biases = k.biases(col);
            across = k.fetch_columns(col);
        }
#pragma unroll
        for (u32 e = 0u; e < LINES; e++) {
            beside[e] = k.fetch_sums(place.inside(product, c, first + e) ? place.of(product, c, first + e) : 0u);
        }
    }
};

// The sums of a chunk, of those of all parts.
DEV static void pick(ACC (&own)[16], const ACC (&sum)[PARTS][SUMS], u32 chunk) {
#pragma unroll
    for (u32 n = 0u; n < PARTS * CHUNKS; n++) {
        if (chunk == n) {
#pragma unroll
            for (u32 i = 0u; i < 16u; i++) {
                own[i] = sum[n / CHUNKS][n % CHUNKS * 16u + i];
            }
        }
    }
}

// Stores the sums of a group, part after part, so that registers come free: runs of eight where rows of the result are multiples
// of it. LOOPED, by a loop: where there are many instructions that run once a tile each, they come too slowly.
DEV void put_tile(const Product& product, const Tile& tile, const Place& place, const ACC (&sum)[PARTS][SUMS]) const {
    const bool runs = (SPREAD || product.cols % 8u == 0u) && even();
    Chunk with, next;
    if (EARLY_CHUNKS > 0u && runs) {
        next.read(*this, product, place, 0u, 0u);
    }
#pragma unroll (LOOPED ? 1 : PARTS * CHUNKS)
    for (u32 n = 0u; n < PARTS * CHUNKS; n++) {
        const u32 c = n % CHUNKS;
        with = next;
        if (EARLY_CHUNKS > 0u && runs && n + 1u < PARTS * CHUNKS) {
            next.read(*this, product, place, (n + 1u) % CHUNKS, (n + 1u) / CHUNKS * 2u);
        }
        ACC own[16];
        pick(own, sum, n);
#pragma unroll
        for (u32 h = 0u; h < 2u; h++) {
            const u32 e = n / CHUNKS * 2u + h;
            if (EARLY_CHUNKS == 0u && runs && h % LINES == 0u) {
                with.read(*this, product, place, c, e);
            }
            ACC v[8];
            gather_row(v, own, h * 2u);
            if (place.inside(product, c, e)) {
                if (runs) {
                    put_sums(tile.part, place.of(product, c, e), v, with.biases, with.across, with.beside[h % LINES]);
                } else {
                    put_some(tile.part, place.of(product, c, e), v, place.col + c * 32u, product.cols);
                }
            }
        }
    }
}

// Those of eight sums that are left of the last column. One by one: code that is seldom run must not crowd out what is.
DEV void put_some(u32 part, u32 at, const ACC (&v)[8], u32 col, u32 cols) const {
    const u32 count = ::min(cols - col, 8u);
#pragma unroll 1
    for (u32 q = 0u; q < count; q++) {
        const ACC low = q & 2u ? (q & 1u ? v[3] : v[2]) : (q & 1u ? v[1] : v[0]);
        const ACC high = q & 2u ? (q & 1u ? v[7] : v[6]) : (q & 1u ? v[5] : v[4]);
        put_sum(part, at + q, q & 4u ? high : low, col + q);
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

// ---- whole
// What is read for eight sums beside biases: the same for all rows, and the rest.
typedef Columns0 Across;
typedef Rest0 Beside;

// May what is read beside sums be read by vectors?
DEV bool even() const { return even0() && even_biases(); }

DEV Across fetch_columns(u32 col) const { return fetch0_columns<true>(col); }
DEV Beside fetch_sums(u32 at) const { return fetch0_rest<true>(at); }

DEV void put_sums(u32, u32 at, ACC* v, const Biases& b, const Across& across, const Beside& more) const {
    add_biases(v, b);
    emit0_run(at, v, Fetched0{across, more});
}

DEV void put_sum(u32, u32 at, ACC v, u32 col) const { emit0(at, biased(v, col)); }

// ---- split
struct Across {};
struct Beside {};

DEV bool even() const { return true; }

DEV Across fetch_columns(u32) const { return Across{}; }
DEV Beside fetch_sums(u32) const { return Beside{}; }

DEV void put_sums(u32 part, u32 at, ACC* v, const Biases&, const Across&, const Beside&) const {
    ACC* to = reinterpret_cast<ACC*>(scratch) + u64(part) * all_sums() + at;
    for (u32 q = 0u; q < 8u; q += 4u) {
        Pack<ACC> four;
        for (u32 i = 0u; i < 4u; i++) {
            four.v[i] = v[q + i];
        }
        four.put(to + q);
    }
}

DEV void put_sum(u32 part, u32 at, ACC v, u32) const {
    reinterpret_cast<ACC*>(scratch)[u64(part) * all_sums() + at] = v;
}

DEV ACC compute0(u32 at) const {
    const ACC* from = reinterpret_cast<const ACC*>(scratch) + at;
    ACC sum = ACC(0);
#pragma unroll
    for (u32 part = 0u; part < SPLIT; part++) {
        sum += from[u64(part) * extent];
    }
    return biased(sum, at % m(22u));
}

// ---- bias
DEV ACC biased(ACC x, u32 ch) const { return x + x2(ch); }

typedef Run<CELL_C> Biases;

DEV bool even_biases() const { return (u64(bx2) & 15u) == 0u; }

DEV Biases biases(u32 ch) const { return Biases::next<true>(bx2 + ch); }

DEV static void add_biases(ACC* v, const Biases& p) {
#pragma unroll
    for (u32 i = 0u; i < 8u; i++) {
        v[i] += BIAS_VALUE;
    }
}

// ---- no_bias
DEV ACC biased(ACC x, u32) const { return x; }

struct Biases {};

DEV bool even_biases() const { return true; }
DEV Biases biases(u32) const { return Biases{}; }
DEV static void add_biases(ACC*, const Biases&) {}
