// Random numbers by Philox4x32-10.

// Word `lane` of a block.
fn philox(key: vec2<u32>, block: u32, lane: u32) -> u32 {
    var c = vec4<u32>(block, 0u, 0u, 0u);
    var k = key;
    for (var round = 0u; round < 10u; round++) {
        let a = umul64(0xd2511f53u, c.x);
        let b = umul64(0xcd9e8d57u, c.z);
        c = vec4<u32>(b.x ^ c.y ^ k.x, b.y, a.x ^ c.w ^ k.y, a.y);
        k = vec2<u32>(k.x + 0x9e3779b9u, k.y + 0xbb67ae85u);
    }
    let pair = select(c.xy, c.zw, lane >= 2u);
    return select(pair.x, pair.y, (lane & 1u) == 1u);
}

struct UniformParams {
    key: u32,
    key_high: u32,
    start: f32,
    width: f32,
    end: f32,
    last: f32,
    zero: u32,
}

fn uniform_params() -> UniformParams {
    return UniformParams(
        word(0u),
        word(1u),
        bitcast<f32>(word(2u)),
        bitcast<f32>(word(3u)),
        bitcast<f32>(word(4u)),
        bitcast<f32>(word(5u)),
        word(6u),
    );
}

fn uniform_number(at: u32) -> f32 {
    let p = uniform_params();
    let share = f32(philox(vec2<u32>(p.key, p.key_high), at / 4u, at % 4u) >> 8u) * 5.9604644775390625e-8;
    // Rounded as every backend does: the word of zero keeps product and sum from becoming one instruction.
    let part = bitcast<f32>(bitcast<u32>(p.width * share) ^ p.zero);
    let y = narrowed(p.start + part);
    return select(y, p.last, select(y <= p.end, y >= p.end, p.width > 0.0));
}

struct NormalParams {
    key: u32,
    key_high: u32,
    mean: f32,
    deviation: f32,
}

fn normal_params() -> NormalParams {
    return NormalParams(
        word(0u),
        word(1u),
        bitcast<f32>(word(2u)),
        bitcast<f32>(word(3u)),
    );
}

fn normal(at: u32) -> f32 {
    let p = normal_params();
    let key = vec2<u32>(p.key, p.key_high);
    let pair = at & 2u;
    let radius = ksqrt(-2.0 * klog(f32((philox(key, at / 4u, pair) >> 8u) + 1u) * 5.9604644775390625e-8));
    let turn = (philox(key, at / 4u, pair + 1u) >> 8u) * 4u;
    let quarter = (turn + 0x800000u) >> 24u;
    let r = f32(i32(turn) - i32(quarter << 24u)) * 9.362675707309822e-8;
    return p.mean + p.deviation * (radius * sin_quarter(Angle(r, quarter), 1u - (at & 1u)));
}

// Stand-ins for what a generated module defines.

fn narrowed(v: f32) -> f32 {
    return v;
}

struct Angle {
    r: f32,
    quadrant: u32,
}

fn sin_quarter(a: Angle, more: u32) -> f32 {
    return a.r;
}

fn umul64(a: u32, b: u32) -> vec2<u32> {
    return vec2<u32>(a, b);
}

fn ksqrt(x: f32) -> f32 {
    return x;
}

fn klog(x: f32) -> f32 {
    return x;
}

fn word(k: u32) -> u32 {
    return k;
}
