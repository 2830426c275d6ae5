// Softmax, or its logarithm (LOG): the numbers of a row are its greatest element and the sum of powers.

fn merge(a: f32, b: f32) -> f32 {
    return kmax(a, b);
}

fn neutral() -> f32 {
    return cf(0xff800000u);
}

fn first(at: u32, row: u32) -> f32 {
    return x0(at);
}

fn second(at: u32, row: u32, top: f32) -> f32 {
    return kexp(x0(at) - top);
}

fn number(merged: f32) -> f32 {
    return merged;
}

fn result(at: u32, row: u32, top: f32, sum: f32) -> f32 {
    if (LOG) {
        return (x0(at) - top) - klog(sum);
    }
    return kexp(x0(at) - top) / sum;
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
