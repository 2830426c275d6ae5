// Steps of recurrences by all workgroups together. A workgroup makes a step of eight elements of eight sequences of a direction, 32
// threads an element.

const UNITS: u32 = 8u;

const SHARERS: u32 = 32u;

const TOGETHER: u32 = 8u;

// Elements of states that are loaded at once.
const CHUNK: u32 = 256u;

// Elements of four sequences and of four more.
var<workgroup> some_states: array<vec4<f32>, 512>;

var<workgroup> some_sums: array<vec4<f32>, 1024>;

var<workgroup> fewer_sums: array<vec4<f32>, 256>;

// The weights of all gates for element j of the state, from element k of the old one.
fn weights_of(p: RecurrentParams, d: u32, j: u32, k: u32) -> vec4<f32> {
    let step = p.hidden * p.hidden;
    let at = (d * GATES * p.hidden + j) * p.hidden + k;
    var w = vec4<f32>(x2(at), 0.0, 0.0, 0.0);
    if (GATES > 1u) {
        w.y = x2(at + step);
        w.z = x2(at + 2u * step);
    }
    if (GATES > 3u) {
        w.w = x2(at + 3u * step);
    }
    return w;
}

// The sums of gates that new states come from, with the biases of states.
fn state_sums(p: RecurrentParams, d: u32, j: u32, found: vec4<f32>) -> vec4<f32> {
    var sums = found;
    if (HAS_BIAS) {
        let at = d * (GATES * p.hidden) * 2u + GATES * p.hidden + j;
        sums.x += x3(at);
        if (GATES > 1u) {
            sums.y += x3(at + p.hidden);
            sums.z += x3(at + 2u * p.hidden);
        }
        if (GATES > 3u) {
            sums.w += x3(at + 3u * p.hidden);
        }
    }
    return sums;
}

fn input_sums(p: RecurrentParams, d: u32, input: u32, j: u32) -> vec4<f32> {
    let at = product_at(p, d, input, j);
    var sums = vec4<f32>(bitcast<f32>(scratch[at]), 0.0, 0.0, 0.0);
    if (GATES > 1u) {
        sums.y = bitcast<f32>(scratch[at + p.hidden]);
        sums.z = bitcast<f32>(scratch[at + 2u * p.hidden]);
    }
    if (GATES > 3u) {
        sums.w = bitcast<f32>(scratch[at + 3u * p.hidden]);
    }
    return sums;
}

// The new state of a gated recurrent unit whose gate is applied behind the product.
fn gated(p: RecurrentParams, d: u32, a: vec4<f32>, b: vec4<f32>, h: f32) -> f32 {
    let z = activate(p, d, 0u, a.x + b.x);
    let r = activate(p, d, 0u, a.y + b.y);
    let n = activate(p, d, 1u, a.z + r * b.z);
    return (1.0 - z) * n + z * h;
}

// The new state of long short-term memory, whose cell is at this place.
fn long_short(p: RecurrentParams, d: u32, j: u32, sums: vec4<f32>, cell: u32) -> f32 {
    let c = bitcast<f32>(scratch[cell]);
    let i_gate = activate(p, d, 0u, sums.x + peephole(p, d, 0u, j) * c);
    var f_gate = 1.0 - i_gate;
    if (!INPUT_FORGET) {
        f_gate = activate(p, d, 0u, sums.z + peephole(p, d, 2u, j) * c);
    }
    let c_next = f_gate * c + i_gate * activate(p, d, 1u, sums.w);
    let o_gate = activate(p, d, 0u, sums.y + peephole(p, d, 1u, j) * c_next);
    scratch[cell] = bitcast<u32>(c_next);
    return o_gate * activate(p, d, 2u, c_next);
}

// Finishes element j of sequence b of a direction.
fn finish_unit(p: RecurrentParams, k: u32, d: u32, b: u32, j: u32, found: vec4<f32>) {
    if (b >= p.batch || j >= p.hidden) {
        return;
    }
    let sequence = b * p.directions + d;
    let s = place(p, sequence, k);
    let at = sequence * p.hidden + j;
    let h = bitcast<f32>(scratch[old_states(p, k) + at]);
    if (!s.runs) {
        scratch[new_states(p, k) + at] = bitcast<u32>(h);
        emit0(s.y + j, 0.0);
        return;
    }
    let a = input_sums(p, d, s.step, j);
    let b_sums = state_sums(p, d, j, found);
    var next = 0.0;
    if (GATES == 1u) {
        next = activate(p, d, 0u, a.x + b_sums.x);
    } else if (GATES == 3u) {
        next = gated(p, d, a, b_sums, h);
    } else {
        next = long_short(p, d, j, a + b_sums, 2u * states_count(p) + at);
    }
    scratch[new_states(p, k) + at] = bitcast<u32>(next);
    emit0(s.y + j, next);
}

// Adds up what the threads of an element have for four sequences, from the first one on, and finishes them.
fn finish_four_sequences(p: RecurrentParams, k: u32, d: u32, b: u32, j0: u32, lane: u32) {
    // Eight threads for each element and sequence.
    let unit = lane / 32u;
    let sequence = lane / 8u % 4u;
    let at = sequence * 256u + unit * SHARERS + lane % 8u;
    fewer_sums[lane] = some_sums[at] + some_sums[at + 8u] + some_sums[at + 16u] + some_sums[at + 24u];
    workgroupBarrier();
    if (lane % 8u == 0u) {
        var sum = fewer_sums[lane];
        for (var i = 1u; i < 8u; i++) {
            sum += fewer_sums[lane + i];
        }
        finish_unit(p, k, d, b + sequence, j0 + unit, sum);
    }
    workgroupBarrier();
}

// Step lo() of the states of some elements and sequences.
@compute @workgroup_size(256)
fn recur_step(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let block = block_of(id, blocks);
    if (block >= grid()) {
        return;
    }
    let p = recurrent_params();
    let across = (p.hidden + UNITS - 1u) / UNITS;
    let groups = (p.batch + TOGETHER - 1u) / TOGETHER;
    let j0 = block % across * UNITS;
    let b0 = block / across % groups * TOGETHER;
    let d = block / across / groups;
    let j = j0 + lane / SHARERS;
    let old = old_states(p, lo());
    var a0 = vec4<f32>();
    var a1 = vec4<f32>();
    var a2 = vec4<f32>();
    var a3 = vec4<f32>();
    var a4 = vec4<f32>();
    var a5 = vec4<f32>();
    var a6 = vec4<f32>();
    var a7 = vec4<f32>();
    for (var first = 0u; first < p.hidden; first += CHUNK) {
        for (var e = lane; e < CHUNK * TOGETHER; e += 256u) {
            let b = b0 + e / CHUNK;
            let k = e % CHUNK;
            var h = 0.0;
            if (b < p.batch && first + k < p.hidden) {
                h = bitcast<f32>(scratch[old + (b * p.directions + d) * p.hidden + first + k]);
            }
            some_states[e / CHUNK / 4u * CHUNK + k][e / CHUNK % 4u] = h;
        }
        workgroupBarrier();
        if (j < p.hidden) {
            for (var k = lane % SHARERS; k < min(CHUNK, p.hidden - first); k += SHARERS) {
                let w = weights_of(p, d, j, first + k);
                let few = some_states[k];
                let more = some_states[k + CHUNK];
                a0 += w * few.x;
                a1 += w * few.y;
                a2 += w * few.z;
                a3 += w * few.w;
                a4 += w * more.x;
                a5 += w * more.y;
                a6 += w * more.z;
                a7 += w * more.w;
            }
        }
        workgroupBarrier();
    }
    some_sums[lane] = a0;
    some_sums[lane + 256u] = a1;
    some_sums[lane + 512u] = a2;
    some_sums[lane + 768u] = a3;
    workgroupBarrier();
    finish_four_sequences(p, lo(), d, b0, j0, lane);
    some_sums[lane] = a4;
    some_sums[lane + 256u] = a5;
    some_sums[lane + 512u] = a6;
    some_sums[lane + 768u] = a7;
    workgroupBarrier();
    finish_four_sequences(p, lo(), d, b0 + 4u, j0, lane);
}

// Stand-ins for what a generated module and the other files of recurrences define.

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

fn activate(p: RecurrentParams, d: u32, n: u32, value: f32) -> f32 {
    return value;
}

fn peephole(p: RecurrentParams, d: u32, g: u32, j: u32) -> f32 {
    return 0.0;
}

fn states_count(p: RecurrentParams) -> u32 {
    return p.hidden;
}

fn product_at(p: RecurrentParams, d: u32, input: u32, j: u32) -> u32 {
    return j;
}

fn old_states(p: RecurrentParams, k: u32) -> u32 {
    return k;
}

fn new_states(p: RecurrentParams, k: u32) -> u32 {
    return k;
}

@group(0) @binding(1) var<storage, read_write> scratch: array<u32>;

const GATES: u32 = 4u;

const HAS_BIAS: bool = false;

const INPUT_FORGET: bool = false;

fn x2(at: u32) -> f32 {
    return 0.0;
}

fn x3(at: u32) -> f32 {
    return 0.0;
}

fn emit0(at: u32, v: f32) {
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
