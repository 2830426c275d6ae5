// The different slices along an axis. A thread a slice looks for the first one that equals it; those that equal none in front of them
// are listed (list.cuh), and a thread for each of them finds its place. Scratch memory has the first occurrence of each different
// slice, the number of each slice's (at first the slice that it equals), the order of the different ones, and the place of each in
// that order; `count` words each.
#pragma once
#include "../prelude/launch.cuh"

struct UniqueParams {
    u32 count;
    u32 inner;
    u32 outer;
    u32 different;
};

// Place of element i of a slice.
DEV u32 slice_element(const UniqueParams& p, u32 slice, u32 i) {
    return (i / p.inner * p.count + slice) * p.inner + i % p.inner;
}

template <class K> DEV bool equal_slices(const K& k, const UniqueParams& p, u32 a, u32 b) {
    for (u32 i = 0u; i < p.inner * p.outer; i++) {
        if (!k.same(k.x0(slice_element(p, a, i)), k.x0(slice_element(p, b, i)))) {
            return false;
        }
    }
    return true;
}

template <class K> DEV bool slice_before(const K& k, const UniqueParams& p, u32 a, u32 b) {
    for (u32 i = 0u; i < p.inner * p.outer; i++) {
        const auto u = k.x0(slice_element(p, a, i));
        const auto v = k.x0(slice_element(p, b, i));
        if (k.before(u, v)) {
            return true;
        }
        if (k.before(v, u)) {
            return false;
        }
    }
    return false;
}

// The first slice that equals slice t.
template <class K> DEV void find_equals(const K& k, u32 t) {
    const auto& p = params<UniqueParams>(k);
    u32 j = 0u;
    while (j < t && !equal_slices(k, p, j, t)) {
        j++;
    }
    k.scratch[p.count + t] = j;
}

// The number of slice t's among the different ones, whose first occurrences are listed in order.
template <class K> DEV void number_slices(const K& k, u32 t) {
    const u32 n = params<UniqueParams>(k).count;
    const u32 first = k.scratch[n + t];
    u32 low = 0u;
    u32 high = k.sizes[0];
    while (high - low > 1u) {
        const u32 middle = (low + high) / 2u;
        if (k.scratch[middle] > first) {
            high = middle;
        } else {
            low = middle;
        }
    }
    k.scratch[n + t] = low;
}

// The place of different slice t: that of its first occurrence, or among the SORTED ones.
template <class K> DEV void order_different(const K& k, u32 t) {
    const auto& p = params<UniqueParams>(k);
    const u32 n = p.count;
    const u32 found = k.sizes[0];
    if (t >= found) {
        return;
    }
    u32 place = t;
    if constexpr (K::SORTED) {
        const u32 own = k.scratch[t];
        place = 0u;
        for (u32 i = 0u; i < found; i++) {
            const u32 other = k.scratch[i];
            if (slice_before(k, p, other, own) || (i < t && !slice_before(k, p, own, other))) {
                place++;
            }
        }
    }
    k.scratch[n * 2u + place] = t;
    k.scratch[n * 3u + t] = place;
}

template <class K> DEV auto unique_value(const K& k, u32 at) {
    const auto& p = params<UniqueParams>(k);
    const u32 r = at / p.inner % p.different;
    const u32 slice = k.scratch[k.scratch[p.count * 2u + r]];
    return k.x0((at / p.inner / p.different * p.count + slice) * p.inner + at % p.inner);
}

template <class K> DEV i64 unique_first(const K& k, u32 at) {
    return i64(i32(k.scratch[k.scratch[params<UniqueParams>(k).count * 2u + at]]));
}

template <class K> DEV i64 unique_place(const K& k, u32 at) {
    const u32 n = params<UniqueParams>(k).count;
    return i64(i32(k.scratch[n * 3u + k.scratch[n + at]]));
}

template <class K> DEV i64 unique_count(const K& k, u32 at) {
    const u32 n = params<UniqueParams>(k).count;
    const u32 number = k.scratch[n * 2u + at];
    i32 count = 0;
    for (u32 i = 0u; i < n; i++) {
        count += k.scratch[n + i] == number ? 1 : 0;
    }
    return i64(count);
}
