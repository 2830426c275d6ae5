// Slots: keys with the positions of their elements, ordered by key, then by position. All slots of a sort differ. Three types hold
// them: u32 for keys and positions of 16 bits, u64 for those of 32 bits, WideSlot for keys of 64 bits.
#pragma once
#include "keys.cuh"

struct alignas(16) WideSlot {
    u64 key;
    u32 at;
};

DEV bool before(u32 a, u32 b) { return a < b; }
DEV bool before(u64 a, u64 b) { return a < b; }
DEV bool before(const WideSlot& a, const WideSlot& b) { return a.key < b.key || (a.key == b.key && a.at < b.at); }

DEV u32 place_of(u32 s) { return s & 0xffffu; }
DEV u32 place_of(u64 s) { return u32(s); }
DEV u32 place_of(const WideSlot& s) { return s.at; }

DEV u32 key_of(u32 s) { return s >> 16; }
DEV u32 key_of(u64 s) { return u32(s >> 32); }
DEV u64 key_of(const WideSlot& s) { return s.key; }

DEV void fill(u32& s, u32 key, u32 at) { s = (key << 16) | at; }
DEV void fill(u64& s, u32 key, u32 at) { s = (u64(key) << 32) | at; }
DEV void fill(WideSlot& s, u64 key, u32 at) {
    s.key = key;
    s.at = at;
}

template <class S, class Key> DEV S slot(Key key, u32 at) {
    S s;
    fill(s, key, at);
    return s;
}

// A slot that sorts behind all others.
DEV void fill_last(u32& s) { s = 0xffffffffu; }
DEV void fill_last(u64& s) { s = ~0ull; }
DEV void fill_last(WideSlot& s) { fill(s, ~0ull, 0xffffffffu); }

template <class S> DEV S last_slot() {
    S s;
    fill_last(s);
    return s;
}

// The slot of the lane at a distance.
DEV u32 from_lane(u32 s, u32 distance) { return __shfl_xor_sync(0xffffffffu, s, distance); }
DEV u64 from_lane(u64 s, u32 distance) { return __shfl_xor_sync(0xffffffffu, s, distance); }
DEV WideSlot from_lane(const WideSlot& s, u32 distance) {
    return slot<WideSlot>(__shfl_xor_sync(0xffffffffu, s.key, distance), __shfl_xor_sync(0xffffffffu, s.at, distance));
}
