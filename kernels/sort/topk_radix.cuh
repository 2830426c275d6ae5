// The first elements of long lines along an axis, by a radix sort from the lowest digit of the keys on. For each digit the tiles of a
// line count its values, the counts are summed, and the tiles put their slots in the order of the digit. Slots of equal digits keep
// their order: at last they are in the order of whole keys, and those of equal keys in that of positions.
#pragma once
#include "lines.cuh"
#include "select.cuh"

struct TopkRadixParams {
    u32 count;
    u32 inner;
    u32 kept;
    u32 rows;
    u32 tiles;
    u32 parts;
    u32 shift;
    u32 odd;
    u32 first;
    u32 last;
};

// Values of a digit, and threads of a block.
constexpr u32 RADIX = 256u;

// Slots of a thread: those of a tile take 32 KiB.
template <class K> DEV constexpr u32 radix_slots() { return 128u / sizeof(typename K::Slot); }

template <class S> DEV u32 radix_digit(const S& s, u32 shift) { return u32(key_of(s) >> shift) % RADIX; }

// Scratch memory has the counts of each tile by digit, after them those of each line, then two buffers of slots.
template <class K> DEV u32* tile_counts(const K& k, const TopkRadixParams& p, u32 row, u32 tile) {
    return k.scratch + (u64(row) * p.tiles + tile) * RADIX;
}

template <class K> DEV u32* line_counts(const K& k, const TopkRadixParams& p, u32 row) {
    return k.scratch + (u64(p.rows) * p.tiles + row) * RADIX;
}

template <class K> DEV typename K::Slot* radix_line(const K& k, const TopkRadixParams& p, u32 odd, u32 row) {
    auto* const first = reinterpret_cast<typename K::Slot*>(line_counts(k, p, p.rows));
    return first + (u64(odd) * p.rows + row) * p.count;
}

// Place in its tile of slot e of this thread: warps have neighbouring slots, 32 at a time.
template <u32 E> DEV u32 place_in_tile(u32 e) { return (threadIdx.x / 32u * E + e) * 32u + threadIdx.x % 32u; }

// Loads the slots of a tile, from the tensor at the first digit, and returns how many there are.
template <class K, u32 E>
DEV u32 load_tile(const K& k, const TopkRadixParams& p, u32 row, u32 tile, typename K::Slot (&v)[E]) {
    typedef typename K::Slot S;
    const u32 origin = tile * (RADIX * E);
    const u32 size = ::min(RADIX * E, p.count - origin);
    if (p.first == 0u) {
        const S* const from = radix_line(k, p, p.odd, row) + origin;
#pragma unroll
        for (u32 e = 0u; e < E; e++) {
            const u32 i = place_in_tile<E>(e);
            v[e] = i < size ? from[i] : last_slot<S>();
        }
        return size;
    }
    typedef typename K::Cell Cell;
    const u32 base = line_base(p.count, p.inner, row);
    Cell cells[E];
#pragma unroll
    for (u32 e = 0u; e < E; e++) {
        const u32 i = place_in_tile<E>(e);
        cells[e] = i < size ? k.bx0[base + (origin + i) * p.inner] : Cell(0);
    }
#pragma unroll
    for (u32 e = 0u; e < E; e++) {
        v[e] = slot<S>(k.key(cells[e]), origin + place_in_tile<E>(e));
    }
    return size;
}

// Counts the digits of a tile.
template <class K> DEV void radix_count(const K& k) {
    constexpr u32 E = radix_slots<K>();
    __shared__ u32 counts[RADIX];
    const auto& p = params<TopkRadixParams>(k);
    const u32 row = blockIdx.x / p.tiles;
    const u32 tile = blockIdx.x % p.tiles;
    typename K::Slot v[E];
    const u32 size = load_tile(k, p, row, tile, v);
    counts[threadIdx.x] = 0u;
    __syncthreads();
#pragma unroll
    for (u32 e = 0u; e < E; e++) {
        if (place_in_tile<E>(e) < size) {
            atomicAdd(&counts[radix_digit(v[e], p.shift)], 1u);
        }
    }
    __syncthreads();
    tile_counts(k, p, row, tile)[threadIdx.x] = counts[threadIdx.x];
}

// Replaces the counts of tiles by those of the tiles in front, and sums them up. A block has RADIX / parts digits of a line, and a
// thread has one of them in one of `parts` parts of the tiles.
template <class K> DEV void radix_scan(const K& k) {
    constexpr u32 AHEAD = 8u;
    __shared__ u32 sums[RADIX];
    const auto& p = params<TopkRadixParams>(k);
    const u32 t = threadIdx.x;
    const u32 digits = RADIX / p.parts;
    const u32 row = blockIdx.x / p.parts;
    const u32 digit = blockIdx.x % p.parts * digits + t % digits;
    const u32 part = t / digits;
    const u32 each = (p.tiles - 1u) / p.parts + 1u;
    const u32 from = ::min(part * each, p.tiles);
    const u32 to = ::min(from + each, p.tiles);
    u32* const counts = tile_counts(k, p, row, 0u) + digit;
    u32 sum = 0u;
#pragma unroll 8
    for (u32 i = from; i < to; i++) {
        sum += counts[u64(i) * RADIX];
    }
    sums[t] = sum;
    __syncthreads();
    sum = 0u;
    for (u32 i = t % digits; i < t; i += digits) {
        sum += sums[i];
    }
    for (u32 i = from; i < to; i += AHEAD) {
        u32 own[AHEAD];
#pragma unroll
        for (u32 a = 0u; a < AHEAD; a++) {
            own[a] = i + a < to ? counts[u64(i + a) * RADIX] : 0u;
        }
#pragma unroll
        for (u32 a = 0u; a < AHEAD; a++) {
            if (i + a < to) {
                counts[u64(i + a) * RADIX] = sum;
            }
            sum += own[a];
        }
    }
    if (part == p.parts - 1u) {
        line_counts(k, p, row)[digit] = sum;
    }
}

// Finds the ranks of a warp's slots among those of equal digits. `counts` are the numbers of its slots by digit, at first zero.
template <u32 E, class S> DEV void rank_in_warp(const S (&v)[E], u32 size, u32 shift, u16* counts, u32 (&ranks)[E]) {
    const u32 lower = (1u << (threadIdx.x % 32u)) - 1u;
#pragma unroll
    for (u32 e = 0u; e < E; e++) {
        const bool there = place_in_tile<E>(e) < size;
        const u32 digit = radix_digit(v[e], shift);
        u32 equal = __ballot_sync(0xffffffffu, there);
#pragma unroll
        for (u32 bit = 1u; bit < RADIX; bit *= 2u) {
            const bool set = (digit & bit) != 0u;
            const u32 lanes = __ballot_sync(0xffffffffu, set);
            equal &= set ? lanes : ~lanes;
        }
        const u32 seen = counts[digit];
        ranks[e] = seen + u32(__popc(equal & lower));
        __syncwarp();
        if (there && (equal & lower) == 0u) {
            counts[digit] = u16(seen + u32(__popc(equal)));
        }
        __syncwarp();
    }
}

// Stores the elements of slots at their ranks in a line of the result; ranks from `kept` on are left out.
template <class K, u32 E>
DEV void put_ranked(const K& k, const TopkRadixParams& p, u32 row, const typename K::Slot (&v)[E], const u32 (&ranks)[E]) {
    typedef typename K::Cell Cell;
    const u32 from = line_base(p.count, p.inner, row);
    const u32 to = line_base(p.kept, p.inner, row);
    Cell cells[E];
#pragma unroll
    for (u32 e = 0u; e < E; e++) {
        cells[e] = K::VALUES && ranks[e] < p.kept ? k.bx0[from + place_of(v[e]) * p.inner] : Cell(0);
    }
#pragma unroll
    for (u32 e = 0u; e < E; e++) {
        if (ranks[e] < p.kept) {
            const u32 at = to + ranks[e] * p.inner;
            if constexpr (K::VALUES) {
                k.by0[at] = cells[e];
            }
            if constexpr (K::PLACES) {
                k.by1[at] = i64(place_of(v[e]));
            }
        }
    }
}

// Puts the slots of a tile in the order of a digit: in shared memory first, so that neighbours are stored together.
template <class K> DEV void radix_move(const K& k) {
    typedef typename K::Slot S;
    constexpr u32 E = radix_slots<K>();
    constexpr u32 WARPS = RADIX / 32u;
    __shared__ S slots[RADIX * E];
    __shared__ u16 counts[WARPS][RADIX];
    __shared__ u32 starts[RADIX];
    const auto& p = params<TopkRadixParams>(k);
    const u32 t = threadIdx.x;
    const u32 row = blockIdx.x / p.tiles;
    const u32 tile = blockIdx.x % p.tiles;
    S v[E];
    const u32 size = load_tile(k, p, row, tile, v);
    const u32 in_front = tile_counts(k, p, row, tile)[t];
    const u32 of_line = line_counts(k, p, row)[t];
#pragma unroll
    for (u32 w = 0u; w < WARPS; w++) {
        counts[w][t] = u16(0u);
    }
    __syncthreads();
    u32 ranks[E];
    rank_in_warp(v, size, p.shift, counts[t / 32u], ranks);
    __syncthreads();
    u32 own = 0u;
#pragma unroll
    for (u32 w = 0u; w < WARPS; w++) {
        own += counts[w][t];
    }
    // The first place of digit t in the tile. `starts` are differences from it to the places in the line.
    u32 place = sum_in_front<RADIX>(own);
    starts[t] = sum_in_front<RADIX>(of_line) + in_front - place;
#pragma unroll
    for (u32 w = 0u; w < WARPS; w++) {
        const u32 of_warp = counts[w][t];
        counts[w][t] = u16(place);
        place += of_warp;
    }
    __syncthreads();
#pragma unroll
    for (u32 e = 0u; e < E; e++) {
        if (place_in_tile<E>(e) < size) {
            slots[counts[t / 32u][radix_digit(v[e], p.shift)] + ranks[e]] = v[e];
        }
    }
    __syncthreads();
#pragma unroll
    for (u32 e = 0u; e < E; e++) {
        const u32 i = e * RADIX + t;
        if (i < size) {
            v[e] = slots[i];
        }
        ranks[e] = i < size ? starts[radix_digit(v[e], p.shift)] + i : 0xffffffffu;
    }
    if (p.last == 1u) {
        put_ranked(k, p, row, v, ranks);
        return;
    }
    S* const to = radix_line(k, p, 1u - p.odd, row);
#pragma unroll
    for (u32 e = 0u; e < E; e++) {
        if (ranks[e] < p.count) {
            to[ranks[e]] = v[e];
        }
    }
}
