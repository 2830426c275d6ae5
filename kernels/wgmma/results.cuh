// Destination of sums of wgmma: the fused expression, or scratch memory as parts that another kernel adds up.
#pragma once
#include "../conv/bias.cuh"
#include "../prelude/launch.cuh"

// Sums of the whole depth.
template <class K> struct WholeSums {
    // Operands of eight sums beside biases: the same for all rows, and the rest.
    typedef typename K::Columns0 Across;
    typedef typename K::Rest0 Beside;

    // Whether what is read beside sums may be read by vectors.
    DEV static bool even(const K& k) { return k.even0() && Biases<K>::even(k); }

    DEV static Across fetch_columns(const K& k, u32 col) { return k.template fetch0_columns<true>(col); }
    DEV static Beside fetch_sums(const K& k, u32 at) { return k.template fetch0_rest<true>(at); }

    // Eight sums of a row; `all` is the number of results, from which part `part` of all sums is found in scratch memory.
    template <class Sum>
    DEV static void put(const K& k, u32, u32, u32 at, Sum* v, const Biases<K>& b, const Across& across, const Beside& more) {
        b.add(v);
        k.emit0_run(at, v, typename K::Fetched0{across, more});
    }

    // One sum.
    template <class Sum> DEV static void put_one(const K& k, u32, u32, u32 at, Sum v, u32 col) {
        k.emit0(at, Biases<K>::biased(k, v, col));
    }
};

// Sums of a part of the depth.
template <class K> struct PartSums {
    struct Across {};
    struct Beside {};

    DEV static bool even(const K&) { return true; }

    DEV static Across fetch_columns(const K&, u32) { return Across{}; }
    DEV static Beside fetch_sums(const K&, u32) { return Beside{}; }

    template <class Sum>
    DEV static void put(const K& k, u32 part, u32 all, u32 at, Sum* v, const Biases<K>&, const Across&, const Beside&) {
        Sum* to = reinterpret_cast<Sum*>(k.scratch) + u64(part) * all + at;
        for (u32 q = 0u; q < 8u; q += 4u) {
            Pack<Sum> four;
            for (u32 i = 0u; i < 4u; i++) {
                four.v[i] = v[q + i];
            }
            four.put(to + q);
        }
    }

    template <class Sum> DEV static void put_one(const K& k, u32 part, u32 all, u32 at, Sum v, u32) {
        reinterpret_cast<Sum*>(k.scratch)[u64(part) * all + at] = v;
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
