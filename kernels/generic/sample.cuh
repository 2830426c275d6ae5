// Sampling between elements.

// ---- resize
// Words: rank, then for each dimension: size of the result, of x, stride of x, most taps, where its table starts. A
// table has for every index of the result so many (index, weight); index 0xffffffff says that it lies outside.
// Word 1 is the value outside.
DEV REG compute0(u32 at) const {
    const auto rank = m(0u);
    u32 combinations = 1u;
    for (u32 d = 0u; d < rank; d++) {
        combinations *= m(2u + d * 5u + 3u);
    }
    f32 sum = 0.0f;
    for (u32 k = 0u; k < combinations; k++) {
        auto rest = at;
        auto which = k;
        u32 src = 0u;
        f32 weight = 1.0f;
        for (auto d = rank; d > 0u; d--) {
            const auto base = 2u + (d - 1u) * 5u;
            const auto n = m(base);
            const auto taps = m(base + 3u);
            const auto o = rest % n;
            rest = rest / n;
            const auto tap = m(base + 4u) + (o * taps + which % taps) * 2u;
            which = which / taps;
            const auto i = m(tap);
            if (i == 0xffffffffu) {
                return OUTSIDE;
            }
            src += i * m(base + 2u);
            weight *= mf(tap + 1u);
        }
        if (weight != 0.0f) {
            sum += weight * f32(x0(src));
        }
    }
    return RESULT;
}

// ---- grid
// Coordinates and indices under paddings.
DEV f32 border_low() const {
    return select(-0.5f, 0.0f, ALIGN);
}

DEV f32 border_high(i32 size) const {
    return f32(size) - select(0.5f, 1.0f, ALIGN);
}

DEV f32 reflect_at(f32 x, f32 lo, f32 hi) const {
    const auto range = hi - lo;
    if (range <= 0.0f || is_nan(x) || is_inf(x)) {
        return lo;
    }
    if (x >= lo && x <= hi) {
        return x;
    }
    const auto below = x < lo;
    const auto beyond = select(x - hi, lo - x, below);
    const auto times = trunc(beyond / range);
    const auto rest = beyond - times * range;
    const auto even = fract(times * 0.5f) == 0.0f;
    return select(select(lo + rest, hi - rest, even), select(hi - rest, lo + rest, even), below);
}

DEV f32 bring_inside(f32 x, i32 size) const {
    const auto lo = border_low();
    const auto hi = border_high(size);
    if (x >= lo && x <= hi) {
        return x;
    }
    INSIDE
}

// The element that an index reads; -1 for zero.
DEV i32 element_of(i32 i, i32 size) const {
    if (i >= 0 && i < size) {
        return i;
    }
    ELEMENT
}

DEV f32 cubic_kernel(f32 v) const {
    const auto x = abs(v);
    const auto a = -0.75f;
    if (x <= 1.0f) {
        return ((a + 2.0f) * x - (a + 3.0f)) * x * x + 1.0f;
    }
    if (x < 2.0f) {
        return ((a * x - 5.0f * a) * x + 8.0f * a) * x - 4.0f * a;
    }
    return 0.0f;
}

// ---- grid_sample
// Words: rank, sizes of x (three, led by 1), points of the grid, channels.
DEV f32 compute0(u32 at) const {
    const auto rank = m(0u);
    const auto points = m(4u);
    const auto point = at % points;
    const auto plane = at / points;
    const auto image = plane / m(5u);
    i32 first[3] = {};
    f32 part[3] = {};
    for (u32 d = 0u; d < 3u; d++) {
        if (d + rank >= 3u) {
            const auto size = mi(1u + d);
            auto n = x1((image * points + point) * rank + 2u - d);
            if (is_nan(n)) {
                n = -1.0f;
            }
            auto x = ((n + 1.0f) * f32(size) - 1.0f) / 2.0f;
            if (ALIGN) {
                x = (n + 1.0f) / 2.0f * (f32(size) - 1.0f);
            }
            x = bring_inside(ROUNDED, size);
            const auto f = FLOOR;
            first[d] = f_to_i32(f);
            part[d] = x - f;
        }
    }
    const auto volume = mi(1u) * mi(2u) * mi(3u);
    f32 sum = 0.0f;
    auto combinations = TAPSu;
    if (rank > 1u) {
        combinations *= TAPSu;
    }
    if (rank > 2u) {
        combinations *= TAPSu;
    }
    for (u32 k = 0u; k < combinations; k++) {
        auto which = k;
        i32 src = 0;
        f32 weight = 1.0f;
        bool ok = true;
        for (auto d = 3u - rank; d < 3u; d++) {
            const auto tap = i32(which % TAPSu) - BEFORE;
            which = which / TAPSu;
            const auto size = mi(1u + d);
            const auto i = element_of(first[d] + tap, size);
            ok = ok && i >= 0;
            src = src * size + i;
            weight *= WEIGHT;
        }
        if (ok) {
            sum += weight * x0(plane * u32(volume) + u32(src));
        }
    }
    return sum;
}

// ---- affine_grid
// Words: dimensions of the grid (two or three), sizes.
DEV f32 coordinate(u32 d, u32 i) const {
    const auto n = m(1u + d);
    if (ALIGN) {
        return select(2.0f * f32(i) / f32(n - 1u) - 1.0f, -1.0f, n <= 1u);
    }
    return f32(2u * i + 1u) / f32(n) - 1.0f;
}

DEV f32 compute0(u32 at) const {
    const auto r = m(0u);
    const auto row = at % r;
    auto rest = at / r;
    u32 place[3] = {};
    for (auto d = r; d > 0u; d--) {
        place[d - 1u] = rest % m(d);
        rest = rest / m(d);
    }
    const auto matrix = (rest * r + row) * (r + 1u);
    auto sum = x0(matrix + r);
    for (u32 k = 0u; k < r; k++) {
        sum += x0(matrix + k) * coordinate(r - 1u - k, place[r - 1u - k]);
    }
    return sum;
}

// ---- roi_align
// Words: images, channels, height, width, output height, output width, samples, scale.
struct Bins {
    f32 start;
    f32 size;
    i32 samples;
};

DEV Bins bins(f32 low, f32 high, u32 n) const {
    const auto shift = select(0.0f, 0.5f, HALF);
    const auto start = low * mf(7u) - shift;
    auto length = high * mf(7u) - shift - start;
    if (!HALF) {
        length = max(length, 1.0f);
    }
    const auto size = length / f32(n);
    auto samples = mi(6u);
    if (samples <= 0) {
        samples = clamp(f_to_i32(ceil(size)), 0, 1024);
    }
    return Bins(start, size, samples);
}

DEV f32 sample_at(Bins b, u32 bin, i32 i) const {
    return b.start + f32(bin) * b.size + (f32(i) + 0.5f) * b.size / f32(b.samples);
}

// The two elements around a coordinate and the weight of the second; the first is -1 outside.
struct Around {
    i32 low;
    i32 high;
    f32 part;
};

DEV Around around(f32 v, u32 size) const {
    if (is_nan(v) || v < -1.0f || v > f32(size) || size == 0u) {
        return Around(-1, -1, 0.0f);
    }
    const auto x = max(v, 0.0f);
    const auto low = i32(x);
    const auto last = i32(size) - 1;
    if (low >= last) {
        return Around(last, last, 0.0f);
    }
    return Around(low, low + 1, x - f32(low));
}

DEV f32 compute0(u32 at) const {
    const auto ox = at % m(5u);
    const auto oy = at / m(5u) % m(4u);
    const auto c = at / m(5u) / m(4u) % m(1u);
    const auto region = at / m(5u) / m(4u) / m(1u);
    const auto image = near2(region);
    if (image < 0 || image >= mi(0u)) {
        return 0.0f;
    }
    const auto rows = bins(x1(region * 4u + 1u), x1(region * 4u + 3u), m(4u));
    const auto columns = bins(x1(region * 4u), x1(region * 4u + 2u), m(5u));
    const auto plane = (u32(image) * m(1u) + c) * m(2u) * m(3u);
    const auto width = mi(3u);
    f32 sum = 0.0f;
    f32 most = cf(0xff800000u);
    for (i32 i = 0; i < rows.samples; i++) {
        const auto v = around(sample_at(rows, oy, i), m(2u));
        for (i32 j = 0; j < columns.samples; j++) {
            const auto h = around(sample_at(columns, ox, j), m(3u));
            if (v.low < 0 || h.low < 0) {
                most = max(most, 0.0f);
                continue;
            }
            const auto a = (1.0f - v.part) * (1.0f - h.part) * x0(plane + u32(v.low * width + h.low));
            const auto b = (1.0f - v.part) * h.part * x0(plane + u32(v.low * width + h.high));
            const auto e = v.part * (1.0f - h.part) * x0(plane + u32(v.high * width + h.low));
            const auto f = v.part * h.part * x0(plane + u32(v.high * width + h.high));
            sum += a + b + e + f;
            most = max(most, max(max(a, b), max(e, f)));
        }
    }
    const auto count = rows.samples * columns.samples;
    if (count <= 0) {
        return 0.0f;
    }
    return MODE;
}
