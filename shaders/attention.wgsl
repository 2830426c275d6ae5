// Words: 0 batch, 1 query heads, 2 key heads, 3 queries, 4 keys, 5 head size, 6 head size of v, 7 keys of the past,
// 8 3-D inputs?, 9 length of the mask, 10–13 its strides, 14 scale, 15 cap, 16 causal?

// ---- common

// Component d of position s of head h: heads before positions, or behind them in flat inputs.
fn place(b: u32, h: u32, s: u32, d: u32, heads: u32, len: u32, size: u32) -> u32 {
    let flat = ((b * len + s) * heads + h) * size + d;
    return select(((b * heads + h) * len + s) * size + d, flat, m(8u) != 0u);
}

fn key(b: u32, h: u32, j: u32, d: u32) -> f32 {
    PAST_KEY
    return x1(place(b, h, j - m(7u), d, m(2u), m(4u) - m(7u), m(5u)));
}

fn value(b: u32, h: u32, j: u32, d: u32) -> f32 {
    PAST_VALUE
    return x2(place(b, h, j - m(7u), d, m(2u), m(4u) - m(7u), m(6u)));
}

fn product(b: u32, h: u32, i: u32, j: u32) -> f32 {
    var sum = 0.0;
    let kv = h * m(2u) / m(1u);
    for (var d = 0u; d < m(5u); d++) {
        sum += x0(place(b, h, i, d, m(1u), m(3u), m(5u))) * key(b, kv, j, d);
    }
    return sum * mf(14u);
}

// What is added to a score; minus infinity where a key takes no part.
fn bias(b: u32, h: u32, i: u32, j: u32) -> f32 {
    let out = cf(0xff800000u);
    // Position of the query among the keys.
    let own = OWN;
    if (m(16u) != 0u && i32(j) > own) {
        return out;
    }
    WINDOW
    NONPAD
    MASK
    return 0.0;
}

fn capped(x: f32) -> f32 {
    let c = mf(15u);
    if (c > 0.0) {
        return c * ktanh(x / c);
    }
    return x;
}

// A score with its cap and bias; a key that takes no part has minus infinity whatever its product is.
fn score(b: u32, h: u32, i: u32, j: u32) -> f32 {
    let added = bias(b, h, i, j);
    if (is_inf(added) && added < 0.0) {
        return added;
    }
    HIDDEN
    return capped(product(b, h, i, j)) + added;
}

// ---- entries

// One thread a score.
THREADS scores {
    let j = t % m(4u);
    let i = t / m(4u) % m(3u);
    let h = t / m(4u) / m(3u) % m(1u);
    let b = t / m(4u) / m(3u) / m(1u);
    scratch[t] = bitcast<u32>(score(b, h, i, j));
}

// One workgroup a row of scores.
var<workgroup> shared_values: array<f32, 64>;

fn greatest_of_all(l: u32, v: f32) -> f32 {
    shared_values[l] = v;
    workgroupBarrier();
    var r = shared_values[0];
    for (var k = 1u; k < 64u; k++) {
        r = kmax(r, shared_values[k]);
    }
    workgroupBarrier();
    return r;
}

fn sum_of_all(l: u32, v: f32) -> f32 {
    shared_values[l] = v;
    workgroupBarrier();
    var r = 0.0;
    for (var k = 0u; k < 64u; k++) {
        r += shared_values[k];
    }
    workgroupBarrier();
    return r;
}

GROUPS weigh 64 {
    let n = m(4u);
    let row = group * n;
    var top = cf(0xff800000u);
    for (var j = l; j < n; j += 64u) {
        top = kmax(top, bitcast<f32>(scratch[row + j]));
    }
    top = greatest_of_all(l, top);
    let none = is_inf(top) && top < 0.0;
    var sum = 0.0;
    for (var j = l; j < n; j += 64u) {
        let e = kexp(bitcast<f32>(scratch[row + j]) - top);
        scratch[row + j] = bitcast<u32>(e);
        sum += e;
    }
    sum = sum_of_all(l, sum);
    for (var j = l; j < n; j += 64u) {
        let w = bitcast<u32>(bitcast<f32>(scratch[row + j]) / sum);
        scratch[row + j] = select(w, EMPTY);
    }
}

// One thread a component of the result, summed over keys lo() .. hi(); sums so far lie behind the scores.
THREADS mix {
    let d = t % m(6u);
    let i = t / m(6u) % m(3u);
    let h = t / m(6u) / m(3u) % m(1u);
    let b = t / m(6u) / m(3u) / m(1u);
    let row = ((b * m(1u) + h) * m(3u) + i) * m(4u);
    let kv = h * m(2u) / m(1u);
    let sums = m(0u) * m(1u) * m(3u) * m(4u);
    var sum = 0.0;
    if (lo() > 0u) {
        sum = bitcast<f32>(scratch[sums + t]);
    }
    for (var j = lo(); j < hi(); j++) {
        sum += bitcast<f32>(scratch[row + j]) * value(b, kv, j, d);
    }
    if (hi() < m(4u)) {
        scratch[sums + t] = bitcast<u32>(sum);
    } else {
        emit0(place(b, h, i, d, m(1u), m(3u), m(6u)), sum);
    }
}

// One thread a component of the keys, past and new.
THREADS keys {
    let d = t % m(5u);
    let j = t / m(5u) % m(4u);
    let h = t / m(5u) / m(4u) % m(2u);
    emit1(t, key(t / m(5u) / m(4u) / m(2u), h, j, d));
}

THREADS values {
    let d = t % m(6u);
    let j = t / m(6u) % m(4u);
    let h = t / m(6u) / m(4u) % m(2u);
    emit2(t, value(t / m(6u) / m(4u) / m(2u), h, j, d));
}

THREADS qk {
    let j = t % m(4u);
    let i = t / m(4u) % m(3u);
    let h = t / m(4u) / m(3u) % m(1u);
    let b = t / m(4u) / m(3u) / m(1u);
    emit3(t, QK);
}
