// Sampling between elements.

// ---- resize
// Words: rank, then for each dimension: size of the result, of x, stride of x, most taps, where its table starts. A
// table has for every index of the result so many (index, weight); index 0xffffffff says that it lies outside.
// Word 1 is the value outside.
fn total(at: u32) -> f32 {
    let rank = m(0u);
    var sum = resume(at, 0.0);
    for (var k = lo(); k < hi(); k++) {
        var rest = at;
        var which = k;
        var src = 0u;
        var weight = 1.0;
        for (var d = rank; d > 0u; d--) {
            let base = 2u + (d - 1u) * 5u;
            let n = m(base);
            let taps = m(base + 3u);
            let o = rest % n;
            rest = rest / n;
            let tap = m(base + 4u) + (o * taps + which % taps) * 2u;
            which = which / taps;
            src += m(tap) * m(base + 2u);
            weight *= mf(tap + 1u);
        }
        if (weight != 0.0) {
            sum += weight * f32(x0(src));
        }
    }
    return sum;
}

// Does element `at` lie outside of x? The first tap of some dimension says so.
fn outside(at: u32) -> bool {
    var rest = at;
    for (var d = m(0u); d > 0u; d--) {
        let base = 2u + (d - 1u) * 5u;
        let o = rest % m(base);
        rest = rest / m(base);
        if (m(m(base + 4u) + o * m(base + 3u) * 2u) == 0xffffffffu) {
            return true;
        }
    }
    return false;
}

fn compute0(at: u32) -> REG {
    if (outside(at)) {
        return OUTSIDE;
    }
    let sum = total(at);
    return RESULT;
}

// ---- grid
// Coordinates and indices under paddings.
fn border_low() -> f32 {
    return select(-0.5, 0.0, ALIGN);
}

fn border_high(size: i32) -> f32 {
    return f32(size) - select(0.5, 1.0, ALIGN);
}

fn reflect_at(x: f32, lo: f32, hi: f32) -> f32 {
    let range = hi - lo;
    if (range <= 0.0 || is_nan(x) || is_inf(x)) {
        return lo;
    }
    if (x >= lo && x <= hi) {
        return x;
    }
    let below = x < lo;
    let beyond = select(x - hi, lo - x, below);
    let times = trunc(beyond / range);
    let rest = beyond - times * range;
    let even = fract(times * 0.5) == 0.0;
    return select(select(lo + rest, hi - rest, even), select(hi - rest, lo + rest, even), below);
}

fn bring_inside(x: f32, size: i32) -> f32 {
    let lo = border_low();
    let hi = border_high(size);
    if (x >= lo && x <= hi) {
        return x;
    }
    INSIDE
}

// The element that an index reads; -1 for zero.
fn element_of(i: i32, size: i32) -> i32 {
    if (i >= 0 && i < size) {
        return i;
    }
    ELEMENT
}

fn cubic_kernel(v: f32) -> f32 {
    let x = abs(v);
    let a = -0.75;
    if (x <= 1.0) {
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
    }
    if (x < 2.0) {
        return ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a;
    }
    return 0.0;
}

// ---- grid_sample
// Words: rank, sizes of x (three, led by 1), points of the grid, channels.
fn compute0(at: u32) -> f32 {
    let rank = m(0u);
    let points = m(4u);
    let point = at % points;
    let plane = at / points;
    let image = plane / m(5u);
    var first: array<i32, 3>;
    var part: array<f32, 3>;
    for (var d = 0u; d < 3u; d++) {
        if (d + rank >= 3u) {
            let size = mi(1u + d);
            var n = x1((image * points + point) * rank + 2u - d);
            if (is_nan(n)) {
                n = -1.0;
            }
            var x = ((n + 1.0) * f32(size) - 1.0) / 2.0;
            if (ALIGN) {
                x = (n + 1.0) / 2.0 * (f32(size) - 1.0);
            }
            x = bring_inside(ROUNDED, size);
            let f = FLOOR;
            first[d] = f_to_i32(f);
            part[d] = x - f;
        }
    }
    let volume = mi(1u) * mi(2u) * mi(3u);
    var sum = 0.0;
    var combinations = TAPSu;
    if (rank > 1u) {
        combinations *= TAPSu;
    }
    if (rank > 2u) {
        combinations *= TAPSu;
    }
    for (var k = 0u; k < combinations; k++) {
        var which = k;
        var src = 0;
        var weight = 1.0;
        var ok = true;
        for (var d = 3u - rank; d < 3u; d++) {
            let tap = i32(which % TAPSu) - BEFORE;
            which = which / TAPSu;
            let size = mi(1u + d);
            let i = element_of(first[d] + tap, size);
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
fn coordinate(d: u32, i: u32) -> f32 {
    let n = m(1u + d);
    if (ALIGN) {
        return select(2.0 * f32(i) / f32(n - 1u) - 1.0, -1.0, n <= 1u);
    }
    return f32(2u * i + 1u) / f32(n) - 1.0;
}

fn compute0(at: u32) -> f32 {
    let r = m(0u);
    let row = at % r;
    var rest = at / r;
    var place: array<u32, 3>;
    for (var d = r; d > 0u; d--) {
        place[d - 1u] = rest % m(d);
        rest = rest / m(d);
    }
    let matrix = (rest * r + row) * (r + 1u);
    var sum = x0(matrix + r);
    for (var k = 0u; k < r; k++) {
        sum += x0(matrix + k) * coordinate(r - 1u - k, place[r - 1u - k]);
    }
    return sum;
}

// ---- roi_align
// Words: images, channels, height, width, output height, output width, samples, scale.
struct Bins {
    start: f32,
    size: f32,
    samples: i32,
}

fn bins(low: f32, high: f32, n: u32) -> Bins {
    let shift = select(0.0, 0.5, HALF);
    let start = low * mf(7u) - shift;
    var length = high * mf(7u) - shift - start;
    if (!HALF) {
        length = max(length, 1.0);
    }
    let size = length / f32(n);
    var samples = mi(6u);
    if (samples <= 0) {
        samples = clamp(f_to_i32(ceil(size)), 0, 1024);
    }
    return Bins(start, size, samples);
}

fn sample_at(b: Bins, bin: u32, i: i32) -> f32 {
    return b.start + f32(bin) * b.size + (f32(i) + 0.5) * b.size / f32(b.samples);
}

// The two elements around a coordinate and the weight of the second; the first is -1 outside.
struct Around {
    low: i32,
    high: i32,
    part: f32,
}

fn around(v: f32, size: u32) -> Around {
    if (is_nan(v) || v < -1.0 || v > f32(size) || size == 0u) {
        return Around(-1, -1, 0.0);
    }
    let x = max(v, 0.0);
    let low = i32(x);
    let last = i32(size) - 1;
    if (low >= last) {
        return Around(last, last, 0.0);
    }
    return Around(low, low + 1, x - f32(low));
}

// Goes over samples lo() .. hi() of a bin.
fn total(at: u32) -> f32 {
    let ox = at % m(5u);
    let oy = at / m(5u) % m(4u);
    let c = at / m(5u) / m(4u) % m(1u);
    let region = at / m(5u) / m(4u) / m(1u);
    let image = near2(region);
    if (image < 0 || image >= mi(0u)) {
        return 0.0;
    }
    let rows = bins(x1(region * 4u + 1u), x1(region * 4u + 3u), m(4u));
    let columns = bins(x1(region * 4u), x1(region * 4u + 2u), m(5u));
    let plane = (u32(image) * m(1u) + c) * m(2u) * m(3u);
    let width = mi(3u);
    let count = max(rows.samples, 0) * max(columns.samples, 0);
    var acc = resume(at, START);
    for (var k = i32(lo()); k < min(count, i32(hi())); k++) {
        let v = around(sample_at(rows, oy, k / columns.samples), m(2u));
        let h = around(sample_at(columns, ox, k % columns.samples), m(3u));
        var sum = 0.0;
        var most = 0.0;
        if (v.low >= 0 && h.low >= 0) {
            let a = (1.0 - v.part) * (1.0 - h.part) * x0(plane + u32(v.low * width + h.low));
            let b = (1.0 - v.part) * h.part * x0(plane + u32(v.low * width + h.high));
            let e = v.part * (1.0 - h.part) * x0(plane + u32(v.high * width + h.low));
            let f = v.part * h.part * x0(plane + u32(v.high * width + h.high));
            sum = a + b + e + f;
            most = max(max(a, b), max(e, f));
        }
        acc = STEP;
    }
    // The last launch ends beyond all samples.
    if (hi() < MOST_SAMPLES) {
        return acc;
    }
    return select(LAST, 0.0, count <= 0);
}

fn compute0(at: u32) -> f32 {
    return total(at);
}
