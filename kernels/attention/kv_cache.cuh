// Updates of a cache of keys or values. Inputs: cache, update, and where it goes.
#pragma once
#include "../prelude/launch.cuh"

struct KvCacheParams {
    u32 rows;
    u32 updates;
    u32 inside;
    u32 entry;
    u32 circular;
};

// A thread an element of the update; of rows that meet, the last one is written.
template <class K> DEV void update_rows(const K& k, u32 t) {
    const auto& p = params<KvCacheParams>(k);
    const u32 low = t % p.inside;
    const u32 row = t / p.inside % p.updates;
    const u32 outer = t / p.inside / p.updates;
    const i32 len = i32(p.rows);
    i32 to = k.start(t / p.entry, p.rows) + i32(row);
    if (p.circular != 0u) {
        // A later row of the same place wins.
        if (row + p.rows < p.updates) {
            return;
        }
        to = ((to % len) + len) % len;
    }
    if (to >= 0 && to < len) {
        k.emit0((outer * p.rows + u32(to)) * p.inside + low, k.x1(t));
    }
}

template <class K> DEV void copy_cache(const K& k, u32 t) { k.emit0(t, k.x0(t)); }
