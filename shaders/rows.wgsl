// Operators on rows: lines along one axis. A row's elements are `inner` apart.

// ---- tree
const LANES: u32 = 64u;
var<workgroup> shared_values: array<f32, 64>;

fn tree_sum(l: u32, v: f32) -> f32 {
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

fn tree_max(l: u32, v: f32) -> f32 {
    shared_values[l] = v;
    workgroupBarrier();
    for (var s = 32u; s > 0u; s = s / 2u) {
        if (l < s) {
            shared_values[l] = fmax(shared_values[l], shared_values[l + s]);
        }
        workgroupBarrier();
    }
    let r = shared_values[0];
    workgroupBarrier();
    return r;
}

// ---- softmax
// Words: elements of a row, inner.
GROUPS rows 64 {
    let n = m(0u);
    let inner = m(1u);
    let base = group / inner * n * inner + group % inner;
    var top = cf(0xff800000u);
    for (var i = l; i < n; i += 64u) {
        top = fmax(top, x0(base + i * inner));
    }
    top = tree_max(l, top);
    var sum = 0.0;
    for (var i = l; i < n; i += 64u) {
        sum += kexp(x0(base + i * inner) - top);
    }
    sum = tree_sum(l, sum);
    for (var i = l; i < n; i += 64u) {
        let at = base + i * inner;
        emit0(at, RESULT);
    }
}

// ---- hardmax
// Words: elements of a row, inner.
THREADS rows {
    let n = m(0u);
    let inner = m(1u);
    let base = t / inner * n * inner + t % inner;
    var best = 0u;
    for (var i = 1u; i < n; i++) {
        let b = x0(base + best * inner);
        let x = x0(base + i * inner);
        if (!is_nan(b) && (is_nan(x) || x > b)) {
            best = i;
        }
    }
    for (var i = 0u; i < n; i++) {
        emit0(base + i * inner, select(0.0, 1.0, i == best));
    }
}

// ---- lp_norm
// Words: elements of a row, inner.
GROUPS rows 64 {
    let n = m(0u);
    let inner = m(1u);
    let base = group / inner * n * inner + group % inner;
    var sum = 0.0;
    for (var i = l; i < n; i += 64u) {
        let v = x0(base + i * inner);
        sum += TERM;
    }
    let norm = NORM(tree_sum(l, sum));
    for (var i = l; i < n; i += 64u) {
        emit0(base + i * inner, x0(base + i * inner) / norm);
    }
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

// ---- layer_norm
// Words: elements of a row, epsilon, then those of `spread`.
GROUPS rows 64 {
    let n = m(0u);
    let base = group * n;
    var sum = 0.0;
    for (var i = l; i < n; i += 64u) {
        sum += x0(base + i);
    }
    let mean = tree_sum(l, sum) / f32(n);
    var squares = 0.0;
    for (var i = l; i < n; i += 64u) {
        let d = x0(base + i) - mean;
        squares += d * d;
    }
    let inverse = 1.0 / sqrt(tree_sum(l, squares) / f32(n) + mf(1u));
    for (var i = l; i < n; i += 64u) {
        let at = base + i;
        var y = (x0(at) - mean) * inverse;
        AFFINE
        emit0(at, y);
    }
    STATISTICS
}

// ---- rms_norm
// Words: elements of a row, epsilon, then those of `spread`.
GROUPS rows 64 {
    let n = m(0u);
    let base = group * n;
    var sum = 0.0;
    for (var i = l; i < n; i += 64u) {
        let v = x0(base + i);
        sum += v * v;
    }
    let norm = sqrt(tree_sum(l, sum) / f32(n) + mf(1u));
    for (var i = l; i < n; i += 64u) {
        let at = base + i;
        var y = x0(at) / norm;
        AFFINE
        emit0(at, y);
    }
}

// ---- group_norm
// Words: elements of a group, epsilon, elements of a channel, channels.
GROUPS rows 64 {
    let n = m(0u);
    let base = group * n;
    var sum = 0.0;
    for (var i = l; i < n; i += 64u) {
        sum += x0(base + i);
    }
    let mean = tree_sum(l, sum) / f32(n);
    var squares = 0.0;
    for (var i = l; i < n; i += 64u) {
        let d = x0(base + i) - mean;
        squares += d * d;
    }
    let norm = sqrt(tree_sum(l, squares) / f32(n) + mf(1u));
    for (var i = l; i < n; i += 64u) {
        let at = base + i;
        let c = (at / m(2u)) % m(3u);
        emit0(at, (x0(at) - mean) / norm * x1(c) + x2(c));
    }
}

// ---- batch_norm
// Words: elements of a channel, channels, epsilon.
fn compute0(at: u32) -> f32 {
    let c = (at / m(0u)) % m(1u);
    return (x0(at) - x3(c)) / sqrt(x4(c) + mf(2u)) * x1(c) + x2(c);
}

// ---- lrn
// Words: elements of a channel, channels, before, after, alpha / size, beta, bias.
fn compute0(at: u32) -> f32 {
    let inner = m(0u);
    let c = (at / inner) % m(1u);
    let first = c - min(c, m(2u));
    let last = min(c + min(m(3u), m(1u)), m(1u) - 1u);
    var sum = 0.0;
    for (var k = first; k <= last; k++) {
        let v = x0(at + k * inner - c * inner);
        sum += v * v;
    }
    return x0(at) / fpow(mf(6u) + mf(4u) * sum, mf(5u));
}

// ---- argreduce
// Words: elements of a row, inner.
fn compute0(at: u32) -> i64 {
    let n = m(0u);
    let inner = m(1u);
    let base = at / inner * n * inner + at % inner;
    var best = 0u;
    for (var k = 1u; k < n; k++) {
        let a = x0(base + best * inner);
        let b = x0(base + k * inner);
        if (REPLACES) {
            best = k;
        }
    }
    return i64(i32(best));
}

// ---- cumulative
// Words: elements of a row, inner.
THREADS rows {
    let n = m(0u);
    let inner = m(1u);
    let base = t / inner * n * inner + t % inner;
    var acc = START;
    for (var k = 0u; k < n; k++) {
        let at = base + PLACE * inner;
        let next = acc STEP x0(at);
        emit0(at, STORED);
        acc = next;
    }
}

// ---- topk
// One thread an element: its rank in its row. Words: elements of a row, inner, k.
THREADS rows {
    let n = m(0u);
    let inner = m(1u);
    let i = (t / inner) % n;
    let outer = t / inner / n;
    let base = outer * n * inner + t % inner;
    let v = x0(t);
    var rank = 0u;
    for (var j = 0u; j < n; j++) {
        let u = x0(base + j * inner);
        if (before(u, v) || (j < i && !before(v, u))) {
            rank++;
        }
    }
    if (rank < m(2u)) {
        let to = (outer * m(2u) + rank) * inner + t % inner;
        emit0(to, v);
        emit1(to, i64(i32(i)));
    }
}

// ---- ragged_softmax
// Words: elements of a row.
GROUPS rows 64 {
    let n = m(0u);
    let base = group * n;
    let bound = u32(clamp(i32(clamp(x1(group), LOW, HIGH)), 0, i32(n)));
    var top = cf(0xff800000u);
    for (var i = l; i < bound; i += 64u) {
        top = fmax(top, x0(base + i));
    }
    top = tree_max(l, top);
    var sum = 0.0;
    for (var i = l; i < bound; i += 64u) {
        sum += kexp(x0(base + i) - top);
    }
    sum = tree_sum(l, sum);
    for (var i = l; i < n; i += 64u) {
        emit0(base + i, select(0.0, kexp(x0(base + i) - top) / sum, i < bound));
    }
}

// ---- det
// Words: rows.
THREADS determinants {
    let n = m(0u);
    let base = t * n * n;
    for (var i = 0u; i < n * n; i++) {
        scratch[base + i] = bitcast<u32>(x0(base + i));
    }
    var det = 1.0;
    for (var k = 0u; k < n; k++) {
        var pivot = k;
        for (var i = k + 1u; i < n; i++) {
            if (abs(bitcast<f32>(scratch[base + i * n + k])) > abs(bitcast<f32>(scratch[base + pivot * n + k]))) {
                pivot = i;
            }
        }
        if (pivot != k) {
            for (var j = 0u; j < n; j++) {
                let v = scratch[base + k * n + j];
                scratch[base + k * n + j] = scratch[base + pivot * n + j];
                scratch[base + pivot * n + j] = v;
            }
            det = -det;
        }
        let p = bitcast<f32>(scratch[base + k * n + k]);
        det = det * p;
        if (p == 0.0) {
            continue;
        }
        for (var i = k + 1u; i < n; i++) {
            let f = bitcast<f32>(scratch[base + i * n + k]) / p;
            for (var j = k; j < n; j++) {
                let v = bitcast<f32>(scratch[base + i * n + j]) - f * bitcast<f32>(scratch[base + k * n + j]);
                scratch[base + i * n + j] = bitcast<u32>(v);
            }
        }
    }
    emit0(t, det);
}
