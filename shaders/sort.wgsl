// Sorting by bitonic networks: a launch for each step, a thread for each pair. `before(row, a, b)` orders the n elements of
// a row, of which scratch[row * width + place] has the numbers; width is a power of two, and what lies beyond n comes last.
// Words 0 and 1: n, width.

// ---- sort
THREADS number_all {
    scratch[t] = t % m(1u);
}

fn goes_before(row: u32, a: u32, b: u32) -> bool {
    if (a >= m(0u) || b >= m(0u)) {
        return a < b;
    }
    return before(row, a, b) || (!before(row, b, a) && a < b);
}

// Sorts runs of hi() elements, upward and downward in turn, by pairs lo() apart.
THREADS sort_step {
    let width = m(1u);
    let row = t / (width / 2u);
    let p = t % (width / 2u);
    let i = p / lo() * lo() * 2u + p % lo();
    let at = row * width + i;
    let a = scratch[at];
    let b = scratch[at + lo()];
    let upward = (i & hi()) == 0u;
    if (goes_before(row, b, a) == upward) {
        scratch[at] = b;
        scratch[at + lo()] = a;
    }
}
