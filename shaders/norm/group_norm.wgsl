// Normalization of groups of channels: the numbers of a group are its mean and the sum of squared differences from it. Channels
// are second, or last with CHANNELS_LAST.

struct GroupNormParams {
    count: u32,
    epsilon: f32,
    inner: u32,
    channels: u32,
}

fn group_norm_params() -> GroupNormParams {
    return GroupNormParams(
        word(0u),
        bitcast<f32>(word(1u)),
        word(2u),
        word(3u),
    );
}

fn row_length() -> u32 {
    return group_norm_params().count;
}

fn are_neighbours() -> bool {
    return !CHANNELS_LAST;
}

fn row_start(group: u32) -> u32 {
    let p = group_norm_params();
    if (!CHANNELS_LAST) {
        return group * p.count;
    }
    let width = p.count / p.inner;
    let groups = p.channels / width;
    return group / groups * p.inner * p.channels + group % groups * width;
}

fn element(base: u32, i: u32) -> u32 {
    let p = group_norm_params();
    if (!CHANNELS_LAST) {
        return base + i;
    }
    let width = p.count / p.inner;
    return base + i / width * p.channels + i % width;
}

fn row_at(at: u32) -> u32 {
    let p = group_norm_params();
    if (!CHANNELS_LAST) {
        return at / p.count;
    }
    let width = p.count / p.inner;
    return at / (p.inner * p.channels) * (p.channels / width) + at % p.channels / width;
}

fn channel(at: u32) -> u32 {
    let p = group_norm_params();
    if (CHANNELS_LAST) {
        return at % p.channels;
    }
    return at / p.inner % p.channels;
}

fn merge(a: f32, b: f32) -> f32 {
    return a + b;
}

fn neutral() -> f32 {
    return 0.0;
}

fn first(at: u32, group: u32) -> f32 {
    return x0(at);
}

fn first_of(x: f32) -> f32 {
    return x;
}

fn second(at: u32, group: u32, mean: f32) -> f32 {
    return second_of(x0(at), mean);
}

fn second_of(x: f32, mean: f32) -> f32 {
    return (x - mean) * (x - mean);
}

fn number(merged: f32) -> f32 {
    return merged / f32(row_length());
}

fn result(at: u32, group: u32, mean: f32, squares: f32) -> f32 {
    let p = group_norm_params();
    let c = channel(at);
    return (x0(at) - mean) / sqrt(squares / f32(p.count) + p.epsilon) * x1(c) + x2(c);
}

fn results_of(at: u32, x: vec4<f32>, mean: f32, squares: f32) -> vec4<f32> {
    let p = group_norm_params();
    let y = (x - vec4<f32>(mean)) / sqrt(squares / f32(p.count) + p.epsilon);
    let c = channel(at);
    if (p.inner % 4u == 0u) {
        return y * x1(c) + vec4<f32>(x2(c));
    }
    let d = vec3<u32>(channel(at + 1u), channel(at + 2u), channel(at + 3u));
    return y * vec4<f32>(x1(c), x1(d.x), x1(d.y), x1(d.z)) + vec4<f32>(x2(c), x2(d.x), x2(d.y), x2(d.z));
}

fn statistics(group: u32, mean: f32, squares: f32) {
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

fn x2(at: u32) -> f32 {
    return 0.0;
}

const CHANNELS_LAST: bool = false;
