// Fourier transforms by their definition. Complex numbers are pairs.

// ---- fourier
// e^(i 2 pi k / n) for k < n.
fn unit(k: u32, n: u32) -> vec2<f32> {
    // Within an eighth of a turn, so that the angle is accurate.
    let q = (k * 8u + n) / (n * 2u);
    let r = f32(i32(k * 4u) - i32(q * n)) / f32(n) * 1.5707963267948966;
    let s = sin_small(r);
    let c = cos_small(r);
    switch (q & 3u) {
        case 0u: { return vec2<f32>(c, s); }
        case 1u: { return vec2<f32>(-s, c); }
        case 2u: { return vec2<f32>(-c, -s); }
        default: { return vec2<f32>(s, -c); }
    }
}

// k t mod n for k, t < n.
fn mul_mod(k: u32, t: u32, n: u32) -> u32 {
    if (n <= 65536u) {
        return k * t % n;
    }
    var r = 0u;
    var a = k;
    for (var b = t; b > 0u; b = b >> 1u) {
        if ((b & 1u) == 1u) {
            r = (r + a) % n;
        }
        a = (a + a) % n;
    }
    return r;
}

// ---- dft
// Words: length, elements of the axis in x that count, in x, in the result, inner elements (pairs), parts of x.
fn total(at: u32) -> f32 {
    let n = m(0u);
    let inner = m(4u);
    let pair = at / 2u;
    let low = pair % inner;
    let k = pair / inner % m(3u);
    let outer = pair / inner / m(3u);
    let imaginary = at % 2u == 1u;
    var sum = resume(at, 0.0);
    for (var t = lo(); t < hi(); t++) {
        let src = ((outer * m(2u) + t) * inner + low) * m(5u);
        var u = unit(mul_mod(k, t, n), n);
        u.y = u.y * SIGN;
        let a = x0(src);
        let b = select(0.0, x0(src + m(5u) - 1u), m(5u) == 2u);
        sum += select(a * u.x - b * u.y, a * u.y + b * u.x, imaginary);
    }
    return sum;
}

fn compute0(at: u32) -> f32 {
    let n = m(0u);
    let r = total(at);
    return SCALED;
}

// ---- dft_real
// Words as for dft. x has two parts, the result one: the signal of which x has the transform's first half.
fn total(at: u32) -> f32 {
    let n = m(0u);
    let inner = m(4u);
    let low = at % inner;
    let t = at / inner % m(3u);
    let outer = at / inner / m(3u);
    var sum = resume(at, 0.0);
    for (var k = lo(); k < hi(); k++) {
        let src = ((outer * m(2u) + k) * inner + low) * 2u;
        let u = unit(mul_mod(k, t, n), n);
        // All but the first and the middle one have a conjugate in the second half.
        let twice = k > 0u && 2u * k != n;
        let r = x0(src) * u.x - select(0.0, x0(src + 1u), twice) * u.y;
        sum += select(r, r + r, twice);
    }
    return sum;
}

fn compute0(at: u32) -> f32 {
    return total(at) / f32(m(0u));
}

// ---- stft
// Words: length, elements of a frame that count, of the signal, bins, frames, parts, step, elements of the window.
fn total(at: u32) -> f32 {
    let n = m(0u);
    let k = at / 2u % m(3u);
    let frame = at / 2u / m(3u) % m(4u);
    let image = at / 2u / m(3u) / m(4u);
    let imaginary = at % 2u == 1u;
    var sum = resume(at, 0.0);
    let begin = frame * m(6u);
    for (var t = lo(); t < hi() && begin + t < m(2u); t++) {
        let src = (image * m(2u) + begin + t) * m(5u);
        var u = unit(mul_mod(k, t, n), n);
        u.y = -u.y;
        u = u * WINDOW;
        let a = x0(src);
        let b = select(0.0, x0(src + m(5u) - 1u), m(5u) == 2u);
        sum += select(a * u.x - b * u.y, a * u.y + b * u.x, imaginary);
    }
    return sum;
}

fn compute0(at: u32) -> f32 {
    return total(at);
}
