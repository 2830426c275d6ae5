// Tensors that are made of a few numbers: ranges, windows, mel filters, random numbers.

// ---- range_float
// The sum of two numbers and what its rounding lost.
fn add_up(sum: vec2<f32>, x: f32) -> vec2<f32> {
    let s = sum.x + x;
    let b = s - sum.x;
    return vec2<f32>(s, sum.y + ((sum.x - (s - b)) + (x - b)));
}

// Words: start, the step's upper 12 bits and its lower ones, two powers of two that scale the result. All products are
// exact: factors have 12 bits.
fn compute0(at: u32) -> f32 {
    let high = f32(at & 0xff000000u);
    let middle = f32(at & 0x00fff000u);
    let low = f32(at & 0x00000fffu);
    var sum = vec2<f32>(mf(0u), 0.0);
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
fn weight(at: u32) -> f32 {
    let n = m(0u);
    if (n == 0u) {
        return 1.0;
    }
    let k = min(at, n - at);
    if (k <= n / 4u) {
        let x = sin_small(f32(k) / f32(n) * 3.1415926535897932);
        return mf(1u) + x * x * (mf(2u) + mf(3u) * (x * x));
    }
    let x = sin_small(f32(n - 2u * k) / f32(n) * 1.5707963267948966);
    return 1.0 - x * x * (mf(4u) - mf(3u) * (x * x));
}

// ---- mel
// Words: bands; then two for each edge: its spectral bin, as an integer of at most 2^30 in size, and as a float.
fn bin(edge: u32) -> i32 { return mi(1u + edge * 2u); }

// From one bin to another, exact where both are integers of 30 bits.
fn span(low: i32, low_float: f32, high: i32, high_float: f32) -> f32 {
    if (abs(low) < 1073741824 && abs(high) < 1073741824) {
        return f32(high - low);
    }
    return high_float - low_float;
}

fn between(a: u32, b: u32) -> f32 { return span(bin(a), mf(2u + a * 2u), bin(b), mf(2u + b * 2u)); }

fn filter_at(at: u32) -> f32 {
    let band = at % m(0u);
    let j = i32(at / m(0u));
    let low = bin(band);
    let center = bin(band + 1u);
    let high = bin(band + 2u);
    if (center <= j && j < high) {
        return span(j, f32(j), high, mf(6u + band * 2u)) / between(band + 1u, band + 2u);
    }
    if (low == center) {
        return select(0.0, 1.0, j == center);
    }
    if (low <= j && j <= center) {
        return span(low, mf(2u + band * 2u), j, f32(j)) / between(band, band + 1u);
    }
    return 0.0;
}

// ---- philox
// Word `lane` of a block of Philox4x32-10. Words: 0 and 1 the key.
fn philox(block: u32, lane: u32) -> u32 {
    var c = vec4<u32>(block, 0u, 0u, 0u);
    var k = vec2<u32>(m(0u), m(1u));
    for (var round = 0u; round < 10u; round++) {
        let a = umul64(0xd2511f53u, c.x);
        let b = umul64(0xcd9e8d57u, c.z);
        c = vec4<u32>(b.x ^ c.y ^ k.x, b.y, a.x ^ c.w ^ k.y, a.y);
        k = vec2<u32>(k.x + 0x9e3779b9u, k.y + 0xbb67ae85u);
    }
    let pair = select(c.xy, c.zw, lane >= 2u);
    return select(pair.x, pair.y, (lane & 1u) == 1u);
}

// ---- uniform
// Words: 2 the first end, 3 the width, 4 the other end, 5 the last number before it, 6 zero.
fn compute0(at: u32) -> f32 {
    let share = f32(philox(at / 4u, at % 4u) >> 8u) * 5.9604644775390625e-8;
    // Rounded as every backend does: the word of zero keeps product and sum from becoming one instruction.
    let part = bitcast<f32>(bitcast<u32>(mf(3u) * share) ^ m(6u));
    let sum = mf(2u) + part;
    let y = ROUNDED;
    return select(y, mf(5u), select(y <= mf(4u), y >= mf(4u), mf(3u) > 0.0));
}

// ---- normal
// Words: 2 mean, 3 standard deviation.
fn compute0(at: u32) -> f32 {
    let pair = at & 2u;
    let radius = ksqrt(-2.0 * klog(f32((philox(at / 4u, pair) >> 8u) + 1u) * 5.9604644775390625e-8));
    let turn = (philox(at / 4u, pair + 1u) >> 8u) * 4u;
    let quarter = (turn + 0x800000u) >> 24u;
    let r = f32(i32(turn) - i32(quarter << 24u)) * 9.362675707309822e-8;
    return mf(2u) + mf(3u) * (radius * sin_quarter(Angle(r, quarter), 1u - (at & 1u)));
}
