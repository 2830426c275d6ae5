// ---- nll_loss

// Words: 0 classes, 1 elements inside, 2 targets in all, 3 use_ignore, 4 ignore_index.
DEV u32 class_of(u32 t) const {
    const auto c = near1(t);
    const auto known = c >= 0 && u32(c) < m(0u) && !(m(3u) != 0u && c == mi(4u));
    return select(m(0u), u32(c), known);
}

DEV f32 weight_of(u32 c) const {
    return WEIGHT;
}

DEV f32 loss(u32 t) const {
    const auto c = class_of(t);
    if (c == m(0u)) {
        return 0.0f;
    }
    return -weight_of(c) * x0((t / m(1u) * m(0u) + c) * m(1u) + t % m(1u));
}

// ---- nll_each

DEV f32 compute0(u32 at) const {
    return loss(at);
}

// ---- nll_all

DEV f32 compute0(u32 at) const {
    // Kahan's summation: the sum is as long as the batch.
    f32 sum = 0.0f;
    f32 rest = 0.0f;
    f32 weights = 0.0f;
    for (u32 t = 0u; t < m(2u); t++) {
        const auto y = loss(t) - rest;
        const auto s = sum + y;
        rest = (s - sum) - y;
        sum = s;
        const auto c = class_of(t);
        if (c < m(0u)) {
            weights += weight_of(c);
        }
    }
    return ALL;
}

// ---- rotary

// Words: 0 heads, 1 positions, 2 head size, 3 pairs, 4 rows of the table, 5 3-D input?, 6 interleaved?
DEV u32 angle_row(u32 b, u32 s) const {
    const auto row = b * m(1u) + s;
    ROW
}

DEV f32 compute0(u32 at) const {
    const auto d = at % m(2u);
    const auto flat = m(5u) != 0u;
    const auto s = select(at / m(2u) % m(1u), at / m(2u) / m(0u) % m(1u), flat);
    const auto b = at / m(2u) / m(0u) / m(1u);
    const auto half = m(3u);
    if (d >= 2u * half) {
        return x0(at);
    }
    const auto mixed = m(6u) != 0u;
    const auto pair = select(d % half, d / 2u, mixed);
    const auto second = select(d >= half, d % 2u == 1u, mixed);
    const auto distance = select(half, 1u, mixed);
    const auto row = angle_row(b, s);
    f32 c = 0.0f;
    f32 z = 0.0f;
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
    const auto n = m(1u);
    const auto low = t % m(2u);
    const auto row = t / m(2u) % n;
    const auto outer = t / m(2u) / n;
    const auto len = i32(m(0u));
    const auto b = t / m(3u);
    const auto start = START;
    auto to = start + i32(row);
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
