// Fourier transforms by their definition. Complex numbers are pairs. A launch sums over elements lo() .. hi() and starts from
// what the launches before found.

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

struct DftParams {
    length: u32,
    counted: u32,
    given: u32,
    made: u32,
    inner: u32,
    parts: u32,
}

fn dft_params() -> DftParams {
    return DftParams(
        word(0u),
        word(1u),
        word(2u),
        word(3u),
        word(4u),
        word(5u),
    );
}

fn dft_sum(at: u32) -> f32 {
    let p = dft_params();
    let pair = at / 2u;
    let low = pair % p.inner;
    let bin = pair / p.inner % p.made;
    let outer = pair / p.inner / p.made;
    let imaginary = at % 2u == 1u;
    var sum = resume(at, 0.0);
    for (var t = lo(); t < hi(); t++) {
        let place = ((outer * p.given + t) * p.inner + low) * p.parts;
        var u = unit(mul_mod(bin, t, p.length), p.length);
        u.y = u.y * select(-1.0, 1.0, INVERSE);
        let a = x0(place);
        let b = select(0.0, x0(place + p.parts - 1u), p.parts == 2u);
        sum += select(a * u.x - b * u.y, a * u.y + b * u.x, imaginary);
    }
    return sum;
}

fn dft(at: u32) -> f32 {
    let r = dft_sum(at);
    if (INVERSE) {
        return r / f32(dft_params().length);
    }
    return r;
}

// x has two parts, the result one: the signal of which x has the transform's first half.
fn dft_real_sum(at: u32) -> f32 {
    let p = dft_params();
    let low = at % p.inner;
    let t = at / p.inner % p.made;
    let outer = at / p.inner / p.made;
    var sum = resume(at, 0.0);
    for (var bin = lo(); bin < hi(); bin++) {
        let place = ((outer * p.given + bin) * p.inner + low) * 2u;
        let u = unit(mul_mod(bin, t, p.length), p.length);
        // All but the first and the middle one have a conjugate in the second half.
        let twice = bin > 0u && 2u * bin != p.length;
        let r = x0(place) * u.x - select(0.0, x0(place + 1u), twice) * u.y;
        sum += select(r, r + r, twice);
    }
    return sum;
}

fn dft_real(at: u32) -> f32 {
    return dft_real_sum(at) / f32(dft_params().length);
}

struct StftParams {
    length: u32,
    signal: u32,
    bins: u32,
    frames: u32,
    parts: u32,
    step: u32,
    window: u32,
}

fn stft_params() -> StftParams {
    return StftParams(
        word(0u),
        word(1u),
        word(2u),
        word(3u),
        word(4u),
        word(5u),
        word(6u),
    );
}

fn stft_sum(at: u32) -> f32 {
    let p = stft_params();
    let bin = at / 2u % p.bins;
    let frame = at / 2u / p.bins % p.frames;
    let image = at / 2u / p.bins / p.frames;
    let imaginary = at % 2u == 1u;
    var sum = resume(at, 0.0);
    let begin = frame * p.step;
    for (var t = lo(); t < hi() && begin + t < p.signal; t++) {
        let place = (image * p.signal + begin + t) * p.parts;
        var u = unit(mul_mod(bin, t, p.length), p.length);
        u.y = -u.y;
        u = u * weight(t, p.window);
        let a = x0(place);
        let b = select(0.0, x0(place + p.parts - 1u), p.parts == 2u);
        sum += select(a * u.x - b * u.y, a * u.y + b * u.x, imaginary);
    }
    return sum;
}

fn stft(at: u32) -> f32 {
    return stft_sum(at);
}

// Stand-ins for what a generated module defines.

const INVERSE: bool = false;

fn weight(t: u32, n: u32) -> f32 {
    return 1.0;
}

fn x0(at: u32) -> f32 {
    return 0.0;
}

fn resume(at: u32, start: f32) -> f32 {
    return start;
}

fn sin_small(r: f32) -> f32 {
    return r;
}

fn cos_small(r: f32) -> f32 {
    return r;
}

fn word(k: u32) -> u32 {
    return k;
}

fn lo() -> u32 {
    return 0u;
}

fn hi() -> u32 {
    return 1u;
}
