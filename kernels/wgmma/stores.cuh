// Where sums of `wgmma` go: through shared memory to the epilogue, whole or in parts of the depth that are added up, with a
// bias or without.

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
