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
