// Samples at the places of a grid. NEAREST, CUBIC (linear else) say how elements are combined; BORDER, REFLECTION (zeros else) what
// is beyond the border; ALIGN, whether -1 and 1 are the centres of the outermost elements.

struct GridSampleParams {
    rank: u32,
    depth: u32,
    height: u32,
    width: u32,
    points: u32,
    channels: u32,
}

fn grid_sample_params() -> GridSampleParams {
    return GridSampleParams(
        word(0u),
        word(1u),
        word(2u),
        word(3u),
        word(4u),
        word(5u),
    );
}

fn border_low() -> f32 {
    return select(-0.5, 0.0, ALIGN);
}

fn border_high(size: i32) -> f32 {
    return f32(size) - select(0.5, 1.0, ALIGN);
}

fn reflect_at(x: f32, low: f32, high: f32) -> f32 {
    let range = high - low;
    if (range <= 0.0 || is_nan(x) || is_inf(x)) {
        return low;
    }
    if (x >= low && x <= high) {
        return x;
    }
    let below = x < low;
    let beyond = select(x - high, low - x, below);
    let times = trunc(beyond / range);
    let rest = beyond - times * range;
    let even = fract(times * 0.5) == 0.0;
    return select(select(low + rest, high - rest, even), select(high - rest, low + rest, even), below);
}

fn bring_inside(x: f32, size: i32) -> f32 {
    let low = border_low();
    let high = border_high(size);
    if (x >= low && x <= high) {
        return x;
    }
    if (REFLECTION) {
        return reflect_at(x, low, high);
    }
    if (BORDER && CUBIC) {
        // Every tap is brought inside by itself.
        return clamp(x, -2.0, f32(size) + 1.0);
    }
    if (BORDER) {
        return clamp(x, 0.0, max(f32(size) - 1.0, 0.0));
    }
    return x;
}

// The element that an index reads; -1 for zero.
fn element_of(i: i32, size: i32) -> i32 {
    if (i >= 0 && i < size) {
        return i;
    }
    var found = i;
    if (REFLECTION) {
        found = f_to_i32(reflect_at(f32(i), border_low(), border_high(size)));
    }
    if (REFLECTION || BORDER) {
        return select(clamp(found, 0, size - 1), -1, size == 0);
    }
    return -1;
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

fn tap_weight(part: f32, tap: i32) -> f32 {
    if (NEAREST) {
        return 1.0;
    }
    if (CUBIC) {
        return cubic_kernel(f32(tap) - part);
    }
    return select(1.0 - part, part, tap == 1);
}

fn grid_sample(at: u32) -> f32 {
    let p = grid_sample_params();
    let n_taps = select(select(2u, 4u, CUBIC), 1u, NEAREST);
    let point = at % p.points;
    let plane = at / p.points;
    let image = plane / p.channels;
    var sizes = array<i32, 3>(i32(p.depth), i32(p.height), i32(p.width));
    var first_tap: array<i32, 3>;
    var part: array<f32, 3>;
    for (var d = 0u; d < 3u; d++) {
        if (d + p.rank >= 3u) {
            let size = sizes[d];
            var n = x1((image * p.points + point) * p.rank + 2u - d);
            if (is_nan(n)) {
                n = -1.0;
            }
            var x = ((n + 1.0) * f32(size) - 1.0) / 2.0;
            if (ALIGN) {
                x = (n + 1.0) / 2.0 * (f32(size) - 1.0);
            }
            x = bring_inside(select(x, nearest(x), NEAREST), size);
            let f = select(floor(x), nearest(x), NEAREST);
            first_tap[d] = f_to_i32(f);
            part[d] = x - f;
        }
    }
    let volume = sizes[0] * sizes[1] * sizes[2];
    var sum = 0.0;
    var combinations = n_taps;
    if (p.rank > 1u) {
        combinations *= n_taps;
    }
    if (p.rank > 2u) {
        combinations *= n_taps;
    }
    for (var c = 0u; c < combinations; c++) {
        var which = c;
        var source = 0;
        var weight = 1.0;
        var ok = true;
        for (var d = 3u - p.rank; d < 3u; d++) {
            let tap = i32(which % n_taps) - select(0, 1, CUBIC);
            which = which / n_taps;
            let i = element_of(first_tap[d] + tap, sizes[d]);
            ok = ok && i >= 0;
            source = source * sizes[d] + i;
            weight *= tap_weight(part[d], tap);
        }
        if (ok) {
            sum += weight * x0(plane * u32(volume) + u32(source));
        }
    }
    return sum;
}

// Stand-ins for what a generated module defines.

fn word(k: u32) -> u32 {
    return k;
}

fn x0(at: u32) -> f32 {
    return 0.0;
}

fn x1(at: u32) -> f32 {
    return 0.0;
}

fn is_nan(x: f32) -> bool {
    return x != x;
}

fn is_inf(x: f32) -> bool {
    return abs(x) > 3.4e38;
}

fn nearest(x: f32) -> f32 {
    return round(x);
}

fn f_to_i32(x: f32) -> i32 {
    return i32(x);
}

const NEAREST: bool = false;
const CUBIC: bool = true;
const BORDER: bool = true;
const REFLECTION: bool = false;
const ALIGN: bool = false;
