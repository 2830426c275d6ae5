// Products of matrices of bytes in blocks of registers, four packed products at once. A launch sums over lo() .. hi() of k.

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

// How far the operands of four products are from the starts of rows and columns, elements from one of them to the next, how many
// products there are from here on, and whether the four lie in a whole word.
struct Step {
    a: u32,
    b: u32,
    next_a: u32,
    next_b: u32,
    count: u32,
    whole_a: bool,
    whole_b: bool,
}

// Up to four elements of a row of A as the bytes of a word, then zeros.
fn left(start: u32, step: Step) -> u32 {
    let at = start + step.a;
    if (step.whole_a) {
        return w0(at / 4u);
    }
    var w = 0u;
    for (var q = 0u; q < 4u && q < step.count; q++) {
        w |= (bitcast<u32>(x0(at + q * step.next_a)) & 255u) << (q * 8u);
    }
    return w;
}

// Up to four elements of a column of B as the bytes of a word, then zeros.
fn right(start: u32, step: Step) -> u32 {
    let at = start + step.b;
    if (step.whole_b) {
        return w1(at / 4u);
    }
    var w = 0u;
    for (var q = 0u; q < 4u && q < step.count; q++) {
        w |= (bitcast<u32>(x1(at + q * step.next_b)) & 255u) << (q * 8u);
    }
    return w;
}

@compute @workgroup_size(64)
fn matmul_dot(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let p = matmul_params();
    let across = (p.n + BLOCK_N - 1u) / BLOCK_N;
    let down = (p.m + BLOCK_M - 1u) / BLOCK_M;
    let j = t % across * BLOCK_N;
    let i = t / across % down * BLOCK_M;
    let batch = t / across / down;
    let rows = starts_of(strided(p.batch, p.a_batch, batch), i, p.m, p.a_row);
    let columns = starts_of(strided(p.batch, p.b_batch, batch), j, p.n, p.b_column);
    let results = Results((batch * p.m + i) * p.n + j, p.n, 1u, p.m - i, p.n - j);
    // Whether all rows and columns begin at whole words.
    let whole_a = p.a_column == 1u && p.a_row % 4u == 0u && p.k % 4u == 0u;
    let whole_b = p.b_row == 1u && p.b_column % 4u == 0u && p.k % 4u == 0u;
    var sums: Block;
    if (lo() > 0u) {
        sums = kept_block(results);
    }
    for (var k = lo(); k < hi(); k += 4u) {
        let step = Step(k * p.a_column, k * p.b_row, p.a_column, p.b_row, p.k - k, whole_a, whole_b);
        sums = multiply(sums, left_operands(rows, step), right_operands(columns, step));
    }
    store_block(results, sums, hi() >= p.k);
}

// Stand-ins for what a generated module or the file of registers defines.

alias Value = i32;

alias Operand = u32;

const BLOCK_M: u32 = 16u;

const BLOCK_N: u32 = 8u;

struct Quad {
    a: vec4<Value>,
    b: vec4<Value>,
    c: vec4<Value>,
    d: vec4<Value>,
}

struct Half {
    a: Quad,
    b: Quad,
    c: Quad,
    d: Quad,
}

struct Block {
    left: Half,
    right: Half,
}

struct Operands {
    a: vec4<Operand>,
    b: vec4<Operand>,
    c: vec4<Operand>,
    d: vec4<Operand>,
}

struct Starts {
    a: vec4<u32>,
    b: vec4<u32>,
    c: vec4<u32>,
    d: vec4<u32>,
}

struct Results {
    first: u32,
    row_step: u32,
    column_step: u32,
    rows: u32,
    columns: u32,
}

fn multiply(s: Block, rows: Operands, columns: Operands) -> Block {
    return s;
}

fn add(s: Block, t: Block) -> Block {
    return s;
}

fn starts_of(base: u32, first: u32, count: u32, step: u32) -> Starts {
    let none = vec4<u32>(0u);
    return Starts(none, none, none, none);
}

fn left_operands(at: Starts, step: Step) -> Operands {
    let none = vec4<Operand>(0);
    return Operands(none, none, none, none);
}

fn right_operands(at: Starts, step: Step) -> Operands {
    return left_operands(at, step);
}

fn kept_block(results: Results) -> Block {
    return Block();
}

fn store_block(results: Results, s: Block, done: bool) {
}

fn x0(at: u32) -> i32 {
    return 0;
}

fn x1(at: u32) -> i32 {
    return 0;
}

fn w0(at: u32) -> u32 {
    return 0u;
}

fn w1(at: u32) -> u32 {
    return 0u;
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

fn grid() -> u32 {
    return 1u;
}

fn block_of(id: vec3<u32>, count: vec3<u32>) -> u32 {
    return id.x;
}

fn lo() -> u32 {
    return 0u;
}

fn hi() -> u32 {
    return 1u;
}
