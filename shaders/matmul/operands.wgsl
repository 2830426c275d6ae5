enable f16;

// Operands and results of products by cooperative matrices.

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

// A tile of the results: its first row and column, the first elements of its operands, and whether all of their lines begin with a
// whole quad of the tensor.
struct Tile {
    p: MatmulParams,
    batch: u32,
    i0: u32,
    j0: u32,
    a: u32,
    b: u32,
    whole_a: bool,
    whole_b: bool,
}

fn start_tile(block: u32, lane: u32) -> Tile {
    let p = matmul_params();
    let across = (p.n + TILE_N - 1u) / TILE_N;
    let down = (p.m + TILE_M - 1u) / TILE_M;
    let batch = block / across / down;
    let a = strided(p.batch, p.a_batch, batch);
    let b = strided(p.batch, p.b_batch, batch);
    let line_a = select(p.a_column, p.a_row, ALONG_A);
    let line_b = select(p.b_row, p.b_column, ALONG_B);
    return Tile(
        p,
        batch,
        block / across % down * TILE_M,
        block % across * TILE_N,
        a,
        b,
        WHOLE_A && ((a | line_a) & 3u) == 0u,
        WHOLE_B && ((b | line_b) & 3u) == 0u,
    );
}

// Four neighbours of A from (i, k) on, along the depth or down the rows; zeros outside of it.
fn four_of_a(t: Tile, i: u32, k: u32) -> vec4<f16> {
    let p = t.p;
    let at = t.a + i * p.a_row + k * p.a_column;
    if (t.whole_a) {
        if (i < p.m && k < p.k) {
            return quad0(at);
        }
        return vec4<f16>();
    }
    if (WHOLE_A) {
        if (i >= p.m || k >= p.k) {
            return vec4<f16>();
        }
        return first_ones(shifted(quad0(at), quad0(at + 4u), at & 3u), select(p.m - i, p.k - k, ALONG_A));
    }
    let along = select(0u, 1u, ALONG_A);
    let step = select(p.a_row, p.a_column, ALONG_A);
    var v = vec4<f16>();
    for (var c = 0u; c < 4u; c++) {
        if (i + c * (1u - along) < p.m && k + c * along < p.k) {
            v[c] = f16(x0(at + c * step));
        }
    }
    return v;
}

// Four neighbours of B from (k, j) on, along the depth or across the columns.
fn four_of_b(t: Tile, k: u32, j: u32) -> vec4<f16> {
    let p = t.p;
    let at = t.b + k * p.b_row + j * p.b_column;
    if (t.whole_b) {
        if (k < p.k && j < p.n) {
            return quad1(at);
        }
        return vec4<f16>();
    }
    if (WHOLE_B) {
        if (k >= p.k || j >= p.n) {
            return vec4<f16>();
        }
        return first_ones(shifted(quad1(at), quad1(at + 4u), at & 3u), select(p.n - j, p.k - k, ALONG_B));
    }
    let along = select(0u, 1u, ALONG_B);
    let step = select(p.b_column, p.b_row, ALONG_B);
    var v = vec4<f16>();
    for (var c = 0u; c < 4u; c++) {
        if (j + c * (1u - along) < p.n && k + c * along < p.k) {
            v[c] = f16(x1(at + c * step));
        }
    }
    return v;
}

// Quad e of a tile of A from k0 on.
fn quad_of_a(t: Tile, k0: u32, e: u32) -> vec4<f16> {
    let line = e / RUN_A;
    let run = e % RUN_A * 4u;
    if (ALONG_A) {
        return four_of_a(t, t.i0 + line, k0 + run);
    }
    return four_of_a(t, t.i0 + run, k0 + line);
}

fn quad_of_b(t: Tile, k0: u32, e: u32) -> vec4<f16> {
    let line = e / RUN_B;
    let run = e % RUN_B * 4u;
    if (ALONG_B) {
        return four_of_b(t, k0 + run, t.j0 + line);
    }
    return four_of_b(t, k0 + line, t.j0 + run);
}

// Stores the sums of four columns of a tile's row, or keeps them for the launch that goes on with the depth.
fn finish_four(t: Tile, i: u32, j: u32, v: vec4<f32>) {
    let p = t.p;
    let row = t.i0 + i;
    let column = t.j0 + j;
    if (row >= p.m || column >= p.n) {
        return;
    }
    let at = (t.batch * p.m + row) * p.n + column;
    if (lo() == 0u && hi() >= p.k && column + 4u <= p.n) {
        emit_four0(at, v);
        return;
    }
    for (var c = 0u; c < min(4u, p.n - column); c++) {
        let sum = resume(at + c, 0.0) + v[c];
        if (hi() < p.k) {
            keep(at + c, sum);
        } else {
            emit0(at + c, sum);
        }
    }
}

// Stand-ins for what a generated module defines.

const TILE_M: u32 = 64u;

const TILE_N: u32 = 64u;

const RUN_A: u32 = 4u;

const RUN_B: u32 = 16u;

const ALONG_A: bool = true;

const ALONG_B: bool = false;

const WHOLE_A: bool = true;

const WHOLE_B: bool = true;

fn quad0(at: u32) -> vec4<f16> {
    return vec4<f16>();
}

fn quad1(at: u32) -> vec4<f16> {
    return vec4<f16>();
}

fn x0(at: u32) -> f32 {
    return 0.0;
}

fn x1(at: u32) -> f32 {
    return 0.0;
}

fn keep(at: u32, v: f32) {
}

fn resume(at: u32, start: f32) -> f32 {
    return start;
}

fn emit0(at: u32, v: f32) {
}

fn emit_four0(at: u32, v: vec4<f32>) {
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

fn shifted(low: vec4<f16>, high: vec4<f16>, r: u32) -> vec4<f16> {
    return low;
}

fn first_ones(v: vec4<f16>, n: u32) -> vec4<f16> {
    return v;
}
