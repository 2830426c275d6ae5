// Updates of many places at once, a thread an update: each place of the result has a word in scratch memory, in which updates are
// combined by atomic operations whose result does not depend on their order. Then a thread an element combines words with x.
//
// Sums of floats are made in integers: of f16 exactly, of wider types relative to the greatest exponent of a place's updates, with
// 36 bits at least below the greatest update. Products of floats have no such form.
#pragma once
#include "../checks/index.cuh"
#include "../prelude/math.cuh"
#include "../slice/divisor.cuh"

struct ScatterPlacesParams {
    u32 results;
    u32 updates;
    u32 slice;
    u32 slice_factor;
    u32 slice_shift;
    u32 size;
    u32 stride;
    u32 spare;
    u32 aliased;
    List sizes;
    List factors;
    List shifts;
    List strides;
};

// Contents of a place's word, by `K::MODE`: the number of the last update, a sum or product of integers, a sum of floats, an extremum.
enum Words : u32 { LAST, SUM, PRODUCT, REAL, EXTREMUM };

constexpr u32 NOWHERE = 0xffffffffu;
// The word of a sum of floats: 62 bits that begin in the middle, and a bit for infinities of each sign.
constexpr u64 MIDDLE = 1ull << 61;
constexpr u64 POSITIVE = 1ull << 62;
constexpr u64 NEGATIVE = 1ull << 63;

template <class K> DEV Divisor slice_of(const ScatterPlacesParams& p) { return Divisor{p.slice, p.slice_factor, p.slice_shift}; }

// The place of an update along all dimensions but that of its index.
template <class K> DEV u32 place_beside(const K& k, const ScatterPlacesParams& p, u32 update) {
    u32 place = 0u;
    u32 rest = update;
    for (u32 d = 0u; d < p.sizes.count; d++) {
        const u32 n = item(k, p.sizes, d);
        const u32 q = divide(rest, Divisor{n, item(k, p.factors, d), item(k, p.shifts, d)});
        place += (rest - q * n) * item(k, p.strides, d);
        rest = q;
    }
    return place;
}

// The place of an update in the result.
template <class K> DEV u32 place_of(const K& k, const ScatterPlacesParams& p, u32 update) {
    if constexpr (K::TUPLES) {
        const u32 tuple = divide(update, slice_of<K>(p));
        u32 place = update - tuple * p.slice;
        for (u32 d = 0u; d < p.sizes.count; d++) {
            const u32 at = tuple * p.sizes.count + d;
            const i32 i = checked(k, 1u, at, k.x1(at), item(k, p.sizes, d));
            if (i < 0) {
                return NOWHERE;
            }
            place += u32(i) * item(k, p.strides, d);
        }
        return place;
    } else {
        const i32 i = checked(k, 1u, update, k.x1(update), p.size);
        if (i < 0) {
            return NOWHERE;
        }
        return u32(i) * p.stride + place_beside<K>(k, p, update);
    }
}

template <class K> DEV typename K::Word* words_of(const K& k) { return reinterpret_cast<typename K::Word*>(k.scratch); }

// The greatest exponent of the updates of each place, behind the words.
template <class K> DEV u32* exponents_of(const K& k, const ScatterPlacesParams& p) { return k.scratch + u64(p.results) * 2u; }

template <class K> DEV void clear_places(const K& k, u32 t) {
    words_of(k)[t] = K::START;
    if constexpr (K::SCALED) {
        exponents_of(k, params<ScatterPlacesParams>(k))[t] = 0u;
    }
}

// The exponent of a finite float, at least that of subnormal ones.
DEV u32 exponent_of(f32 v) { return ::max((__float_as_uint(v) >> 23) & 0xffu, 1u); }

// Updates of a thread at most: t, t + all threads, ..; all are read before the first one is combined.
constexpr u32 EACH = 4u;

template <class K> DEV void raise_exponents(const K& k, u32 t) {
    const auto& p = params<ScatterPlacesParams>(k);
    u32 places[EACH];
    f32 values[EACH];
#pragma unroll
    for (u32 j = 0u; j < EACH; j++) {
        const u64 at = t + u64(j) * k.grid_n;
        places[j] = at < p.updates ? place_of(k, p, u32(at)) : NOWHERE;
        values[j] = k.x2(at < p.updates ? u32(at) : t);
    }
#pragma unroll
    for (u32 j = 0u; j < EACH; j++) {
        const f32 v = values[j];
        if (places[j] == NOWHERE || is_nan(v) || is_inf(v) || !fnonzero(v)) {
            continue;
        }
        u32* const greatest = exponents_of(k, p) + places[j];
        const u32 e = exponent_of(v);
        if (*reinterpret_cast<volatile u32*>(greatest) < e) {
            atomicMax(greatest, e);
        }
    }
}

// A finite float in units of 2^(greatest - 186 + spare), to the nearest.
DEV u64 in_units(f32 v, u32 greatest, u32 spare) {
    const u32 bits = __float_as_uint(v);
    const u64 digits = (bits & 0x7fffffu) | ((bits & 0x7f800000u) != 0u ? 0x800000u : 0u);
    const i32 up = 36 - i32(spare) - (i32(greatest) - i32(exponent_of(v)));
    u64 units = 0u;
    if (up >= 0) {
        units = digits << up;
    } else if (up > -26) {
        units = (digits + (1ull << (-up - 1))) >> -up;
    }
    return (bits >> 31) != 0u ? 0ull - units : units;
}

template <class Word> DEV void multiply(Word* word, Word by) {
    Word old = *reinterpret_cast<volatile Word*>(word);
    while (true) {
        const Word found = atomicCAS(word, old, old * by);
        if (found == old) {
            return;
        }
        old = found;
    }
}

// Numbers in the order in which the first ones lose: the least of them says that there is none, or is the worst.
template <class K> DEV u32 rank_of(f32 v) {
    if (is_nan(v)) {
        return 0xffffffffu;
    }
    const u32 bits = __float_as_uint(v);
    const u32 order = (bits >> 31) != 0u ? ~bits : bits | 0x80000000u;
    return K::LEAST ? ~order : order;
}
template <class K> DEV u32 rank_of(i32 v) {
    const u32 order = u32(v) ^ 0x80000000u;
    return K::LEAST ? ~order : order;
}
template <class K> DEV u64 rank_of(i64 v) {
    const u64 order = u64(v) ^ (1ull << 63);
    return K::LEAST ? ~order : order;
}

template <class K> DEV void from_rank(u32 rank, f32& v) {
    const u32 order = K::LEAST ? ~rank : rank;
    v = rank == 0xffffffffu ? cf(0x7fffffffu) : cf((order >> 31) != 0u ? order & 0x7fffffffu : ~order);
}
template <class K> DEV void from_rank(u32 rank, i32& v) { v = i32((K::LEAST ? ~rank : rank) ^ 0x80000000u); }
template <class K> DEV void from_rank(u64 rank, i64& v) { v = i64((K::LEAST ? ~rank : rank) ^ (1ull << 63)); }

// Combines update t, which is of a tuple where the last update of a whole slice is wanted, with the word of its place.
template <class K> DEV void put_update(const K& k, const ScatterPlacesParams& p, u32 t, u32 place, typename K::Value v) {
    typedef typename K::Word Word;
    Word* const word = words_of(k) + place;
    if constexpr (K::MODE == LAST) {
        atomicMax(word, t + 1u);
    } else if constexpr (K::MODE == SUM) {
        atomicAdd(word, Word(v));
    } else if constexpr (K::MODE == PRODUCT) {
        multiply(word, Word(v));
    } else if constexpr (K::MODE == EXTREMUM) {
        const Word rank = rank_of<K>(typename K::Number(v));
        if (*reinterpret_cast<volatile Word*>(word) < rank) {
            atomicMax(word, rank);
        }
    } else if (is_nan(v)) {
        atomicOr(word, POSITIVE | NEGATIVE);
    } else if (is_inf(v)) {
        atomicOr(word, v > 0.0f ? POSITIVE : NEGATIVE);
    } else if (fnonzero(v)) {
        u32 greatest = K::GREATEST;
        if constexpr (K::SCALED) {
            greatest = exponents_of(k, p)[place];
        }
        atomicAdd(word, in_units(v, greatest, p.spare));
    }
}

template <class K> DEV void put_updates(const K& k, u32 t) {
    const auto& p = params<ScatterPlacesParams>(k);
    constexpr bool WHOLE = K::TUPLES && K::MODE == LAST;
    u32 places[EACH];
    typename K::Value values[EACH];
#pragma unroll
    for (u32 j = 0u; j < EACH; j++) {
        const u64 at = t + u64(j) * k.grid_n;
        const u32 update = u32(at);
        places[j] = at < p.updates ? place_of(k, p, WHOLE ? update * p.slice : update) : NOWHERE;
        if constexpr (K::MODE != LAST) {
            values[j] = k.x2(at < p.updates ? update : t);
        } else {
            values[j] = typename K::Value(0);
        }
    }
#pragma unroll
    for (u32 j = 0u; j < EACH; j++) {
        if (places[j] != NOWHERE) {
            const u32 place = WHOLE ? divide(places[j], slice_of<K>(p)) : places[j];
            put_update(k, p, t + j * k.grid_n, place, values[j]);
        }
    }
}

DEV double power_of_two(i32 e) { return bitcast<double>(u64(1023 + e) << 52); }

// x and a sum of floats.
template <class K> DEV f32 real_sum(const K& k, const ScatterPlacesParams& p, u32 at, f32 x, u64 word) {
    switch (word >> 62) {
        case 1u: return x + cf(0x7f800000u);
        case 2u: return x + cf(0xff800000u);
        case 3u: return cf(0x7fffffffu);
    }
    const i64 units = i64(word) - i64(MIDDLE);
    if (units == 0) {
        return x;
    }
    u32 greatest = K::GREATEST;
    if constexpr (K::SCALED) {
        greatest = exponents_of(k, p)[at];
    }
    return f32(double(x) + double(units) * power_of_two(i32(greatest) - 186 + i32(p.spare)));
}

// A thread an element of the result.
template <class K> DEV void finish_places(const K& k, u32 at) {
    typedef typename K::Number Number;
    const auto& p = params<ScatterPlacesParams>(k);
    constexpr bool WHOLE = K::TUPLES && K::MODE == LAST;
    const u32 row = WHOLE ? divide(at, slice_of<K>(p)) : at;
    const auto word = words_of(k)[row];
    if (word == K::START) {
        if (p.aliased == 0u) {
            k.emit0(at, k.x0(at));
        }
        return;
    }
    if constexpr (K::MODE == LAST) {
        k.emit0(at, k.x2(WHOLE ? (word - 1u) * p.slice + (at - row * p.slice) : word - 1u));
    } else if constexpr (K::MODE == SUM) {
        k.emit0(at, typename K::Value(Number(k.x0(at)) + Number(word)));
    } else if constexpr (K::MODE == PRODUCT) {
        k.emit0(at, typename K::Value(Number(k.x0(at)) * Number(word)));
    } else if constexpr (K::MODE == EXTREMUM) {
        Number best;
        from_rank<K>(word, best);
        k.emit0(at, k.combine(k.x0(at), typename K::Value(best)));
    } else {
        k.emit0(at, real_sum(k, p, at, k.x0(at), word));
    }
}
