// Gated products, a thread for each element: a column of gates and the one of values that belongs to it, SIDE columns later.
// HAS_BIAS, input 2 has a term for each column; CENTERED, input 3 has the sums of columns.

struct GatedMatmulParams {
    depth: u32,
    columns: u32,
    w_row: u32,
    w_column: u32,
    epsilon: f32,
}

fn gated_matmul_params() -> GatedMatmulParams {
    return GatedMatmulParams(
        word(0u),
        word(1u),
        word(2u),
        word(3u),
        bitcast<f32>(word(4u)),
    );
}

fn gated_product(at: u32) -> f32 {
    let p = gated_matmul_params();
    let row = at / p.columns;
    let column = at - row * p.columns;
    let first = column / SIDE * (2u * SIDE) + column % SIDE;
    var gate = 0.0;
    var value = 0.0;
    var sum = 0.0;
    var squares = 0.0;
    for (var i = 0u; i < p.depth; i++) {
        let x = x0(row * p.depth + i);
        gate += x * x1(i * p.w_row + first * p.w_column);
        value += x * x1(i * p.w_row + (first + SIDE) * p.w_column);
        sum += x;
        squares += x * x;
    }
    if (NORMALIZED) {
        var mean = 0.0;
        if (CENTERED) {
            mean = sum / f32(p.depth);
            gate -= mean * x3(first);
            value -= mean * x3(first + SIDE);
        }
        let factor = 1.0 / sqrt(max(squares / f32(p.depth) - mean * mean, 0.0) + p.epsilon);
        gate *= factor;
        value *= factor;
    }
    if (HAS_BIAS) {
        gate += x2(first);
        value += x2(first + SIDE);
    }
    return gate_of(gate) * value_of(value);
}

// Stand-ins for what a generated module defines.

const SIDE: u32 = 32u;
const HAS_BIAS: bool = false;
const NORMALIZED: bool = false;
const CENTERED: bool = false;

fn gate_of(v: f32) -> f32 {
    return v;
}

fn value_of(v: f32) -> f32 {
    return v;
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

fn x3(at: u32) -> f32 {
    return 0.0;
}

fn word(k: u32) -> u32 {
    return k;
}
