// Products of matrices in tiles of workgroup memory. A workgroup computes TILE_M x TILE_N results, a thread 4 x 4 of them; tiles
// are loaded TILE_K deep.

const TILE_THREADS: u32 = TILE_M / 4u * (TILE_N / 4u);

// Vectors from one k to the next; one more than there are, so that threads write to different banks.
const TILE_STEP_A: u32 = TILE_M / 4u + 1u;

const TILE_STEP_B: u32 = TILE_N / 4u + 1u;

var<workgroup> tile_a: array<vec4<f32>, TILE_STEP_A * TILE_K>;

var<workgroup> tile_b: array<vec4<f32>, TILE_STEP_B * TILE_K>;

// The sums that a block of 4 x 4 results has before this launch.
fn first_sums(batch: u32, i: u32, j: u32) -> Quad {
    var rows: array<vec4<f32>, 4>;
    for (var q = 0u; q < 16u; q++) {
        rows[q / 4u][q % 4u] = first_sum(batch, i + q / 4u, j + q % 4u);
    }
    return Quad(rows[0], rows[1], rows[2], rows[3]);
}

fn finish_sums(batch: u32, i: u32, j: u32, s: Quad) {
    if (finish_fours(batch, i, j, s)) {
        return;
    }
    var rows = array<vec4<f32>, 4>(s.a, s.b, s.c, s.d);
    for (var q = 0u; q < 16u; q++) {
        finish_sum(batch, i + q / 4u, j + q % 4u, rows[q / 4u][q % 4u]);
    }
}

// The sums, and the products of the tiles for rows from 4 ti and columns from 4 tj on.
fn multiply_tiles(s: Quad, ti: u32, tj: u32) -> Quad {
    var sums = s;
    for (var k = 0u; k < TILE_K; k += 4u) {
        let a = k * TILE_STEP_A + ti;
        let b = k * TILE_STEP_B + tj;
        sums = multiply_quad(sums, tile_a[a], tile_b[b]);
        sums = multiply_quad(sums, tile_a[a + TILE_STEP_A], tile_b[b + TILE_STEP_B]);
        sums = multiply_quad(sums, tile_a[a + 2u * TILE_STEP_A], tile_b[b + 2u * TILE_STEP_B]);
        sums = multiply_quad(sums, tile_a[a + 3u * TILE_STEP_A], tile_b[b + 3u * TILE_STEP_B]);
    }
    return sums;
}

// Stand-ins for what a generated module or the kernel's file defines.

const TILE_M: u32 = 64u;

const TILE_N: u32 = 64u;

const TILE_K: u32 = 16u;

struct Quad {
    a: vec4<f32>,
    b: vec4<f32>,
    c: vec4<f32>,
    d: vec4<f32>,
}

fn multiply_quad(s: Quad, rows: vec4<f32>, columns: vec4<f32>) -> Quad {
    return s;
}

fn first_sum(batch: u32, i: u32, j: u32) -> f32 {
    return 0.0;
}

fn finish_sum(batch: u32, i: u32, j: u32, v: f32) {
}

// Stores all of the sums by words, if there is a place for each.
fn finish_fours(batch: u32, i: u32, j: u32, s: Quad) -> bool {
    return false;
}
