enable f16;
enable wgpu_cooperative_matrix;

// Products by cooperative matrices. A workgroup of DOWN x ACROSS subgroups of LANES threads computes a tile, and a subgroup 4 x 2
// parts of it, of PART x PART results each. Operands pass through workgroup memory as f16; sums are f32. A launch sums over lo() ..
// hi() of the depth.

const SUBGROUPS: u32 = DOWN * ACROSS;

const THREADS: u32 = SUBGROUPS * LANES;

const TILE_M: u32 = 4u * PART * DOWN;

const TILE_N: u32 = 2u * PART * ACROSS;

// Lines of a tile in workgroup memory are along the depth or across it, in quads: four neighbours. A line is followed by two more
// quads, so that the rows of a part begin in different banks.
const STEP_A: u32 = RUN_A + 2u;

const STEP_B: u32 = RUN_B + 2u;

const QUADS_A: u32 = TILE_M * TILE_K / 4u;

const QUADS_B: u32 = TILE_N * TILE_K / 4u;

var<workgroup> tile_a: array<vec4<f16>, QUADS_A / RUN_A * STEP_A>;

var<workgroup> tile_b: array<vec4<f16>, QUADS_B / RUN_B * STEP_B>;

// Two parts of the results of each subgroup.
var<workgroup> results: array<vec4<f32>, SUBGROUPS * PART * PART / 2u>;

struct Quads {
    a: vec4<f16>,
    b: vec4<f16>,
    c: vec4<f16>,
    d: vec4<f16>,
}

fn fetch_a(t: Tile, k0: u32, e: u32) -> Quads {
    return Quads(
        quad_of_a(t, k0, e),
        quad_of_a(t, k0, e + THREADS),
        quad_of_a(t, k0, e + 2u * THREADS),
        quad_of_a(t, k0, e + 3u * THREADS),
    );
}

fn fetch_b(t: Tile, k0: u32, e: u32) -> Quads {
    return Quads(
        quad_of_b(t, k0, e),
        quad_of_b(t, k0, e + THREADS),
        quad_of_b(t, k0, e + 2u * THREADS),
        quad_of_b(t, k0, e + 3u * THREADS),
    );
}

fn put_quad_a(e: u32, v: vec4<f16>) {
    if (e < QUADS_A) {
        tile_a[e / RUN_A * STEP_A + e % RUN_A] = v;
    }
}

fn put_quad_b(e: u32, v: vec4<f16>) {
    if (e < QUADS_B) {
        tile_b[e / RUN_B * STEP_B + e % RUN_B] = v;
    }
}

fn put_a(e: u32, v: Quads) {
    put_quad_a(e, v.a);
    put_quad_a(e + THREADS, v.b);
    put_quad_a(e + 2u * THREADS, v.c);
    put_quad_a(e + 3u * THREADS, v.d);
}

fn put_b(e: u32, v: Quads) {
    put_quad_b(e, v.a);
    put_quad_b(e + THREADS, v.b);
    put_quad_b(e + 2u * THREADS, v.c);
    put_quad_b(e + 3u * THREADS, v.d);
}

// The quad of a tile that part (i, k) of A, or (k, j) of B, begins with.
fn part_a(i: u32, k: u32) -> u32 {
    if (ALONG_A) {
        return i * STEP_A + k / 4u;
    }
    return k * STEP_A + i / 4u;
}

fn part_b(k: u32, j: u32) -> u32 {
    if (ALONG_B) {
        return j * STEP_B + k / 4u;
    }
    return k * STEP_B + j / 4u;
}

// Four neighbours of which the first one is element r of those of `low`; those of `high` follow.
fn shifted(low: vec4<f16>, high: vec4<f16>, r: u32) -> vec4<f16> {
    let one = (r & 1u) == 1u;
    let v = select(low, vec4<f16>(low.yzw, high.x), one);
    let w = select(high, vec4<f16>(high.yzw, high.w), one);
    return select(v, vec4<f16>(v.zw, w.xy), r >= 2u);
}

// The first n of four neighbours, and zeros.
fn first_ones(v: vec4<f16>, n: u32) -> vec4<f16> {
    return select(vec4<f16>(), v, vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(n));
}

// Finishes the parts of row r of all subgroups.
fn finish_parts(t: Tile, lane: u32, r: u32) {
    for (var q = lane; q < SUBGROUPS * PART * PART / 2u; q += THREADS) {
        let s = q / (PART * PART / 2u);
        let e = q % (PART * PART / 2u) * 4u;
        let i = (s / ACROSS * 4u + r) * PART;
        let j = s % ACROSS * 2u * PART;
        if (BY_COLUMNS) {
            finish_four(t, i + e % PART, j + e / PART, results[q]);
        } else {
            finish_four(t, i + e / (2u * PART), j + e % (2u * PART), results[q]);
        }
    }
}

@compute @workgroup_size(THREADS)
fn product_cooperative(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_id) subgroup: u32,
) {
    // Written out, as naga takes what functions return for what threads do not share.
    let block = id.y * blocks.x + id.x;
    if (block >= grid()) {
        return;
    }
    let t = start_tile(block, lane);
    let i = subgroup / ACROSS * 4u * PART;
    let j = subgroup % ACROSS * 2u * PART;
    var s00: Sums;
    var s01: Sums;
    var s10: Sums;
    var s11: Sums;
    var s20: Sums;
    var s21: Sums;
    var s30: Sums;
    var s31: Sums;
    workgroupBarrier();
    prepare(t, lo(), lane);
    workgroupBarrier();
    var a = fetch_a(t, lo(), lane);
    var b = fetch_b(t, lo(), lane);
    var more_a = Quads();
    var more_b = Quads();
    if (QUADS_A > 4u * THREADS) {
        more_a = fetch_a(t, lo(), lane + 4u * THREADS);
    }
    if (QUADS_B > 4u * THREADS) {
        more_b = fetch_b(t, lo(), lane + 4u * THREADS);
    }
    workgroupBarrier();
    for (var k0 = lo(); k0 < hi(); k0 += TILE_K) {
        put_a(lane, a);
        put_b(lane, b);
        if (QUADS_A > 4u * THREADS) {
            put_a(lane + 4u * THREADS, more_a);
        }
        if (QUADS_B > 4u * THREADS) {
            put_b(lane + 4u * THREADS, more_b);
        }
        let next = k0 + TILE_K;
        prepare(t, next, lane);
        workgroupBarrier();
        // The next tiles are on their way while these are multiplied.
        if (next < hi()) {
            a = fetch_a(t, next, lane);
            b = fetch_b(t, next, lane);
            if (QUADS_A > 4u * THREADS) {
                more_a = fetch_a(t, next, lane + 4u * THREADS);
            }
            if (QUADS_B > 4u * THREADS) {
                more_b = fetch_b(t, next, lane + 4u * THREADS);
            }
        }
        for (var k = 0u; k < TILE_K; k += PART) {
            var a0: PartA;
            var a1: PartA;
            var a2: PartA;
            var a3: PartA;
            var b0: PartB;
            var b1: PartB;
            if (ALONG_A) {
                a0 = coopLoadT<PartA>(&tile_a[part_a(i, k)], STEP_A);
                a1 = coopLoadT<PartA>(&tile_a[part_a(i + PART, k)], STEP_A);
                a2 = coopLoadT<PartA>(&tile_a[part_a(i + 2u * PART, k)], STEP_A);
                a3 = coopLoadT<PartA>(&tile_a[part_a(i + 3u * PART, k)], STEP_A);
            } else {
                a0 = coopLoad<PartA>(&tile_a[part_a(i, k)], STEP_A);
                a1 = coopLoad<PartA>(&tile_a[part_a(i + PART, k)], STEP_A);
                a2 = coopLoad<PartA>(&tile_a[part_a(i + 2u * PART, k)], STEP_A);
                a3 = coopLoad<PartA>(&tile_a[part_a(i + 3u * PART, k)], STEP_A);
            }
            if (ALONG_B) {
                b0 = coopLoad<PartB>(&tile_b[part_b(k, j)], STEP_B);
                b1 = coopLoad<PartB>(&tile_b[part_b(k, j + PART)], STEP_B);
            } else {
                b0 = coopLoadT<PartB>(&tile_b[part_b(k, j)], STEP_B);
                b1 = coopLoadT<PartB>(&tile_b[part_b(k, j + PART)], STEP_B);
            }
            s00 = coopMultiplyAdd(a0, b0, s00);
            s01 = coopMultiplyAdd(a0, b1, s01);
            s10 = coopMultiplyAdd(a1, b0, s10);
            s11 = coopMultiplyAdd(a1, b1, s11);
            s20 = coopMultiplyAdd(a2, b0, s20);
            s21 = coopMultiplyAdd(a2, b1, s21);
            s30 = coopMultiplyAdd(a3, b0, s30);
            s31 = coopMultiplyAdd(a3, b1, s31);
        }
        workgroupBarrier();
    }
    // Quads of the results of a subgroup, and of the second of its two parts.
    let own = subgroup * PART * PART / 2u;
    for (var r = 0u; r < 4u; r++) {
        var left = s00;
        var right = s01;
        if (r == 1u) {
            left = s10;
            right = s11;
        } else if (r == 2u) {
            left = s20;
            right = s21;
        } else if (r == 3u) {
            left = s30;
            right = s31;
        }
        if (BY_COLUMNS) {
            coopStore(left, &results[own], PART / 4u);
            coopStore(right, &results[own + PART * PART / 4u], PART / 4u);
        } else {
            coopStoreT(left, &results[own], PART / 2u);
            coopStoreT(right, &results[own + PART / 4u], PART / 2u);
        }
        workgroupBarrier();
        finish_parts(t, lane, r);
        workgroupBarrier();
    }
}

// Stand-ins for what a generated module and the files of operands define.

const PART: u32 = 16u;

const LANES: u32 = 32u;

const DOWN: u32 = 2u;

const ACROSS: u32 = 2u;

const TILE_K: u32 = 16u;

const RUN_A: u32 = 4u;

const RUN_B: u32 = 16u;

const ALONG_A: bool = true;

const ALONG_B: bool = false;

const BY_COLUMNS: bool = false;

alias PartA = coop_mat16x16<f16, A>;

alias PartB = coop_mat16x16<f16, B>;

alias Sums = coop_mat16x16<f32, C>;

struct Tile {
    batch: u32,
}

fn start_tile(block: u32, lane: u32) -> Tile {
    return Tile(block);
}

fn prepare(t: Tile, k0: u32, lane: u32) {
}

fn quad_of_a(t: Tile, k0: u32, e: u32) -> vec4<f16> {
    return vec4<f16>();
}

fn quad_of_b(t: Tile, k0: u32, e: u32) -> vec4<f16> {
    return vec4<f16>();
}

fn finish_four(t: Tile, i: u32, j: u32, v: vec4<f32>) {
}

fn grid() -> u32 {
    return 1u;
}

fn lo() -> u32 {
    return 0u;
}

fn hi() -> u32 {
    return 1u;
}
