// Operators whose output sizes depend on data: positions are counted and listed in scratch memory, the host reads the
// size, then a map writes the result.

// ---- list
// Lists the positions where `keep` holds. One workgroup; thread l looks at the l-th part of 64. Words: how many.
var<workgroup> starts: array<u32, 64>;

GROUPS list 64 {
    let n = m(0u);
    let part = (n + 63u) / 64u;
    let first = min(l * part, n);
    let last = min(first + part, n);
    var found = 0u;
    for (var i = first; i < last; i++) {
        if (keep(i)) {
            found++;
        }
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
        if (keep(i)) {
            scratch[at] = i;
            at++;
        }
    }
    if (l == 0u) {
        sizes[0] = total;
    }
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
// Scratch: first occurrence of each different slice, number of each slice, order, rank; n words each. Words: slices,
// elements after the axis, slices of the outer dimensions.
fn element_at(slice: u32, k: u32) -> u32 {
    return (k / m(1u) * m(0u) + slice) * m(1u) + k % m(1u);
}

fn equal_slices(a: u32, b: u32) -> bool {
    for (var k = 0u; k < m(1u) * m(2u); k++) {
        if (!same(x0(element_at(a, k)), x0(element_at(b, k)))) {
            return false;
        }
    }
    return true;
}

fn slice_before(a: u32, b: u32) -> bool {
    for (var k = 0u; k < m(1u) * m(2u); k++) {
        let u = x0(element_at(a, k));
        let v = x0(element_at(b, k));
        if (before(u, v)) {
            return true;
        }
        if (before(v, u)) {
            return false;
        }
    }
    return false;
}

THREADS distinct {
    let n = m(0u);
    var found = 0u;
    for (var i = 0u; i < n; i++) {
        var k = 0u;
        while (k < found && !equal_slices(scratch[k], i)) {
            k++;
        }
        if (k == found) {
            scratch[k] = i;
            found++;
        }
        scratch[n + i] = k;
    }
    for (var i = 0u; i < found; i++) {
        var k = i;
        SORT
        scratch[n * 2u + k] = i;
    }
    for (var r = 0u; r < found; r++) {
        scratch[n * 3u + scratch[n * 2u + r]] = r;
    }
    sizes[0] = found;
}

// ---- sort
        while (k > 0u && slice_before(scratch[i], scratch[scratch[n * 2u + k - 1u]])) {
            scratch[n * 2u + k] = scratch[n * 2u + k - 1u];
            k--;
        }

// ---- unique_maps
fn compute0(at: u32) -> REG {
    let n = m(0u);
    let count = m(3u);
    let r = at / m(1u) % count;
    let slice = scratch[scratch[n * 2u + r]];
    return x0((at / m(1u) / count * n + slice) * m(1u) + at % m(1u));
}

fn compute1(at: u32) -> i64 {
    return i64(i32(scratch[scratch[m(0u) * 2u + at]]));
}

fn compute2(at: u32) -> i64 {
    return i64(i32(scratch[m(0u) * 3u + scratch[m(0u) + at]]));
}

fn compute3(at: u32) -> i64 {
    let n = m(0u);
    let k = scratch[n * 2u + at];
    var count = 0;
    for (var i = 0u; i < n; i++) {
        count += select(0, 1, scratch[n + i] == k);
    }
    return i64(count);
}

// ---- nms
// Words: 0 batch, 1 classes, 2 boxes, 3 most picks of a class, 4 limit of candidates, 5 threshold of overlap, 6 that of
// scores. Scratch: picks of each class of each batch entry, counts, starts.
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

THREADS pick {
    let n = m(2u);
    let most = m(3u);
    var picked = 0u;
    var score = 0.0;
    var last = 0u;
    for (var taken = 0u; taken < m(4u) && picked < most; taken++) {
        // The next candidate in the order of scores, then of numbers.
        var best = n;
        var best_score = 0.0;
        for (var i = 0u; i < n; i++) {
            let s = x1(t * n + i);
            let later = taken == 0u || s < score || (s == score && i > last);
            if (!is_nan(s) && SCORE && later && (best == n || s > best_score)) {
                best = i;
                best_score = s;
            }
        }
        if (best == n) {
            break;
        }
        score = best_score;
        last = best;
        let r = rect(BOX);
        var free = true;
        for (var k = 0u; k < picked; k++) {
            let other = scratch[t * most + k];
            free = free && !overlap(rect(OTHER), r);
        }
        if (free) {
            scratch[t * most + picked] = best;
            picked++;
        }
    }
    scratch[m(0u) * m(1u) * most + t] = picked;
}

THREADS count {
    let classes = m(0u) * m(1u);
    let counts = classes * m(3u);
    var total = 0u;
    for (var k = 0u; k < classes; k++) {
        scratch[counts + classes + k] = total;
        total += scratch[counts + k];
    }
    sizes[0] = total;
}

fn compute0(at: u32) -> i64 {
    let classes = m(0u) * m(1u);
    let begins = classes * m(3u) + classes;
    let row = at / 3u;
    var k = classes - 1u;
    while (k > 0u && scratch[begins + k] > row) {
        k--;
    }
    switch (at % 3u) {
        case 0u: { return i64(i32(k / m(1u))); }
        case 1u: { return i64(i32(k % m(1u))); }
        default: { return i64(i32(scratch[k * m(3u) + row - scratch[begins + k]])); }
    }
}

// ---- assertion
// Words: how many. Tells how many are false.
GROUPS list 64 {
    let n = m(0u);
    var found = 0u;
    for (var i = l; i < n; i += 64u) {
        if (!x0(i)) {
            found++;
        }
    }
    starts[l] = found;
    workgroupBarrier();
    if (l == 0u) {
        var total = 0u;
        for (var k = 0u; k < 64u; k++) {
            total += starts[k];
        }
        sizes[0] = total;
    }
}
