// The first elements of long lines along an axis, by their digits; a line may have several parts, whose first elements are selected
// again. The results are sorted.
#pragma once
#include "../slice/walk.cuh"
#include "lines.cuh"
#include "select.cuh"

struct TopkSelectParams {
    u32 count;
    u32 inner;
    u32 kept;
    u32 parts;
    u32 part;
    u32 place_bits;
};

// Elements from..from + size of a line.
template <class K> struct LinePart {
    const K& k;
    u32 base;
    u32 inner;
    u32 from;
    u32 size;
    DEV u32 count() const { return size; }
    template <u32 T, class Visit> DEV void each(Visit visit) const {
        typedef typename K::Cell Cell;
        if (inner == 1u) {
            walk<T>(k.bx0 + base + from, size, threadIdx.x, [&](Cell cell, u32 at) { visit(k.key(cell), from + at); });
            return;
        }
        for (u32 i = threadIdx.x; i < size; i += T) {
            visit(k.key(k.bx0[base + (from + i) * inner]), from + i);
        }
    }
};

// The slots that the parts of a line have left.
template <class K> struct Survivors {
    const typename K::Slot* slots;
    u32 size;
    DEV u32 count() const { return size; }
    template <u32 T, class Visit> DEV void each(Visit visit) const {
        for (u32 i = threadIdx.x; i < size; i += T) {
            visit(key_of(slots[i]), place_of(slots[i]));
        }
    }
};

// The first `kept` slots of `from`, sorted: thread t has numbers t * E to t * E + E - 1.
template <u32 T, class K, class From, class S, u32 E>
DEV void first_slots(const K& k, const From& from, u32 kept, u32 place_bits, S (&v)[E]) {
    __shared__ S slots[T * E];
    const u32 found = select_slots<T, T * E>(k, from, kept, place_bits, slots);
#pragma unroll
    for (u32 e = 0u; e < E; e++) {
        const u32 i = threadIdx.x * E + e;
        v[e] = i < found ? slots[i] : last_slot<S>();
    }
    u32 log2 = log2_of(E);
    while ((1u << log2) < found) {
        log2++;
    }
    sort_block<T, E, E>(v, log2, slots);
}

// Slots of a thread.
template <class K> DEV constexpr u32 own_slots() { return K::KEY_BITS > 32u ? 2u : 4u; }

// A block of T threads a part of a line.
template <u32 T, class K> DEV void select_part(const K& k) {
    constexpr u32 E = own_slots<K>();
    const auto& p = params<TopkSelectParams>(k);
    const u32 row = blockIdx.x / p.parts;
    const u32 from = blockIdx.x % p.parts * p.part;
    const u32 size = ::min(p.part, p.count - from);
    const u32 kept = ::min(p.kept, size);
    typename K::Slot v[E];
    first_slots<T>(k, LinePart<K>{k, line_base(p.count, p.inner, row), p.inner, from, size}, kept, p.place_bits, v);
    if (p.parts == 1u) {
        put_line(k, p, row, threadIdx.x * E, v);
        return;
    }
    auto* const to = reinterpret_cast<typename K::Slot*>(k.scratch) + u64(blockIdx.x) * p.kept;
#pragma unroll
    for (u32 e = 0u; e < E; e++) {
        if (threadIdx.x * E + e < kept) {
            to[threadIdx.x * E + e] = v[e];
        }
    }
}

template <class K> DEV void select_parts(const K& k) { select_part<1024u>(k); }

template <class K> DEV void select_short_parts(const K& k) { select_part<256u>(k); }

// A block a line, whose parts have left `kept` slots each, the last one perhaps fewer.
template <class K> DEV void select_survivors(const K& k) {
    constexpr u32 E = own_slots<K>();
    const auto& p = params<TopkSelectParams>(k);
    const u32 last = p.count - (p.parts - 1u) * p.part;
    const u32 size = (p.parts - 1u) * p.kept + ::min(p.kept, last);
    const auto* const slots = reinterpret_cast<const typename K::Slot*>(k.scratch) + u64(blockIdx.x) * p.parts * p.kept;
    typename K::Slot v[E];
    first_slots<1024u>(k, Survivors<K>{slots, size}, p.kept, p.place_bits, v);
    put_line(k, p, blockIdx.x, threadIdx.x * E, v);
}
