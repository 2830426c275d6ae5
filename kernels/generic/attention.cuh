// Words: 0 batch, 1 query heads, 2 key heads, 3 queries, 4 keys, 5 head size, 6 head size of v, 7 keys of the past,
// 8 3-D inputs?, 9 length of the mask, 10–13 its strides, 14 scale, 15 cap, 16 causal?, 17–20 offset and strides of q over
// batch, head and position, 21–24 of k, 25–28 of v, 29–32 of the past keys, 33–36 of the past values, 37 offset of the mask

// ---- common

// Component d of position s of head h of the result: heads before positions, or behind them in flat inputs.
DEV u32 place(u32 b, u32 h, u32 s, u32 d, u32 heads, u32 len, u32 size) const {
    const auto flat = ((b * len + s) * heads + h) * size + d;
    return select(((b * heads + h) * len + s) * size + d, flat, m(8u) != 0u);
}

// The same of an input whose words begin at w.
DEV u32 lies(u32 w, u32 b, u32 h, u32 s, u32 d) const {
    return m(w) + b * m(w + 1u) + h * m(w + 2u) + s * m(w + 3u) + d;
}

DEV f32 key(u32 b, u32 h, u32 j, u32 d) const {
    PAST_KEY
    return x1(lies(21u, b, h, j - m(7u), d));
}

DEV f32 value(u32 b, u32 h, u32 j, u32 d) const {
    PAST_VALUE
    return x2(lies(25u, b, h, j - m(7u), d));
}

DEV f32 product(u32 b, u32 h, u32 i, u32 j) const {
    f32 sum = 0.0f;
    const auto kv = h * m(2u) / m(1u);
    for (u32 d = 0u; d < m(5u); d++) {
        mac(sum, x0(lies(17u, b, h, i, d)), key(b, kv, j, d));
    }
    return sum * mf(14u);
}

// What is added to a score; minus infinity where a key takes no part.
DEV f32 bias(u32 b, u32 h, u32 i, u32 j) const {
    const auto out = cf(0xff800000u);
    // Position of the query among the keys.
    const auto own = OWN;
    if (m(16u) != 0u && i32(j) > own) {
        return out;
    }
    WINDOW
    NONPAD
    MASK
    return 0.0f;
}

DEV f32 capped(f32 x) const {
    const auto c = mf(15u);
    if (c > 0.0f) {
        return c * ktanh(x / c);
    }
    return x;
}

// A score with its cap and bias; a key that takes no part has minus infinity whatever its product is.
DEV f32 score(u32 b, u32 h, u32 i, u32 j) const {
    const auto added = bias(b, h, i, j);
    if (is_inf(added) && added < 0.0f) {
        return added;
    }
    HIDDEN
    return capped(product(b, h, i, j)) + added;
}

// ---- entries

// One thread a score.
THREADS scores {
    const auto j = t % m(4u);
    const auto i = t / m(4u) % m(3u);
    const auto h = t / m(4u) / m(3u) % m(1u);
    const auto b = t / m(4u) / m(3u) / m(1u);
    scratch[t] = bitcast<u32>(score(b, h, i, j));
}

// One thread a row of scores.
THREADS weigh {
    const auto n = m(4u);
    f32 top = cf(0xff800000u);
    for (u32 j = 0u; j < n; j++) {
        top = kmax(top, bitcast<f32>(scratch[t * n + j]));
    }
    const auto none = is_inf(top) && top < 0.0f;
    f32 sum = 0.0f;
    for (u32 j = 0u; j < n; j++) {
        const auto e = kexp(bitcast<f32>(scratch[t * n + j]) - top);
        scratch[t * n + j] = bitcast<u32>(e);
        sum += e;
    }
    for (u32 j = 0u; j < n; j++) {
        const auto w = bitcast<u32>(bitcast<f32>(scratch[t * n + j]) / sum);
        scratch[t * n + j] = select(w, EMPTY);
    }
}

// One thread a component of the result.
THREADS mix {
    const auto d = t % m(6u);
    const auto i = t / m(6u) % m(3u);
    const auto h = t / m(6u) / m(3u) % m(1u);
    const auto b = t / m(6u) / m(3u) / m(1u);
    const auto row = ((b * m(1u) + h) * m(3u) + i) * m(4u);
    const auto kv = h * m(2u) / m(1u);
    f32 sum = 0.0f;
    for (u32 j = 0u; j < m(4u); j++) {
        mac(sum, bitcast<f32>(scratch[row + j]), value(b, kv, j, d));
    }
    emit0(place(b, h, i, d, m(1u), m(3u), m(6u)), sum);
}

// One thread a component of the keys, past and new.
THREADS keys {
    const auto d = t % m(5u);
    const auto j = t / m(5u) % m(4u);
    const auto h = t / m(5u) / m(4u) % m(2u);
    emit1(t, key(t / m(5u) / m(4u) / m(2u), h, j, d));
}

THREADS values {
    const auto d = t % m(6u);
    const auto j = t / m(6u) % m(4u);
    const auto h = t / m(6u) / m(4u) % m(2u);
    emit2(t, value(t / m(6u) / m(4u) / m(2u), h, j, d));
}

THREADS qk {
    const auto j = t % m(4u);
    const auto i = t / m(4u) % m(3u);
    const auto h = t / m(4u) / m(3u) % m(1u);
    const auto b = t / m(4u) / m(3u) / m(1u);
    emit3(t, QK);
}
