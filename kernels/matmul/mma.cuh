// Matrix products on tensor cores by mma.sync. SPLIT blocks share the depth of a tile where it is more than 1; their sums lie in
// scratch memory and are added in order.
#pragma once
#include "../prelude/launch.cuh"
#include "../mma/tiles.cuh"
#include "../reduce/side.cuh"

struct MmaMatmulParams {
    u32 rows;
    u32 columns;
    u32 depth;
    u32 a_row;
    u32 a_column;
    u32 b_row;
    u32 b_column;
    u32 sums;
    List batch;
    List a_batch;
    List b_batch;
};

// Knowledge of the lines of an operand: none, that they are whole vectors of 16 bytes, that they are not.
enum KnownLines : u32 { ANY_LINES, WHOLE_LINES, UNEVEN_LINES };

// Copies a tile of LINES lines by vectors, stage after stage: a thread keeps to its places. `step` elements lie from one line
// to the next, or ACROSS from one k to the next.
template <class Tile, u32 LINES, bool ACROSS, class Cell> struct LineCopies {
    typedef MmaTiles<Tile> T;
    static constexpr u32 SIDE = ACROSS ? LINES / T::PER_COPY : Tile::BYTES / 16u;
    static constexpr u32 ROWS = ACROSS ? T::BK : LINES;
    static constexpr u32 WIDE = ACROSS ? LINES * T::SIZE + T::SKEW : T::PITCH;
    static constexpr u32 BELOW = T::THREADS / SIDE;
    static constexpr u32 COUNT = (ROWS + BELOW - 1u) / BELOW;
    // Vectors of a part of a stage, where they are loaded by words.
    static constexpr u32 MOST = (COUNT + T::PARTS - 1u) / T::PARTS;
    static_assert(T::STAGES >= 3u, "words of a stage are stored during the stage behind it");
    const Cell* from;
    u32 step, inside, lines_left;
    // Vectors on their way through registers: aligned words, and how many bytes of a vector are there.
    u32 word[MOST][5];
    u32 bytes[MOST];
    u8* to;

    DEV void start(const Cell* base, u32 line0, u32 lines, u32 own_step, u32 k0) {
        const u32 row = threadIdx.x / SIDE;
        const u32 col = threadIdx.x % SIDE * T::PER_COPY;
        step = own_step;
        lines_left = line0 < lines ? lines - line0 : 0u;
        to = nullptr;
        from = base + (ACROSS ? (k0 + row) * step + line0 + col : (line0 + row) * step + k0 + col);
        inside = 0u;
#pragma unroll
        for (u32 q = 0u; q < COUNT; q++) {
            inside |= u32(line0 + (ACROSS ? col : row + q * BELOW) < lines) << q;
        }
    }

    // Part `part` of `parts` of the next stage, of which `left` of the depth are there. Nothing is read where a line is not.
    DEV void load(u8* tile, u32 left, u32 part, u32 parts) {
        const u32 row = threadIdx.x / SIDE;
        const u32 col = threadIdx.x % SIDE * T::PER_COPY;
        u8* const to = tile + row * WIDE + threadIdx.x % SIDE * 16u;
        const u32 live = ACROSS || col < left ? inside : 0u;
        const u32 depth = live != 0u ? left : 0u;
#pragma unroll
        for (u32 q = COUNT * part / parts; q < COUNT * (part + 1u) / parts; q++) {
            const u32 down = row + q * BELOW;
            if (ROWS % BELOW == 0u || down < ROWS) {
                copy16(to + q * BELOW * WIDE, from + u64(q * BELOW) * step, ACROSS ? down < depth : (live >> q & 1u) != 0u);
            }
        }
        if (part + 1u == parts) {
            from += ACROSS ? T::BK * step : T::BK;
        }
    }

    template <u32 KNOWN> DEV void load_any(u8* tile, u32 left, u32 part, bool whole) {
        if constexpr (KNOWN == WHOLE_LINES) {
            load(tile, left, part, T::PARTS);
        } else if constexpr (KNOWN == UNEVEN_LINES) {
            load_words(tile, left, part);
        } else if (whole) {
            load(tile, left, part, T::PARTS);
        } else {
            load_words(tile, left, part);
        }
    }

    // The same for lines that start anywhere. A part is stored when the next one is asked for: its words arrive meanwhile, unless the
    // sums of a warp leave no registers for them.
    DEV void load_words(u8* tile, u32 left, u32 part) {
        if constexpr (T::WM * T::WN >= 64u * 64u) {
            to = tile;
            copy_words(left, part);
        } else {
            if (to != nullptr) {
                put(part == 0u ? T::PARTS - 1u : part - 1u);
            }
            to = tile;
#pragma unroll
            for (u32 q = first(part); q < first(part + 1u); q++) {
                fetch(left, q, q - first(part));
            }
        }
        advance(part);
    }

    // The whole stage at once.
    DEV void load_words_now(u8* tile, u32 left) {
        to = tile;
#pragma unroll
        for (u32 part = 0u; part < T::PARTS; part++) {
            copy_words(left, part);
            advance(part);
        }
    }

    // The first vector of a thread in a part.
    DEV static constexpr u32 first(u32 part) { return COUNT * part / T::PARTS; }

    DEV void advance(u32 part) {
        if (part + 1u == T::PARTS) {
            from += ACROSS ? T::BK * step : T::BK;
        }
    }

    DEV void copy_words(u32 left, u32 part) {
#pragma unroll 1
        for (u32 q = first(part); q < first(part + 1u); q++) {
            fetch(left, q, 0u);
            store(q, 0u);
        }
    }

    // Stores the vectors of a part. `from` may be a stage further: that changes no low bits of addresses.
    DEV void put(u32 part) {
#pragma unroll
        for (u32 q = first(part); q < first(part + 1u); q++) {
            store(q, q - first(part));
        }
    }

    // Reads the aligned words that hold the elements of vector q, none where no element is.
    DEV void fetch(u32 left, u32 q, u32 i) {
        const u32 down = threadIdx.x / SIDE + q * BELOW;
        const u32 col = threadIdx.x % SIDE * T::PER_COPY;
        const u32 end = ACROSS ? lines_left : left;
        const bool there = (ROWS % BELOW == 0u || down < ROWS) && (ACROSS ? down < left : (inside >> q & 1u) != 0u);
        const u64 at = reinterpret_cast<u64>(from + u64(q * BELOW) * step);
        const u32* p = reinterpret_cast<const u32*>(at & ~u64(3));
        bytes[i] = there && col < end ? ::min(end - col, T::PER_COPY) * T::SIZE : 0u;
        const u32 count = bytes[i] != 0u ? bytes[i] + u32(at & 3u) : 0u;
#pragma unroll
        for (u32 w = 0u; w < 5u; w++) {
            word[i][w] = w * 4u < count ? p[w] : 0u;
        }
    }

    // Stores vector q, with zeros where no element is.
    DEV void store(u32 q, u32 i) {
        const u32 row = threadIdx.x / SIDE;
        const u32 shift = u32(reinterpret_cast<u64>(from + u64(q * BELOW) * step) & 3u) * 8u;
        u32 v[4];
#pragma unroll
        for (u32 w = 0u; w < 4u; w++) {
            const u32 rest = bytes[i] > w * 4u ? bytes[i] - w * 4u : 0u;
            const u32 mask = rest >= 4u ? 0xffffffffu : (1u << rest * 8u) - 1u;
            v[w] = __funnelshift_r(word[i][w], word[i][w + 1u], shift) & mask;
        }
        if (ROWS % BELOW == 0u || row + q * BELOW < ROWS) {
            *reinterpret_cast<uint4*>(to + (row + q * BELOW) * WIDE + threadIdx.x % SIDE * 16u) = make_uint4(v[0], v[1], v[2], v[3]);
        }
    }
};

// The sizes of a product of two matrices, and elements from one row and column of each to the next.
struct Matrices {
    u32 rows, columns, depth, a_row, a_column, b_row, b_column;
};

// The tile of a block, which is `part` of those that share it: which product, and its first row and column.
struct TilePlace {
    u32 part, batch, row, column;
};

template <class Tile> DEV TilePlace place_of(u32 block, u32 split, u32 rows, u32 columns) {
    const u32 across = (columns + Tile::COLUMNS - 1u) / Tile::COLUMNS;
    const u32 down = (rows + Tile::ROWS - 1u) / Tile::ROWS;
    u32 i, j;
    place_tile(block / split % (across * down), down, across, i, j);
    return TilePlace{block % split, block / split / across / down, i * Tile::ROWS, j * Tile::COLUMNS};
}

// Computes the sums of a tile. The matrices begin `pa` and `pb` elements behind `a` and `b`.
template <class Tile, u32 SPLIT, u32 LINES_A, u32 LINES_B, class A, class B>
DEV void multiply_tile(typename MmaTiles<Tile>::Sums& sum, const Matrices& m, const A* a, const B* b, u32 pa, u32 pb, const TilePlace& place) {
    typedef MmaTiles<Tile> T;
    constexpr u32 BM = T::BM;
    constexpr u32 BN = T::BN;
    constexpr u32 BK = T::BK;
    const u32 step_a = Tile::ACROSS_A ? m.a_column : m.a_row;
    const u32 step_b = Tile::ACROSS_B ? m.b_row : m.b_column;
    const bool whole_a = (step_a | pa | (Tile::ACROSS_A ? m.rows : m.depth)) % T::PER_COPY == 0u;
    const bool whole_b = (step_b | pb | (Tile::ACROSS_B ? m.columns : m.depth)) % T::PER_COPY == 0u;
    const u32 all = (m.depth + BK - 1u) / BK;
    const u32 share = (all + SPLIT - 1u) / SPLIT;
    const u32 first = ::min(place.part * share, all);
    LineCopies<Tile, BM, Tile::ACROSS_A, A> copies_a;
    LineCopies<Tile, BN, Tile::ACROSS_B, B> copies_b;
    copies_a.start(a + pa, place.row, m.rows, step_a, first * BK);
    copies_b.start(b + pb, place.column, m.columns, step_b, first * BK);
    const u32 steps = ::min(share, all - first);
    T::accumulate(sum, steps, [&](u32 stage, u32 step, u32 part) {
        const u32 left = step < steps ? m.depth - (first + step) * BK : 0u;
        copies_a.template load_any<LINES_A>(T::stage_a(stage), left, part, whole_a);
        copies_b.template load_any<LINES_B>(T::stage_b(stage), left, part, whole_b);
    });
}

// Products of all batches, or parts of their sums.
template <class K> DEV void gemm(const K& k) {
    typedef typename K::Tile Tile;
    typedef typename MmaTiles<Tile>::Sum Sum;
    const auto& p = params<MmaMatmulParams>(k);
    const Matrices m{p.rows, p.columns, p.depth, p.a_row, p.a_column, p.b_row, p.b_column};
    const TilePlace place = place_of<Tile>(blockIdx.x, K::SPLIT, p.rows, p.columns);
    const u32 pa = strided(k, p.batch, p.a_batch, place.batch);
    const u32 pb = strided(k, p.batch, p.b_batch, place.batch);
    typename MmaTiles<Tile>::Sums sum = {};
    multiply_tile<Tile, K::SPLIT, K::LINES_A, K::LINES_B>(sum, m, k.bx0, k.bx1, pa, pb, place);
    const bool runs = p.columns % 8u == 0u;
    if constexpr (!K::SIDE) {
        if (!runs) {
            MmaTiles<Tile>::spread_each(sum, [&](u32 row, u32 col, Sum v) {
                row += place.row;
                col += place.column;
                if (row >= p.rows || col >= p.columns) {
                    return;
                }
                const u32 at = (place.batch * p.rows + row) * p.columns + col;
                if constexpr (K::SPLIT > 1u) {
                    (reinterpret_cast<Sum*>(k.scratch) + u64(place.part) * p.sums)[at] = v;
                } else {
                    k.emit0(at, v);
                }
            });
            return;
        }
    }
    MmaTiles<Tile>::spread(sum, [&](u32 row, u32 col, const Sum* v) {
        row += place.row;
        col += place.column;
        if (row >= p.rows || col >= p.columns) {
            return;
        }
        const u32 at = (place.batch * p.rows + row) * p.columns + col;
        const u32 left = p.columns - col;
        if constexpr (K::SIDE) {
            const auto part = runs ? side_run(k, at, v) : side_elements(k, at, v, ::min(left, 8u));
            side_put<K>(side_memory<K>(block_memory), row - place.row, col - place.column, part);
        } else if constexpr (K::SPLIT > 1u) {
            Sum* to = reinterpret_cast<Sum*>(k.scratch) + u64(place.part) * p.sums + at;
            for (u32 q = 0u; q < 8u && q < left; q++) {
                to[q] = v[q];
            }
        } else {
            if (runs) {
                k.emit0_run(at, v);
                return;
            }
            for (u32 q = 0u; q < 8u && q < left; q++) {
                k.emit0(at + q, v[q]);
            }
        }
    });
    if constexpr (K::SIDE) {
        const u32 inside = ::min(p.rows - place.row, Tile::ROWS);
        side_tile(k, side_memory<K>(block_memory), place.batch * p.rows + place.row, inside, place.column);
    }
}

// A result from the parts of its sum.
template <class K> DEV typename MmaTiles<typename K::Tile>::Sum gemm_sum(const K& k, u32 at) {
    typedef typename MmaTiles<typename K::Tile>::Sum Sum;
    const auto& p = params<MmaMatmulParams>(k);
    const Sum* from = reinterpret_cast<const Sum*>(k.scratch) + at;
    Sum sum = Sum(0);
    for (u32 part = 0u; part < K::SPLIT; part++) {
        sum += from[u64(part) * p.sums];
    }
    return sum;
}
