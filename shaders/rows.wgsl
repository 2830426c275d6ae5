// Operators on rows: lines along one axis. A row's elements are `inner` apart.

// ---- hardmax
// The first launches find the greatest element of each row, the last one tells which it is. Words: elements of a row,
// inner.
fn total(row: u32) -> i32 {
    let inner = m(1u);
    let base = row / inner * m(0u) * inner + row % inner;
    var best = resume(row, 0);
    for (var i = lo(); i < hi(); i++) {
        let b = x0(base + u32(best) * inner);
        let x = x0(base + i * inner);
        if (!is_nan(b) && (is_nan(x) || x > b)) {
            best = i32(i);
        }
    }
    return best;
}

fn compute0(at: u32) -> f32 {
    let inner = m(1u);
    let row = at / (m(0u) * inner) * inner + at % inner;
    return select(0.0, 1.0, i32(at / inner % m(0u)) == kept(row));
}

// ---- topk
// One thread an element: its rank in its row. Words: elements of a row, width of a sorted row, inner, k.
THREADS rows {
    let n = m(0u);
    let inner = m(2u);
    let i = (t / inner) % n;
    let outer = t / inner / n;
    let base = outer * n * inner + t % inner;
    let v = x0(t);
    var rank = 0u;
    for (var j = 0u; j < n; j++) {
        let u = x0(base + j * inner);
        if (precedes(u, v) || (j < i && !precedes(v, u))) {
            rank++;
        }
    }
    if (rank < m(3u)) {
        let to = (outer * m(3u) + rank) * inner + t % inner;
        emit0(to, v);
        emit1(to, i64(i32(i)));
    }
}

// ---- topk_sorted
fn element_at(row: u32, i: u32) -> u32 {
    let inner = m(2u);
    return (row / inner * m(0u) + i) * inner + row % inner;
}

fn before(row: u32, a: u32, b: u32) -> bool {
    return precedes(x0(element_at(row, a)), x0(element_at(row, b)));
}

// One thread an element of the result.
THREADS take {
    let inner = m(2u);
    let row = t / (m(3u) * inner) * inner + t % inner;
    let i = scratch[row * m(1u) + t / inner % m(3u)];
    emit0(t, x0(element_at(row, i)));
    emit1(t, i64(i32(i)));
}

// ---- det
// One workgroup a matrix; a launch eliminates columns lo() .. hi(). Scratch: the matrices, then the determinants so far.
// Words: rows.
fn cell(group: u32, i: u32, j: u32) -> u32 {
    return (group * m(0u) + i) * m(0u) + j;
}

GROUPS determinants 64 {
    let n = m(0u);
    if (lo() == 0u) {
        for (var i = l; i < n * n; i += 64u) {
            scratch[group * n * n + i] = bitcast<u32>(x0(group * n * n + i));
        }
    }
    storageBarrier();
    let kept_at = args[0] * n * n + group;
    var det = 1.0;
    if (lo() > 0u) {
        det = bitcast<f32>(scratch[kept_at]);
    }
    for (var k = lo(); k < hi(); k++) {
        // All threads look for the same pivot.
        var pivot = k;
        for (var i = k + 1u; i < n; i++) {
            if (abs(bitcast<f32>(scratch[cell(group, i, k)])) > abs(bitcast<f32>(scratch[cell(group, pivot, k)]))) {
                pivot = i;
            }
        }
        storageBarrier();
        if (pivot != k) {
            for (var j = l; j < n; j += 64u) {
                let v = scratch[cell(group, k, j)];
                scratch[cell(group, k, j)] = scratch[cell(group, pivot, j)];
                scratch[cell(group, pivot, j)] = v;
            }
            det = -det;
        }
        storageBarrier();
        let p = bitcast<f32>(scratch[cell(group, k, k)]);
        det = det * p;
        for (var i = k + 1u + l; i < n && p != 0.0; i += 64u) {
            let f = bitcast<f32>(scratch[cell(group, i, k)]) / p;
            for (var j = k; j < n; j++) {
                let v = bitcast<f32>(scratch[cell(group, i, j)]) - f * bitcast<f32>(scratch[cell(group, k, j)]);
                scratch[cell(group, i, j)] = bitcast<u32>(v);
            }
        }
        storageBarrier();
    }
    if (l == 0u && hi() < n) {
        scratch[kept_at] = bitcast<u32>(det);
    }
    if (l == 0u && hi() >= n) {
        emit0(group, det);
    }
}
