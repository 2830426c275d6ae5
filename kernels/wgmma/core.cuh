// Products of tiles by wgmma with TMA, for sm_90a, whatever the element type: a stage is 128 bytes of K. One warp copies,
// GROUPS_M warpgroups multiply: each PARTS x 64 rows by BN columns. A block makes one tile after another. B lies along K
// (a row of the stage is a column of B), or across it in boxes of 64 columns.

// ---- core
extern __shared__ __align__(1024) u8 block_memory[];
static constexpr u32 BM = GROUPS_M * PARTS * 64u;
static constexpr u32 BK = 128u / SIZE;
static constexpr u32 BYTES_A = BM * 128u;
static constexpr u32 STAGE = (BM + BN) * 128u;
static constexpr u32 SUMS = BN / 2u;
static constexpr u32 WARPS = GROUPS_M * 4u;
// Parts of 32 columns for which operands of the epilogue are read at once.
static constexpr u32 AHEAD = BN < 64u || PARTS * SUMS > 64u ? 1u : 2u;

// The first address that the swizzle of 128 bytes may start at.
DEV static u32 stages_at() { return (address(block_memory) + 1023u) & ~1023u; }
DEV static u32 barriers_at() { return stages_at() + STAGES * STAGE; }
DEV static u32 full(u32 stage) { return barriers_at() + stage * 8u; }
DEV static u32 empty(u32 stage) { return barriers_at() + (STAGES + stage) * 8u; }

// A tile: its first row and column, and what it is in other respects.
struct Tile {
    u32 row, col, batch, part;
};

// Which tile is made in the turn `number` of `down` x `across` of every batch: neighbours share rows and columns.
DEV static Tile place_tile(u32 turn, u32 down, u32 across) {
    const u32 part = turn % SPLIT;
    const u32 batch = turn / SPLIT / (down * across);
    const u32 number = turn / SPLIT % (down * across);
    constexpr u32 BAND = 2048u / BM;
    const u32 band = number / (BAND * across);
    const u32 height = ::min(down - band * BAND, BAND);
    const u32 rest = number % (BAND * across);
    return Tile{(band * BAND + rest % height) * BM, rest / height * BN, batch, part};
}

// All tiles of this block: `find(number)` gives a tile, `load_a(tile, step, stage, barrier)` and `load_b` start the copies of a
// step, B's before what the kernel depends on is done if it is `constant`,
// `fetch(tile, row, column)` reads what eight neighbouring sums of a row are stored with, `put(tile, row, column, sums,
// fetched)` stores them, where rows of the result are multiples of eight (`runs`); else `put_each(tile, row, column, sums)`
// does. SPLIT blocks share the steps of a tile.
template <class Find, class LoadA, class LoadB, class Fetch, class Put, class Each>
DEV static void make_tiles(u32 tiles, u32 all_steps, bool runs, bool constant, Find find, LoadA load_a, LoadB load_b,
                           Fetch fetch, Put put, Each put_each) {
    const u32 share = (all_steps + SPLIT - 1u) / SPLIT;
    const auto first_of = [&](const Tile& t) { return ::min(t.part * share, all_steps); };
    const auto steps_of = [&](const Tile& t) { return ::min(share, all_steps - first_of(t)); };
    const u32 warp = threadIdx.x / 32u;
    const u32 lane = threadIdx.x % 32u;
    if (threadIdx.x == 0u) {
        for (u32 s = 0u; s < STAGES; s++) {
            barrier_init(full(s), 1u);
            barrier_init(empty(s), WARPS);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    u32 stage = 0u;
    u32 parity = 0u;
    if (warp == WARPS) {
        if (lane == 0u) {
            release();
            u32 ahead = 0u;
            if (constant && blockIdx.x < tiles) {
                const Tile tile = find(blockIdx.x);
                ahead = ::min(steps_of(tile), STAGES);
                for (u32 step = 0u; step < ahead; step++) {
                    barrier_expect(full(step), STAGE);
                    load_b(tile, first_of(tile) + step, stages_at() + step * STAGE, full(step));
                }
            }
            depend();
            for (u32 number = blockIdx.x; number < tiles; number += gridDim.x) {
                const Tile tile = find(number);
                const u32 first = first_of(tile);
                const u32 steps = steps_of(tile);
                for (u32 step = 0u; step < steps; step++) {
                    const u32 to = stages_at() + stage * STAGE;
                    if (ahead > 0u) {
                        ahead--;
                    } else {
                        barrier_wait(empty(stage), parity ^ 1u);
                        barrier_expect(full(stage), STAGE);
                        load_b(tile, first + step, to, full(stage));
                    }
                    load_a(tile, first + step, to, full(stage));
                    if (++stage == STAGES) {
                        stage = 0u;
                        parity ^= 1u;
                    }
                }
            }
        }
        return;
    }
    depend();
    const u32 group = warp / 4u;
    for (u32 number = blockIdx.x; number < tiles; number += gridDim.x) {
        const Tile tile = find(number);
        const u32 steps = steps_of(tile);
        ACC sum[PARTS][SUMS] = {};
        for (u32 step = 0u; step < steps; step++) {
            barrier_wait(full(stage), parity);
            const u32 a = stages_at() + stage * STAGE + group * PARTS * 8192u;
            const u32 b = stages_at() + stage * STAGE + BYTES_A;
            settle(sum);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (u32 k = 0u; k < 4u; k++) {
                const u64 db = descriptor(b + k * (ACROSS_B ? 2048u : 32u), ACROSS_B ? 512u : 1u);
#pragma unroll
                for (u32 p = 0u; p < PARTS; p++) {
                    multiply(sum[p], descriptor(a + p * 8192u + k * 32u, 1u), db);
                }
            }
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            settle(sum);
            if (lane == 0u) {
                barrier_arrive(empty(stage));
            }
            if (++stage == STAGES) {
                stage = 0u;
                parity ^= 1u;
            }
        }
#pragma unroll
        for (u32 p = 0u; p < PARTS; p++) {
            const u32 row = (group * PARTS + p) * 64u + warp % 4u * 16u + lane / 4u;
#pragma unroll
            for (u32 c = 0u; c < BN / 32u; c += AHEAD) {
                if (runs) {
                    decltype(fetch(tile, 0u, 0u)) more[2u * AHEAD];
#pragma unroll
                    for (u32 e = 0u; e < 2u * AHEAD; e++) {
                        more[e] = fetch(tile, row + e % 2u * 8u, (c + e / 2u) * 32u + lane % 4u * 8u);
                    }
#pragma unroll
                    for (u32 e = 0u; e < 2u * AHEAD; e++) {
                        ACC v[8];
                        gather_row(v, sum[p], (c + e / 2u) * 16u + e % 2u * 2u);
                        put(tile, row + e % 2u * 8u, (c + e / 2u) * 32u + lane % 4u * 8u, v, more[e]);
                    }
                } else {
#pragma unroll
                    for (u32 e = 0u; e < 2u * AHEAD; e++) {
                        ACC v[8];
                        gather_row(v, sum[p], (c + e / 2u) * 16u + e % 2u * 2u);
                        put_each(tile, row + e % 2u * 8u, (c + e / 2u) * 32u + lane % 4u * 8u, v);
                    }
                }
            }
        }
    }
}

// Four lanes have two columns of every eight of a row of 32: gives each of them all of its eight. The sums of a lane start
// at `at`, four from one eight to the next.
DEV static void gather_row(ACC (&v)[8], const ACC (&sum)[SUMS], u32 at) {
    ACC own[4][2];
#pragma unroll
    for (u32 j = 0u; j < 4u; j++) {
        own[j][0] = sum[at + j * 4u];
        own[j][1] = sum[at + j * 4u + 1u];
    }
    // Transposes blocks of 1, then of 2, of a 4 x 4 matrix whose columns are the lanes.
#pragma unroll
    for (u32 step = 1u; step < 4u; step *= 2u) {
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

DEV static void settle(ACC (&sum)[PARTS][SUMS]) {
#pragma unroll
    for (u32 p = 0u; p < PARTS; p++) {
#pragma unroll
        for (u32 q = 0u; q < SUMS; q++) {
            asm volatile("" : "+ACC_REG"(sum[p][q])::"memory");
        }
    }
}

// ---- matmul
// Words: rows, columns, depth, batch; does A have the batch, does B?; all sums; is B constant?
EARLY matmul THREADS_OF_BLOCK {
    const u32 rows = m(0u);
    const u32 cols = m(1u);
    const u32 across = (cols + BN - 1u) / BN;
    const u32 down = (rows + BM - 1u) / BM;
    make_tiles(
        across * down * m(3u) * SPLIT, (m(2u) + BK - 1u) / BK, cols % 8u == 0u && even(), m(7u) != 0u,
        [&](u32 number) { return place_tile(number, down, across); },
        [&](const Tile& tile, u32 step, u32 to, u32 barrier) {
            box(to, maps, barrier, step * BK, tile.row, tile.batch * m(4u));
        },
        [&](const Tile& tile, u32 step, u32 to, u32 barrier) {
            to += BYTES_A;
            if constexpr (ACROSS_B) {
                for (u32 n = 0u; n < BN; n += 64u) {
                    box(to + n * 128u, maps + 1, barrier, tile.col + n, step * BK, tile.batch * m(5u));
                }
            } else {
                box(to, maps + 1, barrier, step * BK, tile.col, tile.batch * m(5u));
            }
        },
        [&](const Tile& tile, u32 row, u32 col) {
            row += tile.row;
            col += tile.col;
            const bool inside = row < rows && col < cols;
            return fetch_sums(inside ? (tile.batch * rows + row) * cols + col : 0u, inside ? col : 0u);
        },
        [&](const Tile& tile, u32 row, u32 col, ACC* v, const Beside& b) {
            row += tile.row;
            col += tile.col;
            if (row < rows && col < cols) {
                put_sums(tile.part, (tile.batch * rows + row) * cols + col, v, b);
            }
        },
        [&](const Tile& tile, u32 row, u32 col, const ACC* v) {
            row += tile.row;
            col += tile.col;
            for (u32 q = 0u; row < rows && q < 8u && col + q < cols; q++) {
                put_sum(tile.part, (tile.batch * rows + row) * cols + col + q, v[q], col + q);
            }
        });
}

DEV u32 all_sums() const { return m(6u); }

// ---- conv
// Words 0 to 24 as in generic/window.cuh, then the number of windows, and of all sums; are weights constant?
EARLY conv THREADS_OF_BLOCK {
    const u32 rows = m(25u);
    const u32 cols = m(22u);
    const u32 across = (cols + BN - 1u) / BN;
    const u32 down = (rows + BM - 1u) / BM;
    const u32 blocks = (m(21u) + BK - 1u) / BK;
    make_tiles(
        across * down * SPLIT, blocks * m(9u) * m(16u), cols % 8u == 0u && even(), m(27u) != 0u,
        [&](u32 number) { return place_tile(number, down, across); },
        [&](const Tile& tile, u32 step, u32 to, u32 barrier) {
            const u32 c = step % blocks * BK;
            const u32 tap = step / blocks;
            const i32 x = i32(tile.row % m(15u)) * mi(17u) - mi(19u);
            const i32 y = i32(tile.row / m(15u) % m(8u)) * mi(10u) - mi(12u);
            const u32 dx = tap % m(16u) * m(18u);
            const u32 dy = tap / m(16u) * m(11u);
            under_tap(to, maps, barrier, c, x, y, tile.row / m(15u) / m(8u), dx, dy);
        },
        [&](const Tile& tile, u32 step, u32 to, u32 barrier) {
            box(to + BYTES_A, maps + 1, barrier, step % blocks * BK, step / blocks, tile.col);
        },
        [&](const Tile& tile, u32 row, u32 col) {
            row += tile.row;
            col += tile.col;
            const bool inside = row < rows && col < cols;
            return fetch_sums(inside ? row * cols + col : 0u, inside ? col : 0u);
        },
        [&](const Tile& tile, u32 row, u32 col, ACC* v, const Beside& b) {
            row += tile.row;
            col += tile.col;
            if (row < rows && col < cols) {
                put_sums(tile.part, row * cols + col, v, b);
            }
        },
        [&](const Tile& tile, u32 row, u32 col, const ACC* v) {
            row += tile.row;
            col += tile.col;
            for (u32 q = 0u; row < rows && q < 8u && col + q < cols; q++) {
                put_sum(tile.part, row * cols + col + q, v[q], col + q);
            }
        });
}

DEV u32 all_sums() const { return m(26u); }

// ---- whole
// What is read for eight sums.
struct Beside {
    Fetched0 fetched;
    Biases biases;
};

// May what is read beside sums be read by vectors?
DEV bool even() const { return even0() && even_biases(); }

DEV Beside fetch_sums(u32 at, u32 col) const { return Beside{fetch0_run<true>(at), biases(col)}; }

DEV void put_sums(u32, u32 at, ACC* v, const Beside& b) const {
    add_biases(v, b.biases);
    emit0_run(at, v, b.fetched);
}

DEV void put_sum(u32, u32 at, ACC v, u32 col) const { emit0(at, biased(v, col)); }

// ---- split
struct Beside {};

DEV bool even() const { return true; }

DEV Beside fetch_sums(u32, u32) const { return Beside{}; }

DEV void put_sums(u32 part, u32 at, ACC* v, const Beside&) const {
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
