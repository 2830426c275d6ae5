enable f16;

// Products of all inputs by cooperative matrices: inputs [steps * batch, inputs], and the weights of a direction [gates * hidden, inputs].

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

// A tile of the products of a direction, and whether lines begin with whole quads of their tensors.
struct Tile {
    p: RecurrentParams,
    d: u32,
    i0: u32,
    j0: u32,
    whole: bool,
}

fn start_tile(block: u32, lane: u32) -> Tile {
    let p = recurrent_params();
    let across = (GATES * p.hidden + TILE_N - 1u) / TILE_N;
    let down = (p.steps * p.batch + TILE_M - 1u) / TILE_M;
    let d = block / across / down;
    return Tile(p, d, block / across % down * TILE_M, block % across * TILE_N, p.inputs % 4u == 0u);
}

fn prepare(t: Tile, k0: u32, lane: u32) {
}

fn quad_of_a(t: Tile, k0: u32, e: u32) -> vec4<f16> {
    let i = t.i0 + e / RUN_A;
    let k = k0 + e % RUN_A * 4u;
    var v = vec4<f16>();
    if (i >= t.p.steps * t.p.batch) {
        return v;
    }
    let at = i * t.p.inputs + k;
    if (t.whole) {
        return select(v, quad0(at), k < t.p.inputs);
    }
    for (var c = 0u; c < 4u; c++) {
        if (k + c < t.p.inputs) {
            v[c] = f16(x0(at + c));
        }
    }
    return v;
}

fn quad_of_b(t: Tile, k0: u32, e: u32) -> vec4<f16> {
    let j = t.j0 + e / RUN_B;
    let k = k0 + e % RUN_B * 4u;
    var v = vec4<f16>();
    if (j >= GATES * t.p.hidden) {
        return v;
    }
    let at = (t.d * (GATES * t.p.hidden) + j) * t.p.inputs + k;
    if (t.whole) {
        return select(v, quad1(at), k < t.p.inputs);
    }
    for (var c = 0u; c < 4u; c++) {
        if (k + c < t.p.inputs) {
            v[c] = f16(x1(at + c));
        }
    }
    return v;
}

fn finish_four(t: Tile, i: u32, j: u32, v: vec4<f32>) {
    for (var c = 0u; c < 4u; c++) {
        let sum = first_sum(t.d, t.i0 + i, t.j0 + j + c);
        finish_sum(t.d, t.i0 + i, t.j0 + j + c, sum + v[c]);
    }
}

// Stand-ins for what a generated module and the files of inputs and products define.

const GATES: u32 = 4u;

const TILE_M: u32 = 64u;

const TILE_N: u32 = 64u;

const RUN_A: u32 = 4u;

const RUN_B: u32 = 4u;

fn first_sum(batch: u32, i: u32, j: u32) -> f32 {
    return 0.0;
}

fn finish_sum(batch: u32, i: u32, j: u32, v: f32) {
}

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

fn word(k: u32) -> u32 {
    return k;
}
