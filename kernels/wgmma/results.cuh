// Destination of sums of wgmma: the fused expression, or scratch memory as parts that another kernel adds up. `K::GATED`, a result is made
// of two sums, a gate and a value K::SIDE columns later: `K::gate_of` of one times `K::value_of` of the other.
#pragma once
#include "../conv/bias.cuh"
#include "../prelude/launch.cuh"
#include "moments.cuh"

// Sums of a result.
template <class K> constexpr u32 SIDES = K::GATED ? 2u : 1u;

// Operands of eight neighbouring columns of sums that are the same for all rows.
template <class K> struct SumColumns : Biases<K>, ColumnSums<K> {
    DEV static SumColumns read(const K& k, u32 col) { return SumColumns{Biases<K>::read(k, col), ColumnSums<K>::read(k, col)}; }

    template <class Sum> DEV void apply(Sum* v, const RowNorm& norm) const {
        ColumnSums<K>::apply(v, norm);
        Biases<K>::add(v);
    }

    // One sum of column `col`.
    template <class Sum> DEV static Sum applied(const K& k, Sum x, const RowNorm& norm, u32 col) {
        return Biases<K>::biased(k, ColumnSums<K>::applied(k, x, norm, col), col);
    }
};

// Those of eight results, by the first column of their sums.
template <class K, bool GATED = K::GATED> struct ResultColumns : SumColumns<K> {
    DEV static ResultColumns read(const K& k, u32 col) { return ResultColumns{SumColumns<K>::read(k, col)}; }
    template <class Sum> DEV void apply(Sum (&v)[1][8], const RowNorm& norm) const { SumColumns<K>::apply(v[0], norm); }
};
template <class K> struct ResultColumns<K, true> {
    SumColumns<K> gates, values;

    DEV static ResultColumns read(const K& k, u32 col) { return ResultColumns{SumColumns<K>::read(k, col), SumColumns<K>::read(k, col + K::SIDE)}; }

    template <class Sum> DEV void apply(Sum (&v)[2][8], const RowNorm& norm) const {
        gates.apply(v[0], norm);
        values.apply(v[1], norm);
#pragma unroll
        for (u32 i = 0u; i < 8u; i++) {
            v[0][i] = K::gate_of(v[0][i]) * K::value_of(v[1][i]);
        }
    }
};

// Sums of the whole depth.
template <class K> struct WholeSums {
    // Operands of eight results beside their sums': the same for all rows, and the rest.
    typedef typename K::Columns0 Across;
    typedef typename K::Rest0 Beside;

    // What is the same for all rows.
    struct Columns : ResultColumns<K>, Across {};

    // Whether what is read beside sums may be read by vectors.
    DEV static bool even(const K& k) { return k.even0() && Biases<K>::even(k) && ColumnSums<K>::even(k); }

    // Those of results from `result` on, whose first sum is in column `col`.
    DEV static Columns fetch_columns(const K& k, u32 col, u32 result) {
        return Columns{ResultColumns<K>::read(k, col), k.template fetch0_columns<true>(result)};
    }
    DEV static Beside fetch_sums(const K& k, u32 at) { return k.template fetch0_rest<true>(at); }

    // Eight results of a row from their sums; `all` is the number of results, from which part `part` of all sums is found in scratch
    // memory.
    template <class Sum>
    DEV static void put(const K& k, u32, u32, u32 at, Sum (&v)[SIDES<K>][8], const RowNorm& norm, const Columns& columns, const Beside& more) {
        columns.apply(v, norm);
        const Across& across = columns;
        k.emit0_run(at, v[0], typename K::Fetched0{across, more});
    }

    // One result, whose first sum is in column `col`.
    template <class Sum> DEV static void put_one(const K& k, u32, u32, u32 at, const Sum (&v)[SIDES<K>], const RowNorm& norm, u32 col) {
        Sum y = SumColumns<K>::applied(k, v[0], norm, col);
        if constexpr (K::GATED) {
            y = K::gate_of(y) * K::value_of(SumColumns<K>::applied(k, v[1], norm, col + K::SIDE));
        }
        k.emit0(at, y);
    }
};

// Sums of a part of the depth.
template <class K> struct PartSums {
    struct Columns {};
    struct Beside {};

    DEV static bool even(const K&) { return true; }

    DEV static Columns fetch_columns(const K&, u32, u32) { return Columns{}; }
    DEV static Beside fetch_sums(const K&, u32) { return Beside{}; }

    template <class Sum>
    DEV static void put(const K& k, u32 part, u32 all, u32 at, const Sum (&v)[1][8], const RowNorm&, const Columns&, const Beside&) {
        Sum* to = reinterpret_cast<Sum*>(k.scratch) + u64(part) * all + at;
        for (u32 q = 0u; q < 8u; q += 4u) {
            Pack<Sum> four;
            for (u32 i = 0u; i < 4u; i++) {
                four.v[i] = v[0][q + i];
            }
            four.put(to + q);
        }
    }

    template <class Sum> DEV static void put_one(const K& k, u32 part, u32 all, u32 at, const Sum (&v)[1], const RowNorm&, u32) {
        reinterpret_cast<Sum*>(k.scratch)[u64(part) * all + at] = v[0];
    }
};

// A result from the parts of its sum, of column `col`.
template <class K> DEV typename K::Tile::Sum sum_of_parts(const K& k, u32 all, u32 at, u32 col) {
    typedef typename K::Tile::Sum Sum;
    const Sum* from = reinterpret_cast<const Sum*>(k.scratch) + at;
    Sum sum = Sum(0);
#pragma unroll
    for (u32 part = 0u; part < K::Tile::SPLIT; part++) {
        sum += from[u64(part) * all];
    }
    return Biases<K>::biased(k, sum, col);
}
