// The different slices along an axis. One thread compares each slice with the different ones found before it. Scratch memory has
// the first occurrence of each different slice, the number of each slice's, the order of the different ones, and the place of each
// in that order; `count` words each.
#pragma once
#include "../prelude/launch.cuh"

struct UniqueParams {
    u32 count;
    u32 inner;
    u32 outer;
    u32 different;
};

// Where element i of a slice is.
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

// Finds the different slices, and orders them if they are SORTED.
template <class K> DEV void find_different(const K& k, u32) {
    const auto& p = params<UniqueParams>(k);
    const u32 n = p.count;
    u32 found = 0u;
    for (u32 i = 0u; i < n; i++) {
        u32 j = 0u;
        while (j < found && !equal_slices(k, p, k.scratch[j], i)) {
            j++;
        }
        if (j == found) {
            k.scratch[j] = i;
            found++;
        }
        k.scratch[n + i] = j;
    }
    for (u32 i = 0u; i < found; i++) {
        u32 j = i;
        if constexpr (K::SORTED) {
            while (j > 0u && slice_before(k, p, k.scratch[i], k.scratch[k.scratch[n * 2u + j - 1u]])) {
                k.scratch[n * 2u + j] = k.scratch[n * 2u + j - 1u];
                j--;
            }
        }
        k.scratch[n * 2u + j] = i;
    }
    for (u32 r = 0u; r < found; r++) {
        k.scratch[n * 3u + k.scratch[n * 2u + r]] = r;
    }
    k.sizes[0] = found;
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
