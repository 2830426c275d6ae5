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

// Copies a tile of LINES lines by vectors, stage after stage: a thread keeps to its places. `step` elements lie from one line
// to the next, or ACROSS from one k to the next.
template <class Tile, u32 LINES, bool ACROSS, class Cell> struct LineCopies {
    typedef MmaTiles<Tile> T;
    static constexpr u32 SIDE = ACROSS ? LINES / T::PER_COPY : Tile::BYTES / 16u;
    static constexpr u32 ROWS = ACROSS ? T::BK : LINES;
    static constexpr u32 WIDE = ACROSS ? LINES * T::SIZE + T::SKEW : T::PITCH;
    static constexpr u32 BELOW = T::THREADS / SIDE;
    static constexpr u32 COUNT = (ROWS + BELOW - 1u) / BELOW;
    const Cell* from;
    u32 step, inside;

    DEV void start(const Cell* base, u32 line0, u32 lines, u32 own_step, u32 k0) {
        const u32 row = threadIdx.x / SIDE;
        const u32 col = threadIdx.x % SIDE * T::PER_COPY;
        step = own_step;
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
};

// The same element by element, of lines that do not start at multiples of 16 bytes: the stage from element `k0` on.
template <class Tile, u32 LINES, bool ACROSS, class Cell>
DEV void load_elements(u8* tile, const Cell* from, u32 line0, u32 lines, u32 step, u32 k0, u32 depth) {
    typedef MmaTiles<Tile> T;
    constexpr u32 WIDE = ACROSS ? LINES * T::SIZE + T::SKEW : T::PITCH;
    constexpr u32 SIDE = ACROSS ? LINES : T::BK;
    for (u32 e = threadIdx.x; e < LINES * T::BK; e += T::THREADS) {
        const u32 k = k0 + (ACROSS ? e / SIDE : e % SIDE);
        const u32 line = line0 + (ACROSS ? e % SIDE : e / SIDE);
        const bool inside = line < lines && k < depth;
        const u32 at = ACROSS ? k * step + line : line * step + k;
        reinterpret_cast<Cell*>(tile + e / SIDE * WIDE)[e % SIDE] = inside ? from[at] : Cell(0);
    }
}

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

// Computes a tile, and passes eight neighbouring sums of it at a time to `put(row, column, sums)`. The matrices begin `pa` and
// `pb` elements behind `a` and `b`. WHOLE, lines of both are known to be whole vectors of 16 bytes.
template <class Tile, u32 SPLIT, bool WHOLE, class A, class B, class Put>
DEV void multiply_tile(const Matrices& m, const A* a, const B* b, u32 pa, u32 pb, const TilePlace& place, Put put) {
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
    typename T::Sums sum = {};
    T::accumulate(sum, steps, [&](u32 stage, u32 step, u32 part) {
        const u32 k0 = (first + step) * BK;
        if constexpr (WHOLE) {
            const u32 left = step < steps ? m.depth - k0 : 0u;
            copies_a.load(T::stage_a(stage), left, part, T::PARTS);
            copies_b.load(T::stage_b(stage), left, part, T::PARTS);
            return;
        }
        if (part != 0u || step >= steps) {
            return;
        }
        if (whole_a) {
            copies_a.load(T::stage_a(stage), m.depth - k0, 0u, 1u);
        } else {
            load_elements<Tile, BM, Tile::ACROSS_A>(T::stage_a(stage), a + pa, place.row, m.rows, step_a, k0, m.depth);
        }
        if (whole_b) {
            copies_b.load(T::stage_b(stage), m.depth - k0, 0u, 1u);
        } else {
            load_elements<Tile, BN, Tile::ACROSS_B>(T::stage_b(stage), b + pb, place.column, m.columns, step_b, k0, m.depth);
        }
    });
    T::spread(sum, [&](u32 row, u32 col, const typename T::Sum* v) {
        row += place.row;
        col += place.column;
        if (row < m.rows && col < m.columns) {
            put(row, col, v);
        }
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
    const bool runs = p.columns % 8u == 0u;
    multiply_tile<Tile, K::SPLIT, K::WHOLE>(m, k.bx0, k.bx1, pa, pb, place, [&](u32 row, u32 col, const Sum* v) {
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
