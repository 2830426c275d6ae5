// ---- nll_loss

// Words: 0 classes, 1 elements inside, 2 targets in all, 3 use_ignore, 4 ignore_index.
fn class_of(t: u32) -> u32 {
    let c = near1(t);
    let known = c >= 0 && u32(c) < m(0u) && !(m(3u) != 0u && c == mi(4u));
    return select(m(0u), u32(c), known);
}

fn weight_of(c: u32) -> f32 {
    return WEIGHT;
}

fn loss(t: u32) -> f32 {
    let c = class_of(t);
    if (c == m(0u)) {
        return 0.0;
    }
    return -weight_of(c) * x0((t / m(1u) * m(0u) + c) * m(1u) + t % m(1u));
}

// ---- nll_each

fn compute0(at: u32) -> f32 {
    return loss(at);
}

// ---- nll_all

var<workgroup> shared_values: array<vec2<f32>, 64>;

// One workgroup sums targets lo() .. hi(). Scratch: sum, its lost digits and weights of every thread so far.
GROUPS all 64 {
    // Kahan's summation: the sum is as long as the batch.
    var sum = 0.0;
    var rest = 0.0;
    var weights = 0.0;
    if (lo() > 0u) {
        sum = bitcast<f32>(scratch[l * 3u]);
        rest = bitcast<f32>(scratch[l * 3u + 1u]);
        weights = bitcast<f32>(scratch[l * 3u + 2u]);
    }
    for (var t = lo() + l; t < hi(); t += 64u) {
        let y = loss(t) - rest;
        let s = sum + y;
        rest = (s - sum) - y;
        sum = s;
        let c = class_of(t);
        if (c < m(0u)) {
            weights += weight_of(c);
        }
    }
    if (hi() < m(2u)) {
        scratch[l * 3u] = bitcast<u32>(sum);
        scratch[l * 3u + 1u] = bitcast<u32>(rest);
        scratch[l * 3u + 2u] = bitcast<u32>(weights);
        return;
    }
    shared_values[l] = vec2<f32>(sum - rest, weights);
    workgroupBarrier();
    if (l == 0u) {
        var both = vec2<f32>(0.0, 0.0);
        for (var k = 0u; k < 64u; k++) {
            both += shared_values[k];
        }
        sum = both.x;
        weights = both.y;
        emit0(0u, ALL);
    }
}

// ---- rotary

// Words: 0 heads, 1 positions, 2 head size, 3 pairs, 4 rows of the table, 5 3-D input?, 6 interleaved?
fn angle_row(b: u32, s: u32) -> u32 {
    let row = b * m(1u) + s;
    ROW
}

fn compute0(at: u32) -> f32 {
    let d = at % m(2u);
    let flat = m(5u) != 0u;
    let s = select(at / m(2u) % m(1u), at / m(2u) / m(0u) % m(1u), flat);
    let b = at / m(2u) / m(0u) / m(1u);
    let half = m(3u);
    if (d >= 2u * half) {
        return x0(at);
    }
    let mixed = m(6u) != 0u;
    let pair = select(d % half, d / 2u, mixed);
    let second = select(d >= half, d % 2u == 1u, mixed);
    let distance = select(half, 1u, mixed);
    let row = angle_row(b, s);
    var c = 0.0;
    var z = 0.0;
    if (row < m(4u)) {
        c = x1(row * half + pair);
        z = x2(row * half + pair);
    }
    if (second) {
        return z * x0(at - distance) + c * x0(at);
    }
    return c * x0(at) - z * x0(at + distance);
}

// ---- cache

// Words: 0 rows of the cache, 1 rows of the update, 2 elements inside the axis, 3 elements of a batch entry of the
// update, 4 circular? One thread an element of the update; of rows that meet, the last one is written.
THREADS update {
    let n = m(1u);
    let low = t % m(2u);
    let row = t / m(2u) % n;
    let outer = t / m(2u) / n;
    let len = i32(m(0u));
    let b = t / m(3u);
    let start = START;
    var to = start + i32(row);
    if (m(4u) != 0u) {
        // A later row of the same place wins.
        if (row + m(0u) < n) {
            return;
        }
        to = ((to % len) + len) % len;
    }
    if (to >= 0 && to < len) {
        emit0((outer * m(0u) + u32(to)) * m(2u) + low, x1(t));
    }
}

THREADS keep {
    emit0(t, x0(t));
}
