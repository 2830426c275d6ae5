// Softmax over the first elements of each row, as many as input 1 says; the rest becomes 0.

struct RaggedSoftmaxParams {
    count: u32,
}

fn ragged_softmax_params() -> RaggedSoftmaxParams {
    return RaggedSoftmaxParams(
        word(0u),
    );
}

fn row_length() -> u32 {
    return ragged_softmax_params().count;
}

// Does element `at` of a row count?
fn counts(at: u32, row: u32) -> bool {
    return i32(at % row_length()) < near1(row);
}

fn merge(a: f32, b: f32) -> f32 {
    return kmax(a, b);
}

fn neutral() -> f32 {
    return cf(0xff800000u);
}

fn first(at: u32, row: u32) -> f32 {
    return select(cf(0xff800000u), x0(at), counts(at, row));
}

fn second(at: u32, row: u32, top: f32) -> f32 {
    return select(0.0, kexp(x0(at) - top), counts(at, row));
}

fn number(merged: f32) -> f32 {
    return merged;
}

fn result(at: u32, row: u32, top: f32, sum: f32) -> f32 {
    return select(0.0, kexp(x0(at) - top) / sum, counts(at, row));
}

fn statistics(row: u32, top: f32, sum: f32) {
}

// Stand-ins for what a generated module defines.

fn word(k: u32) -> u32 {
    return k;
}

fn x0(at: u32) -> f32 {
    return 0.0;
}

fn near1(at: u32) -> i32 {
    return 0;
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
