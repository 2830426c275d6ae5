// Products of normalized rows, a thread for each element. CENTERED, input 2 has the sums of columns.

struct NormMatmulParams {
    depth: u32,
    columns: u32,
    w_row: u32,
    w_column: u32,
    epsilon: f32,
}

fn norm_matmul_params() -> NormMatmulParams {
    return NormMatmulParams(
        word(0u),
        word(1u),
        word(2u),
        word(3u),
        bitcast<f32>(word(4u)),
    );
}

fn norm_product(at: u32) -> f32 {
    let p = norm_matmul_params();
    let row = at / p.columns;
    let column = at - row * p.columns;
    var product = 0.0;
    var sum = 0.0;
    var squares = 0.0;
    for (var i = 0u; i < p.depth; i++) {
        let x = x0(row * p.depth + i);
        product += x * x1(i * p.w_row + column * p.w_column);
        sum += x;
        squares += x * x;
    }
    var mean = 0.0;
    if (CENTERED) {
        mean = sum / f32(p.depth);
        product -= mean * x2(column);
    }
    return product / sqrt(max(squares / f32(p.depth) - mean * mean, 0.0) + p.epsilon);
}

// Stand-ins for what a generated module defines.

const CENTERED: bool = false;

fn x0(at: u32) -> f32 {
    return 0.0;
}

fn x1(at: u32) -> f32 {
    return 0.0;
}

fn x2(at: u32) -> f32 {
    return 0.0;
}

fn word(k: u32) -> u32 {
    return k;
}
