// Parameters of norms over the last axes, and what follows a norm: scale (input 1) and bias (input 2), spread over the input.

struct NormParams {
    count: u32,
    epsilon: f32,
    dims: List,
    scale_strides: List,
    bias_strides: List,
}

fn norm_params() -> NormParams {
    return NormParams(
        word(0u),
        bitcast<f32>(word(1u)),
        List(word(2u), word(3u)),
        List(word(4u), word(5u)),
        List(word(6u), word(7u)),
    );
}

fn row_length() -> u32 {
    return norm_params().count;
}

fn affine(at: u32, normed: f32) -> f32 {
    let p = norm_params();
    var y = normed;
    if (HAS_SCALE) {
        y = y * x1(strided(p.dims, p.scale_strides, at));
    }
    if (HAS_BIAS) {
        y = y + x2(strided(p.dims, p.bias_strides, at));
    }
    return y;
}

// Four neighbours, the first one at a multiple of four.
fn affine_four(at: u32, normed: vec4<f32>) -> vec4<f32> {
    let p = norm_params();
    let last = p.dims.count - 1u;
    if (item(p.dims, last) % 4u != 0u) {
        return vec4<f32>(
            affine(at, normed.x),
            affine(at + 1u, normed.y),
            affine(at + 2u, normed.z),
            affine(at + 3u, normed.w),
        );
    }
    var y = normed;
    if (HAS_SCALE) {
        y = y * fx1(strided(p.dims, p.scale_strides, at), item(p.scale_strides, last));
    }
    if (HAS_BIAS) {
        y = y + fx2(strided(p.dims, p.bias_strides, at), item(p.bias_strides, last));
    }
    return y;
}

// Stand-ins for what a generated module defines.

struct List {
    first: u32,
    count: u32,
}

fn word(k: u32) -> u32 {
    return k;
}

fn strided(dims: List, strides: List, at: u32) -> u32 {
    return at;
}

fn x1(at: u32) -> f32 {
    return 0.0;
}

fn x2(at: u32) -> f32 {
    return 0.0;
}

const HAS_SCALE: bool = true;
const HAS_BIAS: bool = true;

fn item(list: List, i: u32) -> u32 {
    return list.first + i;
}

fn fx1(at: u32, step: u32) -> vec4<f32> {
    return vec4<f32>();
}

fn fx2(at: u32, step: u32) -> vec4<f32> {
    return vec4<f32>();
}
