// Products of matrices in tiles of workgroup memory. A launch sums over lo() .. hi() of k.

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

// The sum that element (i, j) has before this launch.
fn first_sum(batch: u32, i: u32, j: u32) -> f32 {
    let p = matmul_params();
    if (lo() == 0u || i >= p.m || j >= p.n) {
        return 0.0;
    }
    return resume((batch * p.m + i) * p.n + j, 0.0);
}

fn finish_sum(batch: u32, i: u32, j: u32, v: f32) {
    let p = matmul_params();
    if (i >= p.m || j >= p.n) {
        return;
    }
    let at = (batch * p.m + i) * p.n + j;
    if (hi() < p.k) {
        keep(at, v);
    } else {
        emit0(at, v);
    }
}

// Stores four columns of four rows, if they are there and finished.
fn finish_fours(batch: u32, i: u32, j: u32, s: Quad) -> bool {
    let p = matmul_params();
    if (hi() < p.k || i + 4u > p.m || j + 4u > p.n) {
        return false;
    }
    let at = (batch * p.m + i) * p.n + j;
    emit_four0(at, s.a);
    emit_four0(at + p.n, s.b);
    emit_four0(at + 2u * p.n, s.c);
    emit_four0(at + 3u * p.n, s.d);
    return true;
}

// Element e of a tile of A, for rows from i0 on; neighbouring threads read neighbouring elements of a row.
fn load_a(p: MatmulParams, base: u32, e: u32, k0: u32, i0: u32) {
    let k = k0 + e % TILE_K;
    let r = e / TILE_K;
    var v = 0.0;
    if (k < p.k && i0 + r < p.m) {
        v = x0(base + (i0 + r) * p.a_row + k * p.a_column);
    }
    tile_a[e % TILE_K * TILE_STEP_A + r / 4u][r % 4u] = v;
}

// Element e of a tile of B, for columns from j0 on.
fn load_b(p: MatmulParams, base: u32, e: u32, k0: u32, j0: u32) {
    let k = k0 + e / TILE_N;
    let c = e % TILE_N;
    var v = 0.0;
    if (k < p.k && j0 + c < p.n) {
        v = factor(base + k * p.b_row + (j0 + c) * p.b_column);
    }
    tile_b[e / TILE_N * TILE_STEP_B + c / 4u][c % 4u] = v;
}

// The sums of 4 x 4 results of a thread, in the tile whose first row and column these are.
fn tile_sums(p: MatmulParams, batch: u32, i0: u32, j0: u32, lane: u32) -> Quad {
    let base_a = strided(p.batch, p.a_batch, batch);
    let base_b = strided(p.batch, p.b_batch, batch);
    let ti = lane / (TILE_N / 4u);
    let tj = lane % (TILE_N / 4u);
    var sums = first_sums(batch, i0 + ti * 4u, j0 + tj * 4u);
    for (var k0 = lo(); k0 < hi(); k0 += TILE_K) {
        for (var e = lane; e < TILE_M * TILE_K; e += 4u * TILE_THREADS) {
            load_a(p, base_a, e, k0, i0);
            load_a(p, base_a, e + TILE_THREADS, k0, i0);
            load_a(p, base_a, e + 2u * TILE_THREADS, k0, i0);
            load_a(p, base_a, e + 3u * TILE_THREADS, k0, i0);
        }
        for (var e = lane; e < TILE_N * TILE_K; e += 4u * TILE_THREADS) {
            load_b(p, base_b, e, k0, j0);
            load_b(p, base_b, e + TILE_THREADS, k0, j0);
            load_b(p, base_b, e + 2u * TILE_THREADS, k0, j0);
            load_b(p, base_b, e + 3u * TILE_THREADS, k0, j0);
        }
        workgroupBarrier();
        sums = multiply_tiles(sums, ti, tj);
        workgroupBarrier();
    }
    return sums;
}

@compute @workgroup_size(TILE_THREADS)
fn matmul_tiled(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let block = block_of(id, blocks);
    if (block >= grid()) {
        return;
    }
    let p = matmul_params();
    let across = (p.n + TILE_N - 1u) / TILE_N;
    let down = (p.m + TILE_M - 1u) / TILE_M;
    let j0 = block % across * TILE_N;
    let i0 = block / across % down * TILE_M;
    let batch = block / across / down;
    let sums = tile_sums(p, batch, i0, j0, lane);
    finish_sums(batch, i0 + lane / (TILE_N / 4u) * 4u, j0 + lane % (TILE_N / 4u) * 4u, sums);
}

// Stores 4 x 4 results from row i and column j on, and what each row of them is reduced to.
fn finish_rows(p: MatmulParams, batch: u32, i: u32, j: u32, s: Quad) {
    var rows = array<vec4<f32>, 4>(s.a, s.b, s.c, s.d);
    for (var r = 0u; r < 4u; r++) {
        var acc = side_empty();
        for (var c = 0u; c < 4u; c++) {
            if (i + r < p.m && j + c < p.n) {
                let stored = emitted0((batch * p.m + i + r) * p.n + j + c, rows[r][c]);
                acc = side_step(acc, SideSum(stored), 0.0);
            }
        }
        side_put((i + r) % TILE_M, j % TILE_N, acc);
    }
}

// Stores a tile of the product and reduces its rows.
@compute @workgroup_size(TILE_THREADS)
fn matmul_tiled_rows(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let block = block_of(id, blocks);
    if (block >= grid()) {
        return;
    }
    let p = matmul_params();
    let across = (p.n + TILE_N - 1u) / TILE_N;
    let down = (p.m + TILE_M - 1u) / TILE_M;
    let j0 = block % across * TILE_N;
    let i0 = block / across % down * TILE_M;
    let batch = block / across / down;
    let sums = tile_sums(p, batch, i0, j0, lane);
    let i = i0 + lane / (TILE_N / 4u) * 4u;
    let j = j0 + lane % (TILE_N / 4u) * 4u;
    if (hi() < p.k) {
        finish_sums(batch, i, j, sums);
        return;
    }
    finish_rows(p, batch, i, j, sums);
    side_tile(lane, TILE_THREADS, batch * p.m + i0, min(p.m - i0, TILE_M), j0);
}

// Stand-ins for what a generated module or the file of tiles defines.

const TILE_M: u32 = 64u;

const TILE_N: u32 = 64u;

const TILE_K: u32 = 16u;

const TILE_THREADS: u32 = 256u;

const TILE_STEP_A: u32 = 17u;

const TILE_STEP_B: u32 = 17u;

var<workgroup> tile_a: array<vec4<f32>, 272>;

var<workgroup> tile_b: array<vec4<f32>, 272>;

struct Quad {
    a: vec4<f32>,
    b: vec4<f32>,
    c: vec4<f32>,
    d: vec4<f32>,
}

fn first_sums(batch: u32, i: u32, j: u32) -> Quad {
    return Quad();
}

fn finish_sums(batch: u32, i: u32, j: u32, s: Quad) {
}

fn multiply_tiles(s: Quad, ti: u32, tj: u32) -> Quad {
    return s;
}

fn x0(at: u32) -> f32 {
    return 0.0;
}

fn factor(at: u32) -> f32 {
    return 0.0;
}

fn keep(at: u32, v: f32) {
}

fn resume(at: u32, start: f32) -> f32 {
    return start;
}

fn emit0(at: u32, v: f32) {
}

fn emitted0(at: u32, v: f32) -> f32 {
    return v;
}

alias SideSum = f32;

fn side_empty() -> SideSum {
    return SideSum();
}

fn side_step(acc: SideSum, v: SideSum, top: f32) -> SideSum {
    return acc + v;
}

fn side_put(row: u32, column: u32, part: SideSum) {
}

fn side_tile(lane: u32, threads: u32, first: u32, rows: u32, column: u32) {
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

fn emit_four0(at: u32, v: vec4<f32>) {
}
