// Counts of n-grams in rows of items. The list `grams` has for every n-gram its output, its length n, and the halves of its items,
// the lower ones first.
#pragma once
#include "../prelude/launch.cuh"

struct TfidfParams {
    u32 len;
    u32 counts;
    u32 skips;
    u32 gram_count;
    List grams;
    List weights;
};

// How often the n-gram whose items start at `gram` stands in a row with this distance.
template <class K> DEV u32 occurrences(const K& k, u32 row, u32 gram, u32 n, u32 distance) {
    const auto& p = params<TfidfParams>(k);
    const u32 span = (n - 1u) * distance + 1u;
    u32 found = 0u;
    for (u32 start = 0u; start + span <= p.len; start++) {
        bool all = true;
        for (u32 i = 0u; i < n; i++) {
            const u32 at = row * p.len + start + i * distance;
            all = all && k.same(at, item(k, p.grams, gram + 2u * i), item(k, p.grams, gram + 2u * i + 1u));
        }
        found += all ? 1u : 0u;
    }
    return found;
}

template <class K> DEV f32 tfidf(const K& k, u32 at) {
    const auto& p = params<TfidfParams>(k);
    const u32 slot = at % p.counts;
    const u32 row = at / p.counts;
    u32 gram = 0u;
    u32 found = 0u;
    for (u32 g = 0u; g < p.gram_count; g++) {
        const u32 n = item(k, p.grams, gram + 1u);
        if (item(k, p.grams, gram) == slot) {
            const u32 most = n == 1u ? 1u : min(p.skips + 1u, p.len);
            for (u32 d = 1u; d <= most; d++) {
                // Longer distances leave no room in the row.
                if (n > 1u && d > p.len / (n - 1u)) {
                    break;
                }
                found += occurrences(k, row, gram + 2u, n, d);
            }
        }
        gram += 2u + 2u * n;
    }
    return k.result(found, p.weights.count > 0u ? item_f32(k, p.weights, slot) : 1.0f);
}
