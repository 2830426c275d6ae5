// Numbers at equal distances.

struct RangeParams {
    start: u32,
    step: u32,
}

fn range_params() -> RangeParams {
    return RangeParams(
        word(0u),
        word(1u),
    );
}

// In 32 bits the lower ones of any product and sum are right.
fn range_narrow(at: u32) -> i32 {
    let p = range_params();
    return narrowed(bitcast<i32>(p.start + at * p.step));
}

struct WideRangeParams {
    start: i64,
    step: i64,
}

fn wide_range_params() -> WideRangeParams {
    return WideRangeParams(
        ci64(word(1u), word(0u)),
        ci64(word(3u), word(2u)),
    );
}

fn range_wide(at: u32) -> i64 {
    let p = wide_range_params();
    return p.start + i64(at) * p.step;
}

struct FloatRangeParams {
    start: f32,
    upper: f32,
    lower: f32,
    scale: f32,
    scale_again: f32,
}

fn float_range_params() -> FloatRangeParams {
    return FloatRangeParams(
        bitcast<f32>(word(0u)),
        bitcast<f32>(word(1u)),
        bitcast<f32>(word(2u)),
        bitcast<f32>(word(3u)),
        bitcast<f32>(word(4u)),
    );
}

// The sum of two numbers and what its rounding lost.
fn add_up(sum: vec2<f32>, x: f32) -> vec2<f32> {
    let s = sum.x + x;
    let b = s - sum.x;
    return vec2<f32>(s, sum.y + ((sum.x - (s - b)) + (x - b)));
}

// All products are exact: factors have 12 bits.
fn range_float(at: u32) -> f32 {
    let p = float_range_params();
    let high = f32(at & 0xff000000u);
    let middle = f32(at & 0x00fff000u);
    let low = f32(at & 0x00000fffu);
    var sum = vec2<f32>(p.start, 0.0);
    sum = add_up(sum, high * p.upper);
    sum = add_up(sum, high * p.lower);
    sum = add_up(sum, middle * p.upper);
    sum = add_up(sum, middle * p.lower);
    sum = add_up(sum, low * p.upper);
    sum = add_up(sum, low * p.lower);
    return (sum.x + sum.y) * p.scale * p.scale_again;
}

// Stand-ins for what a generated module defines.

fn narrowed(v: i32) -> i32 {
    return v;
}

fn word(k: u32) -> u32 {
    return k;
}

fn ci64(high: u32, low: u32) -> i64 {
    return i64(low);
}
