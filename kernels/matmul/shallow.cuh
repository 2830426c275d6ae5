// Products whose depth is a small constant: a thread has COLUMNS columns, whose elements stay in registers, and multiplies them by `each`
// rows. They are neighbours with RUNS, else as far apart as there are threads of a row. A block's threads are `high` rows of `wide`
// threads; those that are left over rest.
#pragma once
#include "../prelude/launch.cuh"

struct ShallowMatmulParams {
    u32 rows;
    u32 columns;
    u32 wide;
    u32 high;
    u32 each;
    u32 across;
    u32 down;
    u32 a_row;
    u32 a_column;
    u32 b_row;
    u32 b_column;
    List batch;
    List a_batch;
    List b_batch;
};

template <u32 COLUMNS, bool RUNS, class K> DEV void shallow(const K& k) {
    typedef typename K::Cell Cell;
    constexpr u32 DEPTH = K::DEPTH;
    const auto& p = params<ShallowMatmulParams>(k);
    const u32 row_block = blockIdx.x / p.across;
    const u32 entry = row_block / p.down;
    const u32 line = threadIdx.x / p.wide;
    const u32 own = threadIdx.x - line * p.wide;
    const u32 column = (blockIdx.x - row_block * p.across) * p.wide * COLUMNS + own * (RUNS ? COLUMNS : 1u);
    if (line >= p.high || column >= p.columns) {
        return;
    }
    const u32 apart = RUNS ? 1u : p.wide;
    const Cell* const b = k.bx1 + strided(k, p.batch, p.b_batch, entry);
    f32 of_columns[COLUMNS][DEPTH];
#pragma unroll
    for (u32 c = 0u; c < COLUMNS; c++) {
        // Columns that are not there are the last one.
        const u32 at = min(column + c * apart, p.columns - 1u) * p.b_column;
#pragma unroll
        for (u32 d = 0u; d < DEPTH; d++) {
            of_columns[c][d] = k.wide(b[at + d * p.b_row]);
        }
    }
    const u32 first = (row_block - entry * p.down) * p.high * p.each + line;
    const u32 end = min(first + p.each * p.high, p.rows);
    const Cell* const a = k.bx0 + strided(k, p.batch, p.a_batch, entry);
    const u32 results = entry * p.rows * p.columns + column;
#pragma unroll 2
    for (u32 row = first; row < end; row += p.high) {
        f32 of_row[DEPTH];
#pragma unroll
        for (u32 d = 0u; d < DEPTH; d++) {
            of_row[d] = k.wide(a[row * p.a_row + d * p.a_column]);
        }
        f32 sums[COLUMNS] = {};
#pragma unroll
        for (u32 c = 0u; c < COLUMNS; c++) {
#pragma unroll
            for (u32 d = 0u; d < DEPTH; d++) {
                sums[c] = __fmaf_rn(of_row[d], of_columns[c][d], sums[c]);
            }
        }
        const u32 to = results + row * p.columns;
        if constexpr (RUNS) {
            k.emit0_run(to, sums);
        } else {
#pragma unroll
            for (u32 c = 0u; c < COLUMNS; c++) {
                if (column + c * apart < p.columns) {
                    k.emit0(to + c * apart, sums[c]);
                }
            }
        }
    }
}

template <class K> DEV void shallow_runs(const K& k) { shallow<8u, true>(k); }
template <class K> DEV void shallow_4(const K& k) { shallow<4u, false>(k); }
template <class K> DEV void shallow_1(const K& k) { shallow<1u, false>(k); }
