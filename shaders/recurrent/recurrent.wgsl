// Recurrences: a workgroup runs one sequence in one direction, step by step. A launch makes steps lo() .. hi(). Scratch of a
// sequence: old state, new state, cell, reset state. Inputs: x, weights of inputs, of states, biases, lengths, first state, first
// cell, peepholes. `GATES` is 1 for a plain network, 3 for a gated recurrent unit, 4 for long short-term memory.

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

fn of_input(p: RecurrentParams, d: u32, gate: u32, j: u32, x: u32) -> f32 {
    let row = (d * GATES + gate) * p.hidden + j;
    var sum = 0.0;
    for (var i = 0u; i < p.inputs; i++) {
        sum += x1(row * p.inputs + i) * x0(x + i);
    }
    if (HAS_BIAS) {
        sum += x3(d * (GATES * p.hidden) * 2u + gate * p.hidden + j);
    }
    return sum;
}

fn of_state(p: RecurrentParams, d: u32, gate: u32, j: u32, h: u32) -> f32 {
    let row = (d * GATES + gate) * p.hidden + j;
    var sum = 0.0;
    for (var i = 0u; i < p.hidden; i++) {
        sum += x2(row * p.hidden + i) * bitcast<f32>(scratch[h + i]);
    }
    if (HAS_BIAS) {
        sum += x3(d * (GATES * p.hidden) * 2u + GATES * p.hidden + gate * p.hidden + j);
    }
    return sum;
}

fn gate(p: RecurrentParams, d: u32, g: u32, j: u32, x: u32, h: u32) -> f32 {
    return of_input(p, d, g, j, x) + of_state(p, d, g, j, h);
}

fn peephole(p: RecurrentParams, d: u32, g: u32, j: u32) -> f32 {
    if (HAS_PEEPHOLES) {
        return x7((d * 3u + g) * p.hidden + j);
    }
    return 0.0;
}

// Activation number n of a direction.
fn activate(p: RecurrentParams, d: u32, n: u32, value: f32) -> f32 {
    var v = value;
    if (p.clip > 0.0 && !is_nan(v)) {
        v = clamp(v, -p.clip, p.clip);
    }
    let relu = select(v, 0.0, v < 0.0);
    switch (select(0u, d * ACTIVATIONS, BOTH) + n) {
        case 0u: { return activation0(v, relu); }
        case 1u: { return activation1(v, relu); }
        case 2u: { return activation2(v, relu); }
        case 3u: { return activation3(v, relu); }
        case 4u: { return activation4(v, relu); }
        case 5u: { return activation5(v, relu); }
        default: { return v; }
    }
}

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
    let dirs = p.directions;
    let hidden = p.hidden;
    var s: Place;
    s.d = sequence % dirs;
    let b = sequence / dirs;
    s.b = b;
    s.old_h = sequence * hidden * 4u;
    s.new_h = s.old_h + hidden;
    s.cell = s.new_h + hidden;
    s.reset = s.cell + hidden;
    s.row = select(s.d * p.batch + b, b * dirs + s.d, p.batch_first == 1u) * hidden;
    var len = p.steps;
    if (HAS_LENGTHS) {
        len = u32(clamp(near4(b), 0, i32(p.steps)));
    }
    s.runs = k < len;
    let backward = s.d == 1u || p.backward == 1u;
    let t = select(k, len - 1u - k, backward && s.runs);
    s.step = select(t * p.batch + b, b * p.steps + t, p.batch_first == 1u);
    s.x = s.step * p.inputs;
    s.y = select((t * dirs + s.d) * p.batch + b, (b * p.steps + t) * dirs + s.d, p.batch_first == 1u) * hidden;
    return s;
}

// Element j of the state before the first step.
fn start_state(s: Place, j: u32) {
    var h = 0.0;
    var c = 0.0;
    if (HAS_STATE) {
        h = x5(s.row + j);
    }
    if (HAS_CELL) {
        c = x6(s.row + j);
    }
    scratch[s.old_h + j] = bitcast<u32>(h);
    scratch[s.cell + j] = bitcast<u32>(c);
}

// A gated recurrent unit's values of all elements that the new state needs.
fn reset_state(p: RecurrentParams, s: Place, j: u32) {
    let r = activate(p, s.d, 0u, gate(p, s.d, 1u, j, s.x, s.old_h));
    if (LINEAR_BEFORE_RESET) {
        scratch[s.reset + j] = bitcast<u32>(r);
    } else {
        scratch[s.reset + j] = bitcast<u32>(r * bitcast<f32>(scratch[s.old_h + j]));
    }
}

// Element j of the new state, from that of the old one, by kind of network.
fn plain_state(p: RecurrentParams, s: Place, j: u32) -> f32 {
    return activate(p, s.d, 0u, gate(p, s.d, 0u, j, s.x, s.old_h));
}

fn gated_state(p: RecurrentParams, s: Place, j: u32, h: f32) -> f32 {
    let z = activate(p, s.d, 0u, gate(p, s.d, 0u, j, s.x, s.old_h));
    var recurrent = 0.0;
    if (LINEAR_BEFORE_RESET) {
        recurrent = bitcast<f32>(scratch[s.reset + j]) * of_state(p, s.d, 2u, j, s.old_h);
    } else {
        recurrent = of_state(p, s.d, 2u, j, s.reset);
    }
    let n = activate(p, s.d, 1u, of_input(p, s.d, 2u, j, s.x) + recurrent);
    return (1.0 - z) * n + z * h;
}

fn long_short_state(p: RecurrentParams, s: Place, j: u32) -> f32 {
    let c = bitcast<f32>(scratch[s.cell + j]);
    let i_gate = activate(p, s.d, 0u, gate(p, s.d, 0u, j, s.x, s.old_h) + peephole(p, s.d, 0u, j) * c);
    var f_gate = 1.0 - i_gate;
    if (!INPUT_FORGET) {
        f_gate = activate(p, s.d, 0u, gate(p, s.d, 2u, j, s.x, s.old_h) + peephole(p, s.d, 2u, j) * c);
    }
    let c_next = f_gate * c + i_gate * activate(p, s.d, 1u, gate(p, s.d, 3u, j, s.x, s.old_h));
    let o_gate = activate(p, s.d, 0u, gate(p, s.d, 1u, j, s.x, s.old_h) + peephole(p, s.d, 1u, j) * c_next);
    scratch[s.cell + j] = bitcast<u32>(c_next);
    return o_gate * activate(p, s.d, 2u, c_next);
}

fn make_step(p: RecurrentParams, s: Place, j: u32) {
    if (!s.runs) {
        emit0(s.y + j, 0.0);
        return;
    }
    var next = 0.0;
    if (GATES == 1u) {
        next = plain_state(p, s, j);
    } else if (GATES == 3u) {
        next = gated_state(p, s, j, bitcast<f32>(scratch[s.old_h + j]));
    } else {
        next = long_short_state(p, s, j);
    }
    scratch[s.new_h + j] = bitcast<u32>(next);
    emit0(s.y + j, next);
}

fn accept_step(s: Place, j: u32) {
    if (s.runs) {
        scratch[s.old_h + j] = scratch[s.new_h + j];
    }
}

fn finish_state(s: Place, j: u32) {
    emit1(s.row + j, bitcast<f32>(scratch[s.old_h + j]));
    if (GATES == 4u) {
        emit2(s.row + j, bitcast<f32>(scratch[s.cell + j]));
    }
}

// Steps of a launch, a workgroup a sequence.
@compute @workgroup_size(64)
fn recur(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let sequence = block_of(id, blocks);
    if (sequence >= grid()) {
        return;
    }
    let p = recurrent_params();
    let hidden = p.hidden;
    if (lo() == 0u) {
        for (var j = lane; j < hidden; j += 64u) {
            start_state(place(p, sequence, 0u), j);
        }
    }
    storageBarrier();
    for (var k = lo(); k < hi(); k++) {
        let s = place(p, sequence, k);
        if (GATES == 3u) {
            for (var j = lane; j < hidden; j += 64u) {
                if (s.runs) {
                    reset_state(p, s, j);
                }
            }
            storageBarrier();
        }
        for (var j = lane; j < hidden; j += 64u) {
            make_step(p, s, j);
        }
        storageBarrier();
        for (var j = lane; j < hidden; j += 64u) {
            accept_step(s, j);
        }
        storageBarrier();
    }
    if (hi() < p.steps) {
        return;
    }
    for (var j = lane; j < hidden; j += 64u) {
        finish_state(place(p, sequence, 0u), j);
    }
}

// Step lo() for states too wide for one workgroup, a launch for each part, a thread for each element.
@compute @workgroup_size(64)
fn wide_start(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let p = recurrent_params();
    start_state(place(p, t / p.hidden, 0u), t % p.hidden);
}

@compute @workgroup_size(64)
fn wide_reset(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let p = recurrent_params();
    let s = place(p, t / p.hidden, lo());
    if (GATES == 3u && s.runs) {
        reset_state(p, s, t % p.hidden);
    }
}

@compute @workgroup_size(64)
fn wide_step(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let p = recurrent_params();
    make_step(p, place(p, t / p.hidden, lo()), t % p.hidden);
}

@compute @workgroup_size(64)
fn wide_accept(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let p = recurrent_params();
    accept_step(place(p, t / p.hidden, lo()), t % p.hidden);
}

@compute @workgroup_size(64)
fn wide_finish(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let p = recurrent_params();
    finish_state(place(p, t / p.hidden, 0u), t % p.hidden);
}

// Stand-ins for what a generated module defines.

@group(0) @binding(1) var<storage, read_write> scratch: array<u32>;
const GATES: u32 = 4u;
const ACTIVATIONS: u32 = 3u;

const BOTH: bool = true;
const HAS_BIAS: bool = false;
const HAS_LENGTHS: bool = false;
const HAS_STATE: bool = false;
const HAS_CELL: bool = false;
const HAS_PEEPHOLES: bool = false;
const LINEAR_BEFORE_RESET: bool = false;
const INPUT_FORGET: bool = false;

fn activation0(v: f32, relu: f32) -> f32 {
    return v;
}

fn activation1(v: f32, relu: f32) -> f32 {
    return v;
}

fn activation2(v: f32, relu: f32) -> f32 {
    return v;
}

fn activation3(v: f32, relu: f32) -> f32 {
    return v;
}

fn activation4(v: f32, relu: f32) -> f32 {
    return v;
}

fn activation5(v: f32, relu: f32) -> f32 {
    return v;
}

fn x0(at: u32) -> f32 {
    return 0.0;
}

fn x1(at: u32) -> f32 {
    return 0.0;
}

fn x2(at: u32) -> f32 {
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

fn x7(at: u32) -> f32 {
    return 0.0;
}

fn near4(at: u32) -> i32 {
    return 0;
}

fn emit0(at: u32, v: f32) {
}

fn emit1(at: u32, v: f32) {
}

fn emit2(at: u32, v: f32) {
}

fn is_nan(x: f32) -> bool {
    return false;
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
