// Recurrences step by step, a launch each, by all workgroups together: what is made in front of the steps and behind them. Products of
// all inputs are made at once. Scratch: states of all sequences before and behind a step, which take turns, cells, and these products.

struct RecurrentParams {
    steps: u32,
    directions: u32,
    batch: u32,
    inputs: u32,
    hidden: u32,
    batch_first: u32,
    backward: u32,
    clip: f32,
    first: u32,
    end: u32,
}

fn recurrent_params() -> RecurrentParams {
    return RecurrentParams(
        word(0u),
        word(1u),
        word(2u),
        word(3u),
        word(4u),
        word(5u),
        word(6u),
        bitcast<f32>(word(7u)),
        word(8u),
        word(9u),
    );
}

// Elements of the states of all sequences.
fn states_count(p: RecurrentParams) -> u32 {
    return p.directions * p.batch * p.hidden;
}

// The product of an input, by its number, for row j of all gates.
fn product_at(p: RecurrentParams, d: u32, input: u32, j: u32) -> u32 {
    return 3u * states_count(p) + (input * p.directions + d) * (GATES * p.hidden) + j;
}

// Places of the states before step k and behind it.
fn old_states(p: RecurrentParams, k: u32) -> u32 {
    return k % 2u * states_count(p);
}

fn new_states(p: RecurrentParams, k: u32) -> u32 {
    return (1u - k % 2u) * states_count(p);
}

// The sums of an element of a product before this launch, and behind it. Only gates of inputs have their bias here.
fn first_sum(batch: u32, i: u32, j: u32) -> f32 {
    let p = recurrent_params();
    if (i >= p.steps * p.batch || j >= GATES * p.hidden) {
        return 0.0;
    }
    if (lo() > 0u) {
        return bitcast<f32>(scratch[product_at(p, batch, i, j)]);
    }
    if (HAS_BIAS) {
        return x3(batch * (GATES * p.hidden) * 2u + j);
    }
    return 0.0;
}

fn finish_sum(batch: u32, i: u32, j: u32, v: f32) {
    let p = recurrent_params();
    if (i < p.steps * p.batch && j < GATES * p.hidden) {
        scratch[product_at(p, batch, i, j)] = bitcast<u32>(v);
    }
}

// Element e of a tile of inputs, and of one of their weights; neighbouring threads read neighbouring elements.
fn load_inputs(p: RecurrentParams, e: u32, k0: u32, i0: u32) {
    let k = k0 + e % TILE_K;
    let r = e / TILE_K;
    var v = 0.0;
    if (k < p.inputs && i0 + r < p.steps * p.batch) {
        v = x0((i0 + r) * p.inputs + k);
    }
    tile_a[e % TILE_K * TILE_STEP_A + r / 4u][r % 4u] = v;
}

fn load_weights(p: RecurrentParams, d: u32, e: u32, k0: u32, j0: u32) {
    let k = k0 + e % TILE_K;
    let c = e / TILE_K;
    var v = 0.0;
    if (k < p.inputs && j0 + c < GATES * p.hidden) {
        v = x1((d * (GATES * p.hidden) + j0 + c) * p.inputs + k);
    }
    tile_b[e % TILE_K * TILE_STEP_B + c / 4u][c % 4u] = v;
}

// Products of all inputs and the weights of a direction, in tiles.
@compute @workgroup_size(TILE_THREADS)
fn recur_inputs(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let block = block_of(id, blocks);
    if (block >= grid()) {
        return;
    }
    let p = recurrent_params();
    let across = (GATES * p.hidden + TILE_N - 1u) / TILE_N;
    let down = (p.steps * p.batch + TILE_M - 1u) / TILE_M;
    let j0 = block % across * TILE_N;
    let i0 = block / across % down * TILE_M;
    let d = block / across / down;
    let i = i0 + lane / (TILE_N / 4u) * 4u;
    let j = j0 + lane % (TILE_N / 4u) * 4u;
    var sums = first_sums(d, i, j);
    for (var k0 = lo(); k0 < hi(); k0 += TILE_K) {
        for (var e = lane; e < TILE_M * TILE_K; e += TILE_THREADS) {
            load_inputs(p, e, k0, i0);
        }
        for (var e = lane; e < TILE_N * TILE_K; e += TILE_THREADS) {
            load_weights(p, d, e, k0, j0);
        }
        workgroupBarrier();
        sums = multiply_tiles(sums, lane / (TILE_N / 4u), lane % (TILE_N / 4u));
        workgroupBarrier();
    }
    finish_sums(d, i, j, sums);
}

@compute @workgroup_size(64)
fn recur_start(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let p = recurrent_params();
    let s = place(p, t / p.hidden, 0u);
    var h = 0.0;
    var c = 0.0;
    if (HAS_STATE) {
        h = x5(s.row + t % p.hidden);
    }
    if (HAS_CELL) {
        c = x6(s.row + t % p.hidden);
    }
    scratch[t] = bitcast<u32>(h);
    scratch[2u * states_count(p) + t] = bitcast<u32>(c);
}

@compute @workgroup_size(64)
fn recur_finish(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let p = recurrent_params();
    let s = place(p, t / p.hidden, 0u);
    emit1(s.row + t % p.hidden, bitcast<f32>(scratch[old_states(p, lo()) + t]));
    if (GATES == 4u) {
        emit2(s.row + t % p.hidden, bitcast<f32>(scratch[2u * states_count(p) + t]));
    }
}

// Stand-ins for what a generated module and the files of recurrences and tiles define.

// Places of a sequence and of one of its steps.
struct Place {
    d: u32,
    b: u32,
    old_h: u32,
    new_h: u32,
    cell: u32,
    reset: u32,
    row: u32,
    // The input's number, and its first element.
    step: u32,
    x: u32,
    y: u32,
    runs: bool,
}

fn place(p: RecurrentParams, sequence: u32, k: u32) -> Place {
    return Place();
}

@group(0) @binding(1) var<storage, read_write> scratch: array<u32>;

const GATES: u32 = 4u;

const HAS_BIAS: bool = false;

const HAS_STATE: bool = false;

const HAS_CELL: bool = false;

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

fn x1(at: u32) -> f32 {
    return 0.0;
}

fn x3(at: u32) -> f32 {
    return 0.0;
}

fn x5(at: u32) -> f32 {
    return 0.0;
}

fn x6(at: u32) -> f32 {
    return 0.0;
}

fn emit1(at: u32, v: f32) {
}

fn emit2(at: u32, v: f32) {
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
