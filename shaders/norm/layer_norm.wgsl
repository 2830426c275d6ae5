// Layer normalization: the numbers of a row are its mean and the sum of squared differences from it. With STATISTICS, outputs 1
// and 2 are the means and the reciprocals of the deviations.

fn merge(a: f32, b: f32) -> f32 {
    return a + b;
}

fn neutral() -> f32 {
    return 0.0;
}

fn first(at: u32, row: u32) -> f32 {
    return x0(at);
}

fn first_of(x: f32) -> f32 {
    return x;
}

fn second(at: u32, row: u32, mean: f32) -> f32 {
    return second_of(x0(at), mean);
}

fn second_of(x: f32, mean: f32) -> f32 {
    return (x - mean) * (x - mean);
}

fn number(merged: f32) -> f32 {
    return merged / f32(row_length());
}

fn inverse_deviation(squares: f32) -> f32 {
    let p = norm_params();
    return 1.0 / sqrt(squares / f32(p.count) + p.epsilon);
}

fn result(at: u32, row: u32, mean: f32, squares: f32) -> f32 {
    return affine(at, (x0(at) - mean) * inverse_deviation(squares));
}

fn results_of(at: u32, x: vec4<f32>, mean: f32, squares: f32) -> vec4<f32> {
    return affine_four(at, (x - vec4<f32>(mean)) * inverse_deviation(squares));
}

fn statistics(row: u32, mean: f32, squares: f32) {
    if (STATISTICS) {
        emit1(row, mean);
        emit2(row, inverse_deviation(squares));
    }
}

// Stand-ins for what a generated module defines.

fn x0(at: u32) -> f32 {
    return 0.0;
}

fn emit1(at: u32, v: f32) {
}

fn emit2(at: u32, v: f32) {
}

const STATISTICS: bool = false;

struct Norm {
    count: u32,
    epsilon: f32,
}

fn norm_params() -> Norm {
    return Norm(1u, 1.0);
}

fn row_length() -> u32 {
    return 1u;
}

fn affine(at: u32, normed: f32) -> f32 {
    return normed;
}

fn affine_four(at: u32, normed: vec4<f32>) -> vec4<f32> {
    return normed;
}
