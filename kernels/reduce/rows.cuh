// Reductions of the last axes, read up to eight elements at a time: some lanes of a warp, a block, or several blocks have a row. RAW sums
// go to scratch memory. Hooks as in `reduce.cuh`.
#pragma once
#include "parts.cuh"
#include "stretch.cuh"

struct ReduceRowsParams {
    u32 count;
    u32 rows;
    u32 elements;
    u32 raw;
    u32 lanes;
    u32 lanes_log2;
    u32 parts;
    u32 part;
};

// Adds elements to a sum.
template <class K> struct RowSum {
    const K& k;
    Part<K> all;
    template <class T, u32 N> DEV void operator()(const T (&v)[N]) { all = with_elements(k, all, v); }
};

template <class K> DEV void put_row(const K& k, u32 at, Part<K> all) {
    const auto& p = params<ReduceRowsParams>(k);
    if (p.raw != 0u) {
        reinterpret_cast<Part<K>*>(k.scratch)[at] = all;
    } else {
        k.emit0(at, result_of(k, all, p.elements));
    }
}

// Some lanes of a warp a row.
template <u32 V, class K> DEV void rows_of_lanes(const K& k) {
    const auto& p = params<ReduceRowsParams>(k);
    const u32 row = blockIdx.x * (K::LANES >> p.lanes_log2) + (threadIdx.x >> p.lanes_log2);
    const u32 l = threadIdx.x & (p.lanes - 1u);
    RowSum<K> found = {k, empty_part(k)};
    if (row < p.rows) {
        stretch<V>(k, row * p.count, (row + 1u) * p.count, l, p.lanes, found);
    }
    const Part<K> all = of_lanes(k, found.all, p.lanes);
    if (row < p.rows && l == 0u) {
        put_row(k, row, all);
    }
}

// A block a part of a row.
template <u32 V, class K> DEV void rows_of_blocks(const K& k) {
    const auto& p = params<ReduceRowsParams>(k);
    const u32 row = blockIdx.x / p.parts;
    const u32 first = (blockIdx.x - row * p.parts) * p.part;
    const u32 base = row * p.count;
    RowSum<K> found = {k, empty_part(k)};
    stretch<V>(k, base + first, base + min(first + p.part, p.count), threadIdx.x, K::LANES, found);
    const Part<K> all = of_block(k, found.all);
    if (threadIdx.x == 0u) {
        put_row(k, blockIdx.x, all);
    }
}

template <class K> DEV void rows_of_lanes_8(const K& k) { rows_of_lanes<8u>(k); }
template <class K> DEV void rows_of_lanes_1(const K& k) { rows_of_lanes<1u>(k); }
template <class K> DEV void rows_of_blocks_8(const K& k) { rows_of_blocks<8u>(k); }
