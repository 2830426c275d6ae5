// Stores of the sums of a tile by wgmma. `K::LOOPED`, by a loop: where there are many instructions that run once a tile each, they
// come too slowly. `K::ONE_BY_ONE`, operands of the fused expression take many registers to find.
#pragma once
#include "exchange.cuh"
#include "moments.cuh"
#include "results.cuh"

// Kinds of sums: of the whole depth, or of a part of it.
template <class K, bool WHOLE = K::Tile::SPLIT == 1u || K::Tile::EXCHANGE> struct SumsOf {
    typedef WholeSums<K> Type;
};
template <class K> struct SumsOf<K, false> {
    typedef PartSums<K> Type;
};

// Operands on their way, as words until they are needed: a compiler would take apart what is smaller, and wait for it, at once.
template <class T, bool USED> struct OnTheirWay {
    static constexpr u32 WORDS = USED && !__is_empty(T) ? (sizeof(T) + 3u) / 4u : 0u;
    u32 words[WORDS > 0u ? WORDS : 1u];

    DEV void put(const T& x) {
        if constexpr (WORDS > 0u) {
            memcpy(words, &x, sizeof x);
        }
    }

    DEV void get(T& x) const {
        if constexpr (WORDS > 0u) {
            u32 own[WORDS];
#pragma unroll
            for (u32 i = 0u; i < WORDS; i++) {
                own[i] = words[i];
                asm volatile("" : "+r"(own[i]));
            }
            memcpy(&x, own, sizeof x);
        }
    }
};

template <class K> struct Stores {
    typedef typename K::Tile Tile;
    typedef WgmmaTiles<Tile> T;
    typedef typename T::Sum Sum;
    typedef typename T::Product Product;
    typedef typename SumsOf<K>::Type To;
    static constexpr u32 PARTS = T::PARTS;
    static constexpr u32 CHUNKS = T::CHUNKS;
    static constexpr u32 BOTH = SIDES<K>;
    static_assert(T::OWN_CHUNKS % BOTH == 0u && (BOTH == 1u || K::SIDE == 32u), "gates and values in chunks that follow each other");

    // Moments of the rows of a warpgroup, and what sums become by them: those of each row of a lane.
    struct Norms {
        RowMoments<K, PARTS * 64u> moments;
        RowNorm of_row[K::NORMED ? PARTS * 2u : 1u];

        // Adds the rows of a stage, by their address in shared memory.
        DEV void add(const K& k, u32 at) {
            moments.add(k, block_memory + (at - address(block_memory)));
        }

        // All threads of a warpgroup exchange what they have found.
        DEV void find(const K& k, const Product& product) {
            if constexpr (K::NORMED) {
                const u32 group = threadIdx.x / 128u;
                f32* const all = reinterpret_cast<f32*>(block_memory + (T::moments_at() - address(block_memory))) + group * PARTS * 128u;
                // The moments of the tile before have been read.
                asm volatile("bar.sync %0, 128;" ::"r"(8u + group) : "memory");
                moments.put(all, 2u);
                asm volatile("bar.sync %0, 128;" ::"r"(8u + group) : "memory");
                const u32 line = threadIdx.x % 128u / 32u * 16u + threadIdx.x % 32u / 4u;
#pragma unroll
                for (u32 e = 0u; e < PARTS * 2u; e++) {
                    const f32* const own = all + (line + Place::line(e)) * 2u;
                    of_row[e] = norm_of(k, own[0], own[1], f32(product.steps * T::BK));
                }
            }
        }
    };

    // Where a lane's sums go: rows from `row` on, of every 32 columns eight neighbours from `col` on, which are results from `result` on.
    struct Place {
        u32 row, col, result, at;

        DEV Place(const Product& product, const TilePlace& tile, u32 line) {
            row = tile.row + line + threadIdx.x % 128u / 32u * 16u + threadIdx.x % 32u / 4u;
            col = tile.col + threadIdx.x % 4u * 8u;
            result = tile.col / BOTH + threadIdx.x % 4u * 8u;
            at = (tile.batch * product.rows + row) * (product.cols / BOTH) + result;
        }

        // Chunk `c`, row `e`.
        DEV static u32 line(u32 e) { return e / 2u * 64u + e % 2u * 8u; }
        DEV bool inside(const Product& p, u32 c, u32 e) const { return row + line(e) < p.rows && col + c * 32u < p.cols; }
        DEV u32 of(const Product& p, u32 c, u32 e) const { return at + line(e) * (p.cols / BOTH) + c / BOTH * 32u; }

        // Operands that are the same for all rows, of eight neighbouring results.
        DEV typename To::Columns columns(const K& k, const Product& product, u32 c) const {
            const bool inside = col + c * 32u < product.cols;
            return To::fetch_columns(k, inside ? col + c * 32u : 0u, inside ? result + c / BOTH * 32u : 0u);
        }
    };
    typedef typename To::Columns Columns;

    // Of how many chunks operands of the epilogue are read before those in front are stored, and of how many rows at once: as
    // registers allow, and ONE_BY_ONE, few.
    static constexpr u32 BESIDE_WORDS = sizeof(typename To::Beside) / 4u;
    static constexpr bool ROOMY = Tile::LENT ? BESIDE_WORDS > 0u && BESIDE_WORDS <= 8u : PARTS * T::SUMS <= 128u;
    static constexpr u32 EARLY_CHUNKS = ROOMY && !K::ONE_BY_ONE ? 1u : 0u;
    static constexpr u32 LINES = K::ONE_BY_ONE ? 1u : 2u;
    // Rows of 32 results of a lane, and whether their operands of the epilogue are read before the products, which take long enough for
    // them to come: where there are registers for them beside the sums and OTHERS. Warps get registers by fours.
    static constexpr u32 PIECES = T::OWN_CHUNKS / BOTH * 2u;
    static constexpr u32 AHEAD_WORDS = PIECES * BESIDE_WORDS;
    static constexpr u32 OTHERS = 32u;
    static constexpr u32 COLUMN_WORDS = sizeof(Columns) / 4u;
    static constexpr u32 MORE_COLUMNS = COLUMN_WORDS > 8u ? COLUMN_WORDS - 8u : 0u;
    static constexpr u32 ALL_WARPS = (T::WARPS + 4u) / 4u * 4u;
    static constexpr u32 REGISTERS = Tile::LENT ? 232u : 65536u / (ALL_WARPS * 32u * Tile::RESIDENT);
    static constexpr bool AHEAD =
        AHEAD_WORDS > 0u && PARTS * T::SUMS + AHEAD_WORDS + MORE_COLUMNS + OTHERS <= REGISTERS && !K::ONE_BY_ONE && !K::LOOPED;

    // Whether rows of the result are stored by runs of eight.
    DEV static bool by_runs(const K& k, const Product& product) {
        return (Tile::SPREAD || product.cols % 8u == 0u) && To::even(k);
    }

    // Whether those of a chunk are read before the one in front is stored, and those of the first before the products.
    static constexpr bool SOON =
        COLUMN_WORDS > 0u && COLUMN_WORDS <= 20u && PARTS * T::SUMS + (AHEAD ? AHEAD_WORDS : 0u) + 2u * COLUMN_WORDS + OTHERS <= REGISTERS && !K::ONE_BY_ONE;

    // Operands of columns on their way.
    struct Coming {
        OnTheirWay<Columns, SOON> columns;

        DEV void read(const K& k, const Product& product, const Place& place, u32 c) {
            if constexpr (SOON) {
                columns.put(place.columns(k, product, c));
            }
        }
    };

    // Operands of all sums of a lane, and of its first columns.
    struct Ahead {
        OnTheirWay<typename To::Beside, AHEAD> beside[AHEAD ? PIECES : 1u];
        Coming columns;

        DEV Ahead(const K& k, const Product& product, const TilePlace& tile, u32 line) {
            if constexpr (AHEAD || SOON) {
                const Place place(product, tile, line);
                const bool runs = by_runs(k, product);
                const u32 first = T::first_chunk(tile);
                if (SOON && runs) {
                    columns.read(k, product, place, first % CHUNKS);
                }
                if constexpr (AHEAD) {
#pragma unroll
                    for (u32 n = 0u; n < PIECES; n++) {
                        const u32 chunk = first + n / 2u * BOTH;
                        const u32 c = chunk % CHUNKS;
                        const u32 e = chunk / CHUNKS * 2u + n % 2u;
                        if (runs) {
                            beside[n].put(To::fetch_sums(k, place.inside(product, c, e) ? place.of(product, c, e) : 0u));
                        }
                    }
                }
            }
        }
    };

    // Other operands of sums of 32 columns of a part of a lane, for LINES of its two rows.
    struct Chunk {
        OnTheirWay<typename To::Beside, !AHEAD> beside[LINES];

        DEV void read(const K& k, const Product& product, const Place& place, u32 c, u32 first) {
            if constexpr (!AHEAD) {
#pragma unroll
                for (u32 e = 0u; e < LINES; e++) {
                    beside[e].put(To::fetch_sums(k, place.inside(product, c, first + e) ? place.of(product, c, first + e) : 0u));
                }
            }
        }
    };

    // The sums of a chunk, of COUNT from number FIRST on. By branches: a choice between registers takes an instruction for each.
    template <u32 FIRST = 0u, u32 COUNT = PARTS * CHUNKS> DEV static void pick(Sum (&own)[16], const typename T::Sums& sum, u32 chunk) {
        if constexpr (COUNT == 1u) {
#pragma unroll
            for (u32 i = 0u; i < 16u; i++) {
                own[i] = sum[FIRST / CHUNKS][FIRST % CHUNKS * 16u + i];
                if constexpr (K::LOOPED) {
                    settle(own[i]);
                }
            }
        } else if (chunk < FIRST + COUNT / 2u) {
            pick<FIRST, COUNT / 2u>(own, sum, chunk);
        } else {
            pick<FIRST + COUNT / 2u, COUNT - COUNT / 2u>(own, sum, chunk);
        }
    }

    // Mean and factor of row `e` of a lane, by branches as in `pick`.
    DEV static RowNorm pick_norm(const Norms& norms, u32 e) {
        RowNorm found = norms.of_row[0];
#pragma unroll
        for (u32 i = 1u; i < (K::NORMED ? PARTS * 2u : 1u); i++) {
            if (e == i) {
                found = norms.of_row[i];
            }
        }
        return found;
    }

    // Stores the sums of a group, part after part, so that registers come free: runs of eight where rows of the result are
    // multiples of it. `all` is the number of results.
    DEV static void put_tile(const K& k, const Product& product, u32 all, const TilePlace& tile, u32 line, const typename T::Sums& sum,
                             const Ahead& ahead, const Norms& norms) {
        const Place place(product, tile, line);
        const bool runs = by_runs(k, product);
        const u32 first = T::first_chunk(tile);
        Chunk with, next;
        Coming coming = ahead.columns;
        if (EARLY_CHUNKS > 0u && runs) {
            next.read(k, product, place, first % CHUNKS, first / CHUNKS * 2u);
        }
        if constexpr (T::EXCHANGE) {
            Exchange<Tile>::send(sum, tile.part);
            barrier_wait(T::received(), 0u);
        }
#pragma unroll (K::LOOPED ? 1 : T::OWN_CHUNKS)
        for (u32 n = 0u; n < T::OWN_CHUNKS; n += BOTH) {
            const u32 chunk = first + n;
            const u32 c = chunk % CHUNKS;
            const u32 ahead_of = chunk + BOTH;
            const bool more = runs && n + BOTH < T::OWN_CHUNKS;
            with = next;
            Columns columns;
            coming.columns.get(columns);
            if (more) {
                coming.read(k, product, place, ahead_of % CHUNKS);
            }
            if (runs && !SOON) {
                columns = place.columns(k, product, c);
            }
            if (EARLY_CHUNKS > 0u && more) {
                next.read(k, product, place, ahead_of % CHUNKS, ahead_of / CHUNKS * 2u);
            }
            Sum own[BOTH][16];
#pragma unroll
            for (u32 side = 0u; side < BOTH; side++) {
                pick(own[side], sum, chunk + side);
                if constexpr (T::EXCHANGE) {
                    Exchange<Tile>::add(own[side], n + side);
                }
            }
            Sum v[2][BOTH][8];
#pragma unroll
            for (u32 i = 0u; i < 2u * BOTH; i++) {
                T::gather_row(v[i / BOTH][i % BOTH], own[i % BOTH], i / BOTH * 2u);
            }
            // Both rows without a branch between them: one hides what the functions of the other wait for.
            const u32 top = chunk / CHUNKS * 2u;
            if (runs && place.inside(product, c, top + 1u)) {
#pragma unroll
                for (u32 h = 0u; h < 2u; h++) {
                    if (EARLY_CHUNKS == 0u && h % LINES == 0u) {
                        with.read(k, product, place, c, top + h);
                    }
                    typename To::Beside beside;
                    if constexpr (AHEAD) {
                        ahead.beside[n / BOTH * 2u + h].get(beside);
                    } else {
                        with.beside[h % LINES].get(beside);
                    }
                    To::put(k, tile.part, all, place.of(product, c, top + h), v[h], pick_norm(norms, top + h), columns, beside);
                }
                continue;
            }
#pragma unroll
            for (u32 h = 0u; h < 2u; h++) {
                if (place.inside(product, c, top + h)) {
                    const u32 at = place.of(product, c, top + h);
                    put_some(k, tile.part, all, at, v[h], place.col + c * 32u, product.cols, pick_norm(norms, top + h));
                }
            }
        }
    }

    // Those of eight results that are left of the last column. One by one: code that is seldom run must not crowd out what is.
    DEV static void put_some(const K& k, u32 part, u32 all, u32 at, const Sum (&v)[BOTH][8], u32 col, u32 cols, const RowNorm& norm = RowNorm{}) {
        const u32 count = ::min(cols - col, 8u);
#pragma unroll 1
        for (u32 q = 0u; q < count; q++) {
            Sum one[BOTH];
#pragma unroll
            for (u32 side = 0u; side < BOTH; side++) {
                const Sum low = q & 2u ? (q & 1u ? v[side][3] : v[side][2]) : (q & 1u ? v[side][1] : v[side][0]);
                const Sum high = q & 2u ? (q & 1u ? v[side][7] : v[side][6]) : (q & 1u ? v[side][5] : v[side][4]);
                one[side] = q & 4u ? high : low;
            }
            To::put_one(k, part, all, at + q, one, norm, col + q);
        }
    }
};
