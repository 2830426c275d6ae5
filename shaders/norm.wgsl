// Softmax and norms: two numbers of a row, then a result for each of its elements. Where elements lie is told by `strided`
// (those of a row are `inner` apart) or `groups_last`.
// Words: elements of a row, inner, then those of the operator. MERGE joins two first numbers, which start from START;
// FIRST and SECOND are what element `at` adds; NUMBER makes the first number `a` of their sum.

// ---- strided
// The first element of a row, element i of the row that starts at `base`, and the row of an element.
fn row_start(row: u32) -> u32 {
    let inner = m(1u);
    return row / inner * m(0u) * inner + row % inner;
}

fn element(base: u32, i: u32) -> u32 {
    return base + i * m(1u);
}

fn row_at(at: u32) -> u32 {
    let inner = m(1u);
    return at / (m(0u) * inner) * inner + at % inner;
}

// ---- groups_last
// The same of groups of channels, which are last. Words 3 and 4: elements of a channel, channels.
fn row_start(row: u32) -> u32 {
    let width = m(0u) / m(3u);
    let groups = m(4u) / width;
    return row / groups * m(3u) * m(4u) + row % groups * width;
}

fn element(base: u32, i: u32) -> u32 {
    let width = m(0u) / m(3u);
    return base + i / width * m(4u) + i % width;
}

fn row_at(at: u32) -> u32 {
    let width = m(0u) / m(3u);
    return at / (m(3u) * m(4u)) * (m(4u) / width) + at % m(4u) / width;
}

// ---- rows
fn add(a: f32, b: f32) -> f32 {
    return a + b;
}

fn first(at: u32, row: u32) -> f32 {
    return FIRST;
}

fn second(at: u32, row: u32, a: f32) -> f32 {
    return SECOND;
}

fn number(sum: f32) -> f32 {
    let n = m(0u);
    return NUMBER;
}

fn result(at: u32, row: u32, a: f32, b: f32) -> f32 {
    let n = m(0u);
    var y = RESULT;
    AFFINE
    return y;
}

fn statistics(row: u32, a: f32, b: f32) {
    let n = m(0u);
    STATISTICS
}

var<workgroup> shared_values: array<f32, 64>;

fn tree_first(l: u32, v: f32) -> f32 {
    shared_values[l] = v;
    workgroupBarrier();
    for (var s = 32u; s > 0u; s = s / 2u) {
        if (l < s) {
            shared_values[l] = MERGE(shared_values[l], shared_values[l + s]);
        }
        workgroupBarrier();
    }
    let r = shared_values[0];
    workgroupBarrier();
    return r;
}

fn tree_second(l: u32, v: f32) -> f32 {
    shared_values[l] = v;
    workgroupBarrier();
    for (var s = 32u; s > 0u; s = s / 2u) {
        if (l < s) {
            shared_values[l] = shared_values[l] + shared_values[l + s];
        }
        workgroupBarrier();
    }
    let r = shared_values[0];
    workgroupBarrier();
    return r;
}

// What thread l finds in elements from_i .. until of a row.
fn lane_first(row: u32, from_i: u32, until: u32, l: u32) -> f32 {
    let base = row_start(row);
    var a = START;
    for (var i = from_i + l; i < until; i += 64u) {
        a = MERGE(a, first(element(base, i), row));
    }
    return a;
}

fn lane_second(row: u32, from_i: u32, until: u32, l: u32, a: f32) -> f32 {
    let base = row_start(row);
    var b = 0.0;
    for (var i = from_i + l; i < until; i += 64u) {
        b += second(element(base, i), row, a);
    }
    return b;
}

// One workgroup a row.
GROUPS rows 64 {
    let n = m(0u);
    let a = number(tree_first(l, lane_first(group, 0u, n, l)));
    let b = tree_second(l, lane_second(group, 0u, n, l, a));
    let base = row_start(group);
    for (var i = l; i < n; i += 64u) {
        let at = element(base, i);
        emit0(at, result(at, group, a, b));
    }
    if (l == 0u) {
        statistics(group, a, b);
    }
}

// Rows in hi() parts of lo() elements. Scratch: the two numbers of each row, then what each part finds.
fn of_part(row: u32, part: u32, rows: u32) -> u32 {
    return rows * 2u + row * hi() + part;
}

GROUPS part_first 64 {
    let row = group / hi();
    let begin = group % hi() * lo();
    let a = tree_first(l, lane_first(row, begin, min(begin + lo(), m(0u)), l));
    if (l == 0u) {
        scratch[of_part(row, group % hi(), args[0] / hi())] = bitcast<u32>(a);
    }
}

GROUPS part_second 64 {
    let row = group / hi();
    let begin = group % hi() * lo();
    let a = bitcast<f32>(scratch[row * 2u]);
    let b = tree_second(l, lane_second(row, begin, min(begin + lo(), m(0u)), l, a));
    if (l == 0u) {
        scratch[of_part(row, group % hi(), args[0] / hi())] = bitcast<u32>(b);
    }
}

GROUPS join_first 64 {
    var a = START;
    for (var k = l; k < hi(); k += 64u) {
        a = MERGE(a, bitcast<f32>(scratch[of_part(group, k, args[0])]));
    }
    a = number(tree_first(l, a));
    if (l == 0u) {
        scratch[group * 2u] = bitcast<u32>(a);
    }
}

GROUPS join_second 64 {
    var b = 0.0;
    for (var k = l; k < hi(); k += 64u) {
        b += bitcast<f32>(scratch[of_part(group, k, args[0])]);
    }
    b = tree_second(l, b);
    if (l == 0u) {
        scratch[group * 2u + 1u] = bitcast<u32>(b);
        statistics(group, bitcast<f32>(scratch[group * 2u]), b);
    }
}

// One thread an element.
THREADS apply {
    let row = row_at(t);
    let a = bitcast<f32>(scratch[row * 2u]);
    emit0(t, result(t, row, a, bitcast<f32>(scratch[row * 2u + 1u])));
}

// ---- spread
// Words from `from_word` on: rank, dimensions, strides of scale, strides of bias.
fn spread(from_word: u32, which: u32, index: u32) -> u32 {
    let rank = m(from_word);
    var rest = index;
    var at = 0u;
    for (var d = rank; d > 0u; d--) {
        let n = m(from_word + d);
        at += (rest % n) * m(from_word + rank * which + d);
        rest = rest / n;
    }
    return at;
}

// ---- ragged
// Does element `at` of a row count? Rows are contiguous.
fn counts(at: u32, row: u32) -> bool {
    let bound = i32(clamp(x1(row), LOW, HIGH));
    return i32(at % m(0u)) < bound;
}
