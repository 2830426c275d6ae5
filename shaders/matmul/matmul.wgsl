// Products of matrices, one thread an element. A launch sums over lo() .. hi() of k.

struct MatmulParams {
    m: u32,
    n: u32,
    k: u32,
    a_row: u32,
    a_column: u32,
    b_row: u32,
    b_column: u32,
    batch: List,
    a_batch: List,
    b_batch: List,
}

fn matmul_params() -> MatmulParams {
    return MatmulParams(
        word(0u),
        word(1u),
        word(2u),
        word(3u),
        word(4u),
        word(5u),
        word(6u),
        List(word(7u), word(8u)),
        List(word(9u), word(10u)),
        List(word(11u), word(12u)),
    );
}

fn matmul_sum(at: u32) -> Value {
    let p = matmul_params();
    let j = at % p.n;
    let i = at / p.n % p.m;
    let batch = at / p.n / p.m;
    var pa = strided(p.batch, p.a_batch, batch) + i * p.a_row + lo() * p.a_column;
    var pb = strided(p.batch, p.b_batch, batch) + j * p.b_column + lo() * p.b_row;
    var sum = resume(at, ZERO);
    for (var k = lo(); k < hi(); k++) {
        sum += x0(pa) * factor(pb);
        pa += p.a_column;
        pb += p.b_row;
    }
    return sum;
}

fn matmul_naive(at: u32) -> Value {
    return matmul_sum(at);
}

// Stand-ins for what a generated module defines.

alias Value = f32;

const ZERO: Value = 0.0;

fn x0(at: u32) -> Value {
    return ZERO;
}

fn factor(at: u32) -> Value {
    return ZERO;
}

fn resume(at: u32, start: Value) -> Value {
    return start;
}

struct List {
    first: u32,
    count: u32,
}

fn strided(dims: List, strides: List, at: u32) -> u32 {
    return at;
}

fn word(k: u32) -> u32 {
    return k;
}

fn lo() -> u32 {
    return 0u;
}

fn hi() -> u32 {
    return 1u;
}
