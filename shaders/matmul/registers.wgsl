// Products of matrices in blocks of registers: a thread computes BLOCK_M x BLOCK_N results, up to 16 x 8. What is beyond the
// block is never computed, as its size is constant.

// Results of up to 16 rows and four columns, and of up to eight columns.
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

// Operands of up to 16 rows or eight columns.
struct Operands {
    a: vec4<Operand>,
    b: vec4<Operand>,
    c: vec4<Operand>,
    d: vec4<Operand>,
}

fn multiply_half(s: Half, rows: Operands, columns: vec4<Operand>) -> Half {
    var n = s;
    if (BLOCK_M == 1u) {
        n.a.a += times(rows.a.x, columns);
        return n;
    }
    n.a = multiply_quad(s.a, rows.a, columns);
    if (BLOCK_M > 4u) {
        n.b = multiply_quad(s.b, rows.b, columns);
    }
    if (BLOCK_M > 8u) {
        n.c = multiply_quad(s.c, rows.c, columns);
        n.d = multiply_quad(s.d, rows.d, columns);
    }
    return n;
}

// The sums, and the products of all rows and columns.
fn multiply(s: Block, rows: Operands, columns: Operands) -> Block {
    var n = s;
    n.left = multiply_half(s.left, rows, columns.a);
    if (BLOCK_N > 4u) {
        n.right = multiply_half(s.right, rows, columns.b);
    }
    return n;
}

fn add_half(s: Half, t: Half) -> Half {
    var n = s;
    n.a = add_quad(s.a, t.a);
    if (BLOCK_M > 4u) {
        n.b = add_quad(s.b, t.b);
    }
    if (BLOCK_M > 8u) {
        n.c = add_quad(s.c, t.c);
        n.d = add_quad(s.d, t.d);
    }
    return n;
}

fn add(s: Block, t: Block) -> Block {
    var n = s;
    n.left = add_half(s.left, t.left);
    if (BLOCK_N > 4u) {
        n.right = add_half(s.right, t.right);
    }
    return n;
}

// Starts of rows or columns of an operand.
struct Starts {
    a: vec4<u32>,
    b: vec4<u32>,
    c: vec4<u32>,
    d: vec4<u32>,
}

// The lines of `count` from `first` on, `step` elements apart; behind the last one, the last one.
fn starts_of(base: u32, first: u32, count: u32, step: u32) -> Starts {
    let four = vec4<u32>(first) + vec4<u32>(0u, 1u, 2u, 3u);
    let last = vec4<u32>(count - 1u);
    return Starts(
        base + min(four, last) * step,
        base + min(four + 4u, last) * step,
        base + min(four + 8u, last) * step,
        base + min(four + 12u, last) * step,
    );
}

fn four_left(at: vec4<u32>, step: Step) -> vec4<Operand> {
    return vec4<Operand>(left(at.x, step), left(at.y, step), left(at.z, step), left(at.w, step));
}

fn four_right(at: vec4<u32>, step: Step) -> vec4<Operand> {
    return vec4<Operand>(right(at.x, step), right(at.y, step), right(at.z, step), right(at.w, step));
}

// The operands of all rows.
fn left_operands(at: Starts, step: Step) -> Operands {
    var n: Operands;
    if (BLOCK_M == 1u) {
        n.a.x = left(at.a.x, step);
        return n;
    }
    n.a = four_left(at.a, step);
    if (BLOCK_M > 4u) {
        n.b = four_left(at.b, step);
    }
    if (BLOCK_M > 8u) {
        n.c = four_left(at.c, step);
        n.d = four_left(at.d, step);
    }
    return n;
}

// The operands of all columns.
fn right_operands(at: Starts, step: Step) -> Operands {
    var n: Operands;
    if (BLOCK_N == 1u) {
        n.a.x = right(at.a.x, step);
        return n;
    }
    n.a = four_right(at.a, step);
    if (BLOCK_N > 4u) {
        n.b = four_right(at.b, step);
    }
    return n;
}

// Where the results of a block lie: the first one, elements from one row and column to the next, rows and columns from there to
// the last.
struct Results {
    first: u32,
    row_step: u32,
    column_step: u32,
    rows: u32,
    columns: u32,
}

// The results of a block in memory, row by row.
alias Cells = array<Value, BLOCK_M * BLOCK_N>;

fn row_of(cells: ptr<function, Cells>, at: u32) -> vec4<Value> {
    if (BLOCK_N == 1u) {
        return vec4<Value>((*cells)[at]);
    }
    return vec4<Value>((*cells)[at], (*cells)[at + 1u], (*cells)[at + 2u], (*cells)[at + 3u]);
}

fn quad_of(cells: ptr<function, Cells>, at: u32) -> Quad {
    var n: Quad;
    n.a = row_of(cells, at);
    if (BLOCK_M > 1u) {
        n.b = row_of(cells, at + BLOCK_N);
        n.c = row_of(cells, at + 2u * BLOCK_N);
        n.d = row_of(cells, at + 3u * BLOCK_N);
    }
    return n;
}

fn half_of(cells: ptr<function, Cells>, at: u32) -> Half {
    var n: Half;
    n.a = quad_of(cells, at);
    if (BLOCK_M > 4u) {
        n.b = quad_of(cells, at + 4u * BLOCK_N);
    }
    if (BLOCK_M > 8u) {
        n.c = quad_of(cells, at + 8u * BLOCK_N);
        n.d = quad_of(cells, at + 12u * BLOCK_N);
    }
    return n;
}

// Sums that the launch before this one kept.
fn kept_block(results: Results) -> Block {
    var cells: Cells;
    for (var q = 0u; q < BLOCK_M * BLOCK_N; q++) {
        let r = q / BLOCK_N;
        let c = q % BLOCK_N;
        if (r < results.rows && c < results.columns) {
            cells[q] = kept(results.first + r * results.row_step + c * results.column_step);
        }
    }
    var n: Block;
    n.left = half_of(&cells, 0u);
    if (BLOCK_N > 4u) {
        n.right = half_of(&cells, 4u);
    }
    return n;
}

fn put_row(cells: ptr<function, Cells>, at: u32, v: vec4<Value>) {
    (*cells)[at] = v.x;
    if (BLOCK_N > 1u) {
        (*cells)[at + 1u] = v.y;
        (*cells)[at + 2u] = v.z;
        (*cells)[at + 3u] = v.w;
    }
}

fn put_quad(cells: ptr<function, Cells>, at: u32, s: Quad) {
    put_row(cells, at, s.a);
    if (BLOCK_M > 1u) {
        put_row(cells, at + BLOCK_N, s.b);
        put_row(cells, at + 2u * BLOCK_N, s.c);
        put_row(cells, at + 3u * BLOCK_N, s.d);
    }
}

fn put_half(cells: ptr<function, Cells>, at: u32, s: Half) {
    put_quad(cells, at, s.a);
    if (BLOCK_M > 4u) {
        put_quad(cells, at + 4u * BLOCK_N, s.b);
    }
    if (BLOCK_M > 8u) {
        put_quad(cells, at + 8u * BLOCK_N, s.c);
        put_quad(cells, at + 12u * BLOCK_N, s.d);
    }
}

// Fours of rows of a block.
const FOURS_DOWN: u32 = (BLOCK_M + 3u) / 4u;

// Stores sums as results, or for the next launch.
fn store_block(results: Results, s: Block, done: bool) {
    var cells: Cells;
    put_half(&cells, 0u, s.left);
    if (BLOCK_N > 4u) {
        put_half(&cells, 4u, s.right);
    }
    if (done && BLOCK_N >= 4u && results.column_step == 1u && results.columns >= BLOCK_N) {
        for (var q = 0u; q < BLOCK_N * min(BLOCK_M, results.rows); q += 4u) {
            let v = vec4<Value>(cells[q], cells[q + 1u], cells[q + 2u], cells[q + 3u]);
            emit_four0(results.first + q / BLOCK_N * results.row_step + q % BLOCK_N, v);
        }
        return;
    }
    if (done && BLOCK_M >= 4u && results.row_step == 1u && results.rows >= BLOCK_M) {
        for (var e = 0u; e < FOURS_DOWN * min(BLOCK_N, results.columns); e++) {
            let r = e % FOURS_DOWN * 4u;
            let c = e / FOURS_DOWN;
            let q = r * BLOCK_N + c;
            let v = vec4<Value>(cells[q], cells[q + BLOCK_N], cells[q + 2u * BLOCK_N], cells[q + 3u * BLOCK_N]);
            emit_four0(results.first + r + c * results.column_step, v);
        }
        return;
    }
    for (var q = 0u; q < BLOCK_M * BLOCK_N; q++) {
        let r = q / BLOCK_N;
        let c = q % BLOCK_N;
        if (r < results.rows && c < results.columns) {
            let at = results.first + r * results.row_step + c * results.column_step;
            if (done) {
                emit0(at, cells[q]);
            } else {
                keep(at, cells[q]);
            }
        }
    }
}

// Stand-ins for what a generated module or the kernel's file defines.

alias Value = f32;

alias Operand = f32;

const BLOCK_M: u32 = 16u;

const BLOCK_N: u32 = 8u;

struct Quad {
    a: vec4<Value>,
    b: vec4<Value>,
    c: vec4<Value>,
    d: vec4<Value>,
}

fn times(row: Operand, columns: vec4<Operand>) -> vec4<Value> {
    return columns;
}

fn multiply_quad(s: Quad, rows: vec4<Operand>, columns: vec4<Operand>) -> Quad {
    return s;
}

fn add_quad(s: Quad, t: Quad) -> Quad {
    return s;
}

struct Step {
    at: u32,
}

fn left(at: u32, step: Step) -> Operand {
    return Operand(0);
}

fn right(at: u32, step: Step) -> Operand {
    return Operand(0);
}

fn keep(at: u32, v: Value) {
}

fn kept(at: u32) -> Value {
    return Value(0);
}

fn emit0(at: u32, v: Value) {
}

fn emit_four0(at: u32, v: vec4<Value>) {
}
