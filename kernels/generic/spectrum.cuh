// Fourier transforms by their definition. Complex numbers are pairs.

// ---- fourier
// e^(i 2 pi k / n) for k < n.
DEV vec2<f32> unit(u32 k, u32 n) const {
    // Within an eighth of a turn, so that the angle is accurate.
    const auto q = (k * 8u + n) / (n * 2u);
    const auto r = f32(i32(k * 4u) - i32(q * n)) / f32(n) * 1.5707963267948966f;
    const auto s = sinf(r);
    const auto c = cosf(r);
    switch (q & 3u) {
        case 0u: { return vec2<f32>(c, s); }
        case 1u: { return vec2<f32>(-s, c); }
        case 2u: { return vec2<f32>(-c, -s); }
        default: { return vec2<f32>(s, -c); }
    }
}

// k t mod n for k, t < n.
DEV u32 mul_mod(u32 k, u32 t, u32 n) const {
    if (n <= 65536u) {
        return k * t % n;
    }
    u32 r = 0u;
    auto a = k;
    for (auto b = t; b > 0u; b = b >> 1) {
        if ((b & 1u) == 1u) {
            r = (r + a) % n;
        }
        a = (a + a) % n;
    }
    return r;
}

// ---- dft
// Words: length, elements of the axis in x that count, in x, in the result, inner elements (pairs), parts of x.
DEV f32 compute0(u32 at) const {
    const auto n = m(0u);
    const auto inner = m(4u);
    const auto pair = at / 2u;
    const auto low = pair % inner;
    const auto k = pair / inner % m(3u);
    const auto outer = pair / inner / m(3u);
    auto sum = vec2<f32>(0.0f, 0.0f);
    for (u32 t = 0u; t < m(1u); t++) {
        const auto src = ((outer * m(2u) + t) * inner + low) * m(5u);
        auto u = unit(mul_mod(k, t, n), n);
        u.y = u.y * SIGN;
        const auto a = x0(src);
        const auto b = select(0.0f, x0(src + m(5u) - 1u), m(5u) == 2u);
        sum += vec2<f32>(a * u.x - b * u.y, a * u.y + b * u.x);
    }
    const auto r = select(sum.x, sum.y, at % 2u == 1u);
    return SCALED;
}

// ---- dft_real
// Words as for dft. x has two parts, the result one: the signal of which x has the transform's first half.
DEV f32 compute0(u32 at) const {
    const auto n = m(0u);
    const auto inner = m(4u);
    const auto low = at % inner;
    const auto t = at / inner % m(3u);
    const auto outer = at / inner / m(3u);
    f32 sum = 0.0f;
    for (u32 k = 0u; k < m(1u); k++) {
        const auto src = ((outer * m(2u) + k) * inner + low) * 2u;
        const auto u = unit(mul_mod(k, t, n), n);
        // All but the first and the middle one have a conjugate in the second half.
        const auto twice = k > 0u && 2u * k != n;
        const auto r = x0(src) * u.x - select(0.0f, x0(src + 1u), twice) * u.y;
        sum += select(r, r + r, twice);
    }
    return sum / f32(n);
}

// ---- stft
// Words: length, elements of a frame that count, of the signal, bins, frames, parts, step, elements of the window.
DEV f32 compute0(u32 at) const {
    const auto n = m(0u);
    const auto k = at / 2u % m(3u);
    const auto frame = at / 2u / m(3u) % m(4u);
    const auto image = at / 2u / m(3u) / m(4u);
    auto sum = vec2<f32>(0.0f, 0.0f);
    const auto begin = frame * m(6u);
    for (u32 t = 0u; t < m(1u) && begin + t < m(2u); t++) {
        const auto src = (image * m(2u) + begin + t) * m(5u);
        auto u = unit(mul_mod(k, t, n), n);
        u.y = -u.y;
        u = u * WINDOW;
        const auto a = x0(src);
        const auto b = select(0.0f, x0(src + m(5u) - 1u), m(5u) == 2u);
        sum += vec2<f32>(a * u.x - b * u.y, a * u.y + b * u.x);
    }
    return select(sum.x, sum.y, at % 2u == 1u);
}
