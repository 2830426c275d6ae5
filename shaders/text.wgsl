// Counts of n-grams. Words: 0 length of a row, 1 counts of a row, 2 most items between, 3 n-grams, 4 weights given?,
// 5 where the weights start, then for every n-gram: its output, its length, its items as (low, high).

// ---- tfidf
fn same(at: u32, low: u32, high: u32) -> bool {
    SAME
}

// How often an n-gram of n items, whose words start at `gram`, stands in a row with this distance, from places lo() to
// hi() on.
fn count(row: u32, gram: u32, n: u32, distance: u32) -> u32 {
    let len = m(0u);
    let span = (n - 1u) * distance + 1u;
    var found = 0u;
    for (var start = lo(); start < hi() && start + span <= len; start++) {
        var all = true;
        for (var k = 0u; k < n; k++) {
            all = all && same(row * len + start + k * distance, m(gram + 2u * k), m(gram + 2u * k + 1u));
        }
        found += select(0u, 1u, all);
    }
    return found;
}

fn total(at: u32) -> i32 {
    let slot = at % m(1u);
    let row = at / m(1u);
    var gram = 6u;
    var found = u32(resume(at, 0));
    for (var g = 0u; g < m(3u); g++) {
        let n = m(gram + 1u);
        if (m(gram) == slot) {
            let most = select(min(m(2u) + 1u, m(0u)), 1u, n == 1u);
            for (var d = 1u; d <= most; d++) {
                // Longer distances leave no room in the row.
                if (n > 1u && d > m(0u) / (n - 1u)) {
                    break;
                }
                found += count(row, gram + 2u, n, d);
            }
        }
        gram += 2u + 2u * n;
    }
    return i32(found);
}

fn compute0(at: u32) -> f32 {
    let slot = at % m(1u);
    let found = u32(total(at));
    var weight = 1.0;
    if (m(4u) != 0u) {
        weight = mf(m(5u) + slot);
    }
    return RESULT;
}
