// Softmax, or its logarithm (LOG): the numbers of a row are its greatest element and the sum of powers.

fn merge(a: f32, b: f32) -> f32 {
    return kmax(a, b);
}

fn neutral() -> f32 {
    return cf(0xff800000u);
}

// e^x for x <= 0 or NaN; with NEAR by the device's own function, whose error is far below a unit of f16.
fn power(x: f32) -> f32 {
    if (NEAR) {
        return select(exp2(max(x, -200.0) * 1.442695), x, is_nan(x));
    }
    return kexp(x);
}

fn first(at: u32, row: u32) -> f32 {
    return x0(at);
}

fn first_of(x: f32) -> f32 {
    return x;
}

fn second(at: u32, row: u32, top: f32) -> f32 {
    return power(x0(at) - top);
}

fn second_of(x: f32, top: f32) -> f32 {
    return power(x - top);
}

fn number(merged: f32) -> f32 {
    return merged;
}

fn result(at: u32, row: u32, top: f32, sum: f32) -> f32 {
    if (LOG) {
        return (x0(at) - top) - klog(sum);
    }
    return power(x0(at) - top) / sum;
}

fn results_of(at: u32, x: vec4<f32>, top: f32, sum: f32) -> vec4<f32> {
    let y = x - vec4<f32>(top);
    if (LOG) {
        return y - vec4<f32>(klog(sum));
    }
    return vec4<f32>(power(y.x), power(y.y), power(y.z), power(y.w)) / sum;
}

fn statistics(row: u32, top: f32, sum: f32) {
}

// Stand-ins for what a generated module defines.

fn x0(at: u32) -> f32 {
    return 0.0;
}

fn cf(bits: u32) -> f32 {
    return bitcast<f32>(bits);
}

fn kmax(a: f32, b: f32) -> f32 {
    return max(a, b);
}

fn kexp(x: f32) -> f32 {
    return exp(x);
}

fn klog(x: f32) -> f32 {
    return log(x);
}

const LOG: bool = false;
const NEAR: bool = false;

fn is_nan(x: f32) -> bool {
    return false;
}
