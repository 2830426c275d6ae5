// Counts of n-grams in rows of items. The list `grams` has for every n-gram its output, its length n, and the halves of its items,
// the lower ones first.

struct TfidfParams {
    len: u32,
    counts: u32,
    skips: u32,
    gram_count: u32,
    grams: List,
    weights: List,
}

fn tfidf_params() -> TfidfParams {
    return TfidfParams(
        word(0u),
        word(1u),
        word(2u),
        word(3u),
        List(word(4u), word(5u)),
        List(word(6u), word(7u)),
    );
}

// How often the n-gram whose items start at `gram` stands in a row with this distance, from places lo() .. hi() on.
fn occurrences(row: u32, gram: u32, n: u32, distance: u32) -> u32 {
    let p = tfidf_params();
    let span = (n - 1u) * distance + 1u;
    var found = 0u;
    for (var begin = lo(); begin < hi() && begin + span <= p.len; begin++) {
        var all = true;
        for (var i = 0u; i < n; i++) {
            let at = row * p.len + begin + i * distance;
            all = all && same(at, item(p.grams, gram + 2u * i), item(p.grams, gram + 2u * i + 1u));
        }
        found += select(0u, 1u, all);
    }
    return found;
}

fn tfidf_count(at: u32) -> i32 {
    let p = tfidf_params();
    let slot = at % p.counts;
    let row = at / p.counts;
    var gram = 0u;
    var found = u32(resume(at, 0));
    for (var g = 0u; g < p.gram_count; g++) {
        let n = item(p.grams, gram + 1u);
        if (item(p.grams, gram) == slot) {
            let most = select(min(p.skips + 1u, p.len), 1u, n == 1u);
            for (var d = 1u; d <= most; d++) {
                // Longer distances leave no room in the row.
                if (n > 1u && d > p.len / (n - 1u)) {
                    break;
                }
                found += occurrences(row, gram + 2u, n, d);
            }
        }
        gram += 2u + 2u * n;
    }
    return i32(found);
}

fn tfidf(at: u32) -> f32 {
    let p = tfidf_params();
    let found = u32(tfidf_count(at));
    var weight = 1.0;
    if (p.weights.count > 0u) {
        weight = item_f32(p.weights, at % p.counts);
    }
    return result(found, weight);
}

// Stand-ins for what a generated module defines.

fn word(k: u32) -> u32 {
    return k;
}

fn lo() -> u32 {
    return 0u;
}

fn hi() -> u32 {
    return 1u;
}

struct List {
    first: u32,
    count: u32,
}

fn item(list: List, i: u32) -> u32 {
    return list.first + i;
}

fn item_f32(list: List, i: u32) -> f32 {
    return f32(list.first + i);
}

fn resume(at: u32, start: i32) -> i32 {
    return start;
}

fn same(at: u32, low: u32, high: u32) -> bool {
    return low == at;
}

fn result(found: u32, weight: f32) -> f32 {
    return weight * f32(found);
}
