// Counts of n-grams. Words: 0 length of a row, 1 counts of a row, 2 most items between, 3 n-grams, 4 weights given?,
// 5 where the weights start, then for every n-gram: its output, its length, its items as (low, high).

// ---- tfidf
DEV bool same(u32 at, u32 low, u32 high) const {
    SAME
}

// How often an n-gram of n items, whose words start at `gram`, stands in a row with this distance.
DEV u32 count(u32 row, u32 gram, u32 n, u32 distance) const {
    const auto len = m(0u);
    const auto span = (n - 1u) * distance + 1u;
    u32 found = 0u;
    for (u32 start = 0u; start + span <= len; start++) {
        bool all = true;
        for (u32 k = 0u; k < n; k++) {
            all = all && same(row * len + start + k * distance, m(gram + 2u * k), m(gram + 2u * k + 1u));
        }
        found += select(0u, 1u, all);
    }
    return found;
}

DEV f32 compute0(u32 at) const {
    const auto slot = at % m(1u);
    const auto row = at / m(1u);
    u32 gram = 6u;
    u32 found = 0u;
    for (u32 g = 0u; g < m(3u); g++) {
        const auto n = m(gram + 1u);
        if (m(gram) == slot) {
            const auto most = select(min(m(2u) + 1u, m(0u)), 1u, n == 1u);
            for (u32 d = 1u; d <= most; d++) {
                // Longer distances leave no room in the row.
                if (n > 1u && d > m(0u) / (n - 1u)) {
                    break;
                }
                found += count(row, gram + 2u, n, d);
            }
        }
        gram += 2u + 2u * n;
    }
    f32 weight = 1.0f;
    if (m(4u) != 0u) {
        weight = mf(m(5u) + slot);
    }
    return RESULT;
}
