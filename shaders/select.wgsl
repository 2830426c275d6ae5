// Operators whose output sizes depend on data: positions are counted and listed in scratch memory, the host reads the
// size, then a map writes the result.

// ---- list
// Lists the numbers i < n for which `keep(i)` holds, in three launches: threads count in runs of hi() numbers, one
// workgroup adds the counts up, threads write. Scratch has the list at `list_at()`, the counts at `counts_at()`; lo() is n.
var<workgroup> starts: array<u32, 64>;

THREADS count_runs {
    var found = 0u;
    for (var i = t * hi(); i < min((t + 1u) * hi(), lo()); i++) {
        if (keep(i)) {
            found++;
        }
    }
    scratch[counts_at() + t] = found;
}

GROUPS add_up 64 {
    let runs = (lo() + hi() - 1u) / max(hi(), 1u);
    let part = (runs + 63u) / 64u;
    let first = min(l * part, runs);
    let last = min(first + part, runs);
    var found = 0u;
    for (var i = first; i < last; i++) {
        found += scratch[counts_at() + i];
    }
    starts[l] = found;
    workgroupBarrier();
    var at = 0u;
    var total = 0u;
    for (var k = 0u; k < 64u; k++) {
        if (k == l) {
            at = total;
        }
        total += starts[k];
    }
    for (var i = first; i < last; i++) {
        let own = scratch[counts_at() + i];
        scratch[counts_at() + i] = at;
        at += own;
    }
    if (l == 0u) {
        sizes[0] = total;
    }
}

THREADS write_list {
    var at = list_at() + scratch[counts_at() + t];
    for (var i = t * hi(); i < min((t + 1u) * hi(), lo()); i++) {
        if (keep(i)) {
            scratch[at] = i;
            at++;
        }
    }
}

// ---- list_first
fn list_at() -> u32 {
    return 0u;
}

fn counts_at() -> u32 {
    return lo();
}

// ---- nonzero
// Words: columns of the result, rank, strides, dimensions.
fn compute0(at: u32) -> i64 {
    let d = at / m(0u);
    let i = scratch[at % m(0u)];
    return i64(i32(i / m(2u + d) % m(2u + m(1u) + d)));
}

// ---- compress
// Words: elements after the axis, size of the axis in the result and in x.
fn compute0(at: u32) -> REG {
    let inner = m(0u);
    let kept = at / inner % m(1u);
    return x0((at / inner / m(1u) * m(2u) + scratch[kept]) * inner + at % inner);
}

// ---- unique
// Slices are sorted; where one differs from that before it, a new one of the different slices starts. Words: slices, width
// of the sorted list, elements after the axis, slices of the outer dimensions, different slices (once known). Scratch: the
// sorted list; places in it where different slices start; for every slice, which of them it is; where each of them comes in
// the result; which comes at each place; counts of `list`.
fn element_at(slice: u32, k: u32) -> u32 {
    return (k / m(2u) * m(0u) + slice) * m(2u) + k % m(2u);
}

fn equal_slices(a: u32, b: u32) -> bool {
    for (var k = 0u; k < m(2u) * m(3u); k++) {
        if (!same(x0(element_at(a, k)), x0(element_at(b, k)))) {
            return false;
        }
    }
    return true;
}

fn before(row: u32, a: u32, b: u32) -> bool {
    for (var k = 0u; k < m(2u) * m(3u); k++) {
        let u = x0(element_at(a, k));
        let v = x0(element_at(b, k));
        if (less(u, v)) {
            return true;
        }
        if (less(v, u)) {
            return false;
        }
    }
    return false;
}

fn list_at() -> u32 {
    return m(1u);
}

fn which_at() -> u32 {
    return m(1u) + m(0u);
}

fn place_at() -> u32 {
    return m(1u) + m(0u) * 2u;
}

fn order_at() -> u32 {
    return m(1u) + m(0u) * 3u;
}

fn counts_at() -> u32 {
    return m(1u) + m(0u) * 4u;
}

fn keep(i: u32) -> bool {
    return i == 0u || !equal_slices(scratch[i - 1u], scratch[i]);
}

// The first of equal slices, which is where they start in the sorted list.
fn first_of(which: u32) -> u32 {
    return scratch[scratch[list_at() + which]];
}

// Which of the different slices each one is: the last that starts at its place or before.
THREADS tell_which {
    var low = 0u;
    var high = sizes[0];
    while (high - low > 1u) {
        let middle = (low + high) / 2u;
        if (scratch[list_at() + middle] <= t) {
            low = middle;
        } else {
            high = middle;
        }
    }
    scratch[which_at() + scratch[t]] = low;
}

// ---- unique_sorted
// Different slices come in their order.
THREADS arrange {
    scratch[place_at() + t] = t;
    scratch[order_at() + t] = t;
}

// ---- unique_found
// Different slices come in the order of their first ones: how many of these lie before each slice is counted in runs.
THREADS count_firsts {
    var found = 0u;
    for (var i = t * hi(); i < min((t + 1u) * hi(), lo()); i++) {
        if (first_of(scratch[which_at() + i]) == i) {
            found++;
        }
    }
    scratch[counts_at() + t] = found;
}

THREADS arrange {
    var place = scratch[counts_at() + t];
    for (var i = t * hi(); i < min((t + 1u) * hi(), lo()); i++) {
        let which = scratch[which_at() + i];
        if (first_of(which) == i) {
            scratch[place_at() + which] = place;
            scratch[order_at() + place] = which;
            place++;
        }
    }
}

// ---- unique_maps
fn compute0(at: u32) -> REG {
    let count = m(4u);
    let slice = first_of(scratch[order_at() + at / m(2u) % count]);
    return x0((at / m(2u) / count * m(0u) + slice) * m(2u) + at % m(2u));
}

fn compute1(at: u32) -> i64 {
    return i64(i32(first_of(scratch[order_at() + at])));
}

fn compute2(at: u32) -> i64 {
    return i64(i32(scratch[place_at() + scratch[which_at() + at]]));
}

fn compute3(at: u32) -> i64 {
    let which = scratch[order_at() + at];
    var end = m(0u);
    if (which + 1u < m(4u)) {
        end = scratch[list_at() + which + 1u];
    }
    return i64(i32(end - scratch[list_at() + which]));
}

// ---- nms
// Words: 0 and 1 as `sort` wants them, 2 batch, 3 classes, 4 most picks of a class, 5 threshold of overlap, 6 that of
// scores, 7 boxes, 8 words of sorted lists, 9 are picks sorted? Scratch: sorted lists, first of the candidates of each class
// of each batch entry, later of the picks of each batch entry; then picks, counts and starts of each class.
struct Rect {
    low: vec2<f32>,
    high: vec2<f32>,
}

fn rect(at: u32) -> Rect {
    let a = vec2<f32>(x0(at), x0(at + 1u));
    let b = vec2<f32>(x0(at + 2u), x0(at + 3u));
    CORNERS
}

fn overlap(p: Rect, q: Rect) -> bool {
    let size = min(p.high, q.high) - max(p.low, q.low);
    let a = (p.high.x - p.low.x) * (p.high.y - p.low.y);
    let b = (q.high.x - q.low.x) * (q.high.y - q.low.y);
    if (!(size.x > 0.0 && size.y > 0.0 && a > 0.0 && b > 0.0)) {
        return false;
    }
    let both = size.x * size.y;
    return both / (a + b - both) > mf(5u);
}

fn candidate(row: u32, i: u32) -> bool {
    let s = x1(row * m(7u) + i);
    return !is_nan(s) && SCORE;
}

// The class that pick k of a batch entry is of, and its score.
fn class_of(entry: u32, k: u32) -> u32 {
    return entry * m(3u) + k / m(4u);
}

fn pick_of(entry: u32, k: u32) -> u32 {
    return scratch[picks_at(class_of(entry, k)) + k % m(4u)];
}

fn is_pick(entry: u32, k: u32) -> bool {
    return k % m(4u) < scratch[counts_of(class_of(entry, k))];
}

fn pick_before(entry: u32, a: u32, b: u32) -> bool {
    let is_a = is_pick(entry, a);
    let is_b = is_pick(entry, b);
    if (!is_a || !is_b) {
        return is_a && !is_b;
    }
    let first = x1(class_of(entry, a) * m(7u) + pick_of(entry, a));
    return first > x1(class_of(entry, b) * m(7u) + pick_of(entry, b));
}

// Greater scores first, what is no candidate last.
fn before(row: u32, a: u32, b: u32) -> bool {
    if (m(9u) != 0u) {
        return pick_before(row, a, b);
    }
    let is_a = candidate(row, a);
    let is_b = candidate(row, b);
    if (!is_a || !is_b) {
        return is_a && !is_b;
    }
    return x1(row * m(7u) + a) > x1(row * m(7u) + b);
}

fn rect_of(t: u32, i: u32) -> Rect {
    let n = m(7u);
    return rect(BOX);
}

fn picks_at(row: u32) -> u32 {
    return m(8u) + row * m(4u);
}

fn counts_of(row: u32) -> u32 {
    return m(8u) + m(2u) * m(3u) * m(4u) + row;
}

fn start_of(row: u32) -> u32 {
    return m(8u) + m(2u) * m(3u) * (m(4u) + 1u) + row;
}

var<workgroup> open: u32;
var<workgroup> covered: atomic<u32>;

// One workgroup a class; a launch looks at candidates lo() .. hi().
GROUPS pick 64 {
    let n = m(7u);
    let most = m(4u);
    var picked = 0u;
    if (lo() > 0u) {
        picked = scratch[counts_of(group)];
    }
    for (var k = lo(); k < hi(); k++) {
        let best = scratch[group * m(1u) + k];
        if (l == 0u) {
            open = select(0u, 1u, picked < most && best < n && candidate(group, min(best, n - 1u)));
            atomicStore(&covered, 0u);
        }
        if (workgroupUniformLoad(&open) == 0u) {
            break;
        }
        let r = rect_of(group, best);
        for (var p = l; p < picked; p += 64u) {
            if (overlap(rect_of(group, scratch[picks_at(group) + p]), r)) {
                atomicStore(&covered, 1u);
            }
        }
        workgroupBarrier();
        let free = atomicLoad(&covered) == 0u;
        if (free && l == 0u) {
            scratch[picks_at(group) + picked] = best;
        }
        picked += select(0u, 1u, free);
        storageBarrier();
        workgroupBarrier();
    }
    if (l == 0u) {
        scratch[counts_of(group)] = picked;
    }
}

// Adds up the counts of classes lo() .. hi().
THREADS count {
    var total = 0u;
    if (lo() > 0u) {
        total = scratch[start_of(lo() - 1u)] + scratch[counts_of(lo() - 1u)];
    }
    for (var k = lo(); k < hi(); k++) {
        scratch[start_of(k)] = total;
        total += scratch[counts_of(k)];
    }
    sizes[0] = total;
}

fn compute0(at: u32) -> i64 {
    let row = at / 3u;
    // The last class that starts at this row or before.
    var low = 0u;
    var high = m(2u) * m(3u);
    while (high - low > 1u) {
        let middle = (low + high) / 2u;
        if (scratch[start_of(middle)] <= row) {
            low = middle;
        } else {
            high = middle;
        }
    }
    let entry = low / m(3u);
    var k = low % m(3u) * m(4u) + row - scratch[start_of(low)];
    if (m(9u) != 0u) {
        k = scratch[entry * m(1u) + row - scratch[start_of(entry * m(3u))]];
    }
    switch (at % 3u) {
        case 0u: { return i64(i32(entry)); }
        case 1u: { return i64(i32(k / m(4u))); }
        default: { return i64(i32(pick_of(entry, k))); }
    }
}

// ---- assertion
// Tells how many of elements lo() .. hi() are false, beside those before.
GROUPS list 64 {
    var found = 0u;
    for (var i = lo() + l; i < hi(); i += 64u) {
        if (!x0(i)) {
            found++;
        }
    }
    starts[l] = found;
    workgroupBarrier();
    if (l == 0u) {
        var total = 0u;
        if (lo() > 0u) {
            total = sizes[0];
        }
        for (var k = 0u; k < 64u; k++) {
            total += starts[k];
        }
        sizes[0] = total;
    }
}
