// Tensors that are made of a few numbers: ranges, windows, mel filters, random numbers.

// ---- range_float
// The sum of two numbers and what its rounding lost.
DEV vec2<f32> add_up(vec2<f32> sum, f32 x) const {
    const f32 s = sum.x + x;
    const f32 b = s - sum.x;
    return vec2<f32>(s, sum.y + ((sum.x - (s - b)) + (x - b)));
}

// Words: start, the step's upper 12 bits and its lower ones, two powers of two that scale the result. All products are
// exact: factors have 12 bits.
DEV f32 compute0(u32 at) const {
    const f32 high = f32(at & 0xff000000u);
    const f32 middle = f32(at & 0x00fff000u);
    const f32 low = f32(at & 0x00000fffu);
    auto sum = vec2<f32>(mf(0u), 0.0f);
    sum = add_up(sum, high * mf(1u));
    sum = add_up(sum, high * mf(2u));
    sum = add_up(sum, middle * mf(1u));
    sum = add_up(sum, middle * mf(2u));
    sum = add_up(sum, low * mf(1u));
    sum = add_up(sum, low * mf(2u));
    return (sum.x + sum.y) * mf(3u) * mf(4u);
}

// ---- window
// Words: elements of a period, then C, A, B and D of C + s (A + B s) = 1 - (1 - s) (D - B (1 - s)), s = sin^2(pi at / period).
DEV f32 weight(u32 at) const {
    const u32 n = m(0u);
    if (n == 0u) {
        return 1.0f;
    }
    const u32 k = ::min(at, n - at);
    if (k <= n / 4u) {
        const f32 x = sinf(f32(k) / f32(n) * 3.1415926535897932f);
        return mf(1u) + x * x * (mf(2u) + mf(3u) * (x * x));
    }
    const f32 x = sinf(f32(n - 2u * k) / f32(n) * 1.5707963267948966f);
    return 1.0f - x * x * (mf(4u) - mf(3u) * (x * x));
}

// ---- mel
// Words: bands; then two for each edge: its spectral bin, as an integer of at most 2^30 in size, and as a float.
DEV i32 bin(u32 edge) const { return mi(1u + edge * 2u); }

// From one bin to another, exact where both are integers of 30 bits.
DEV f32 span(i32 low, f32 low_float, i32 high, f32 high_float) const {
    const i32 limit = 1073741824;
    if (-limit < low && low < limit && -limit < high && high < limit) {
        return f32(high - low);
    }
    return high_float - low_float;
}

DEV f32 between(u32 a, u32 b) const { return span(bin(a), mf(2u + a * 2u), bin(b), mf(2u + b * 2u)); }

DEV f32 filter_at(u32 at) const {
    const u32 band = at % m(0u);
    const i32 j = i32(at / m(0u));
    const i32 low = bin(band);
    const i32 center = bin(band + 1u);
    const i32 high = bin(band + 2u);
    if (center <= j && j < high) {
        return span(j, f32(j), high, mf(6u + band * 2u)) / between(band + 1u, band + 2u);
    }
    if (low == center) {
        return j == center ? 1.0f : 0.0f;
    }
    if (low <= j && j <= center) {
        return span(low, mf(2u + band * 2u), j, f32(j)) / between(band, band + 1u);
    }
    return 0.0f;
}

// ---- philox
// Word `lane` of a block of Philox4x32-10. Words: 0 and 1 the key.
DEV u32 philox(u32 block, u32 lane) const {
    u32 c0 = block, c1 = 0u, c2 = 0u, c3 = 0u;
    u32 k0 = m(0u), k1 = m(1u);
    for (u32 round = 0u; round < 10u; round++) {
        const u64 a = u64(0xd2511f53u) * u64(c0);
        const u64 b = u64(0xcd9e8d57u) * u64(c2);
        c0 = u32(b >> 32) ^ c1 ^ k0;
        c1 = u32(b);
        c2 = u32(a >> 32) ^ c3 ^ k1;
        c3 = u32(a);
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    return lane == 0u ? c0 : lane == 1u ? c1 : lane == 2u ? c2 : c3;
}

// ---- uniform
// Words: 2 the first end, 3 the width, 4 the other end, 5 the last number before it, 6 zero.
DEV f32 compute0(u32 at) const {
    const f32 share = f32(philox(at / 4u, at % 4u) >> 8) * 5.9604644775390625e-8f;
    // Rounded twice, as every backend does.
    const f32 sum = __fadd_rn(mf(2u), __fmul_rn(mf(3u), share));
    const f32 y = ROUNDED;
    const bool beyond = mf(3u) > 0.0f ? y >= mf(4u) : y <= mf(4u);
    return beyond ? mf(5u) : y;
}

// ---- normal
// Words: 2 mean, 3 standard deviation.
DEV f32 compute0(u32 at) const {
    const u32 pair = at & 2u;
    const f32 radius = sqrtf(-2.0f * logf(f32((philox(at / 4u, pair) >> 8) + 1u) * 5.9604644775390625e-8f));
    const u32 turn = (philox(at / 4u, pair + 1u) >> 8) * 4u;
    const u32 quarter = (turn + 0x800000u) >> 24;
    const f32 r = f32(i32(turn) - i32(quarter << 24)) * 9.362675707309822e-8f;
    // Even elements take the cosine.
    const u32 q = (quarter + 1u - (at & 1u)) & 3u;
    const f32 v = (q & 1u) == 1u ? cosf(r) : sinf(r);
    return mf(2u) + mf(3u) * (radius * (q >= 2u ? -v : v));
}
