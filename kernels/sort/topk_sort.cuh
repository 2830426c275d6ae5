// The first elements of lines along an axis, by sorting. Lines that a block can hold are sorted in registers, several short ones by
// one block. Of longer ones blocks sort tiles, and runs are merged in pairs; what cannot be among the first is left out.
#pragma once
#include "block.cuh"
#include "lines.cuh"

struct TopkSortParams {
    u32 count;
    u32 inner;
    u32 kept;
    u32 rows;
    u32 log2;
    u32 tiles;
    u32 run;
    u32 groups;
    u32 odd;
    u32 last;
};

// Slots of the elements from..from + 8 of a line, of which `count` are sorted; positions are relative to `origin`.
template <class S, class K>
DEV void load_slots(const K& k, const TopkSortParams& p, u32 row, u32 origin, u32 from, u32 count, S (&v)[8]) {
    const u32 base = line_base(p.count, p.inner, row) + origin * p.inner;
    if (p.inner == 1u && from + 8u <= count) {
        const auto cells = Run<typename K::Cell>::of(k.bx0 + base + from, 1u);
#pragma unroll
        for (u32 e = 0u; e < 8u; e++) {
            v[e] = slot<S>(k.key(cells.v[e]), from + e);
        }
        return;
    }
#pragma unroll
    for (u32 e = 0u; e < 8u; e++) {
        const u32 at = from + e;
        v[e] = at < count ? slot<S>(k.key(k.bx0[base + at * p.inner]), at) : last_slot<S>();
    }
}

// Slots that threads exchange at a time.
template <u32 T, class S> DEV constexpr u32 exchanged() { return T <= 256u ? 8u : 32768u / (T * sizeof(S)); }

// Whole lines, each in 2^log2 slots.
template <u32 T, class K> DEV void sort_lines(const K& k) {
    typedef typename K::Short S;
    constexpr u32 G = exchanged<T, S>();
    __shared__ S exchange[T * G];
    const auto& p = params<TopkSortParams>(k);
    const u32 at = threadIdx.x * 8u;
    const u32 row = (blockIdx.x << (log2_of(T * 8u) - p.log2)) + (at >> p.log2);
    const u32 from = at & ((1u << p.log2) - 1u);
    S v[8];
    load_slots(k, p, ::min(row, p.rows - 1u), 0u, from, p.count, v);
    sort_block<T, 8u, G>(v, p.log2, exchange);
    if (row < p.rows && from < p.kept) {
        put_line(k, p, row, from, v);
    }
}

template <class K> DEV void sort_short_lines(const K& k) { sort_lines<256u>(k); }

template <class K> DEV void sort_middle_lines(const K& k) { sort_lines<1024u>(k); }

constexpr u32 TILE = 8192u;

// One of the two buffers of slots: those of a line are `tiles` tiles.
template <class K> DEV typename K::Slot* line_slots(const K& k, const TopkSortParams& p, u32 odd, u32 row) {
    const u64 line = u64(p.tiles) * TILE;
    return reinterpret_cast<typename K::Slot*>(k.scratch) + (u64(odd) * p.rows + row) * line;
}

// A tile of a line.
template <class K> DEV void sort_tiles(const K& k) {
    typedef typename K::Short S;
    constexpr u32 T = 1024u;
    constexpr u32 G = exchanged<T, S>();
    __shared__ S exchange[T * G];
    const auto& p = params<TopkSortParams>(k);
    const u32 row = blockIdx.x / p.tiles;
    const u32 origin = blockIdx.x % p.tiles * TILE;
    const u32 count = ::min(TILE, p.count - origin);
    const u32 from = threadIdx.x * 8u;
    S v[8];
    load_slots(k, p, row, origin, from, count, v);
    sort_block<T, 8u, G>(v, log2_of(TILE), exchange);
    auto* const to = line_slots(k, p, 0u, row) + origin + from;
    const u32 kept = ::min(p.kept, count);
#pragma unroll
    for (u32 e = 0u; e < 8u; e++) {
        if (from + e < kept) {
            to[e] = slot<typename K::Slot>(key_of(v[e]), origin + place_of(v[e]));
        }
    }
}

// How many of the first `n` slots of two merged runs are of the first one.
template <class S> DEV u32 share_of_first(const S* a, u32 a_count, const S* b, u32 b_count, u32 n) {
    u32 low = n > b_count ? n - b_count : 0u;
    u32 high = ::min(n, a_count);
    while (low < high) {
        const u32 middle = (low + high) / 2u;
        if (before(a[middle], b[n - 1u - middle])) {
            low = middle + 1u;
        } else {
            high = middle;
        }
    }
    return low;
}

// 2,048 slots of two runs that are merged.
template <class K> DEV void merge_runs(const K& k) {
    typedef typename K::Slot S;
    constexpr u32 EACH = 8u;
    constexpr u32 ALL = 256u * EACH;
    __shared__ S slots[ALL];
    __shared__ u32 shares[2];
    const auto& p = params<TopkSortParams>(k);
    const u32 t = threadIdx.x;
    const u32 pairs = (p.tiles * TILE - 1u) / (2u * p.run) + 1u;
    const u32 start = blockIdx.x % p.groups * ALL;
    const u32 pair = blockIdx.x / p.groups % pairs;
    const u32 row = blockIdx.x / p.groups / pairs;
    const u32 first = pair * 2u * p.run;
    const u32 second = first + p.run;
    const u32 a_count = ::min(p.kept, ::min(p.run, p.count - first));
    const u32 b_count = second < p.count ? ::min(p.kept, ::min(p.run, p.count - second)) : 0u;
    const u32 all = ::min(p.kept, a_count + b_count);
    if (start >= all) {
        return;
    }
    const u32 size = ::min(ALL, all - start);
    const S* const a = line_slots(k, p, p.odd, row) + first;
    const S* const b = a + p.run;
    if (t < 2u) {
        shares[t] = share_of_first(a, a_count, b, b_count, start + t * size);
    }
    __syncthreads();
    const u32 of_a = shares[0];
    const u32 a_size = shares[1] - of_a;
    const u32 of_b = start - of_a;
    for (u32 i = t; i < size; i += 256u) {
        slots[i] = i < a_size ? a[of_a + i] : b[of_b + i - a_size];
    }
    __syncthreads();
    const u32 from = ::min(t * EACH, size);
    const u32 b_size = size - a_size;
    u32 i = share_of_first(slots, a_size, slots + a_size, b_size, from);
    u32 j = from - i;
    S v[EACH];
#pragma unroll
    for (u32 e = 0u; e < EACH; e++) {
        const bool rest_a = i < a_size;
        const bool rest_b = j < b_size;
        if (rest_a && (!rest_b || before(slots[i], slots[a_size + j]))) {
            v[e] = slots[i];
            i++;
        } else {
            v[e] = rest_b ? slots[a_size + j] : last_slot<S>();
            j++;
        }
    }
    if (from >= size) {
        return;
    }
    if (p.last == 1u) {
        put_line(k, p, row, start + from, v);
        return;
    }
    S* const to = line_slots(k, p, 1u - p.odd, row) + first + start + from;
#pragma unroll
    for (u32 e = 0u; e < EACH; e++) {
        if (from + e < size) {
            to[e] = v[e];
        }
    }
}
