// Steps of recurrences by all workgroups together. A workgroup makes a step of four elements of eight sequences of a direction, 64
// threads an element. All that does not depend on the products is loaded in front of them.

const UNITS: u32 = 4u;

const SHARERS: u32 = 64u;

const TOGETHER: u32 = 8u;

// Elements of states that are loaded at once, four and four more of each thread.
const CHUNK: u32 = 512u;

// Those of a fourth, and the vectors from a fourth to the next: elements of a thread are in different fourths, so that neighbouring
// threads read neighbouring vectors.
const FOURTH: u32 = CHUNK / 4u;

const STEP: u32 = FOURTH + 2u;

// Elements of four sequences and of four more; then sums of gates of four sequences.
var<workgroup> some: array<vec4<f32>, 8u * STEP>;

var<workgroup> fewer_sums: array<vec4<f32>, 512>;

// Four neighbouring weights of each gate.
struct Weights {
    x: vec4<f32>,
    y: vec4<f32>,
    z: vec4<f32>,
    w: vec4<f32>,
}

// Four weights of a line that is whole quads, from element k on; zeros behind it. Loads without branches are on their way together.
fn four_weights(row: u32, k: u32, size: u32) -> vec4<f32> {
    return select(vec4<f32>(), whole_four(row + min(k, size - 4u)), k < size);
}

fn one_weight(row: u32, k: u32, size: u32) -> f32 {
    return select(0.0, x2(row + min(k, size - 1u)), k < size);
}

// Those of any line.
fn some_weights(row: u32, k: u32, size: u32) -> vec4<f32> {
    return vec4<f32>(
        one_weight(row, k, size),
        one_weight(row, k + 1u, size),
        one_weight(row, k + 2u, size),
        one_weight(row, k + 3u, size),
    );
}

// The weights of all gates in a row and those after it, from element k of the old state.
fn whole_weights(p: RecurrentParams, row: u32, k: u32) -> Weights {
    let step = p.hidden * p.hidden;
    var w = Weights();
    w.x = four_weights(row, k, p.hidden);
    if (GATES > 1u) {
        w.y = four_weights(row + step, k, p.hidden);
        w.z = four_weights(row + 2u * step, k, p.hidden);
    }
    if (GATES > 3u) {
        w.w = four_weights(row + 3u * step, k, p.hidden);
    }
    return w;
}

fn broken_weights(p: RecurrentParams, row: u32, k: u32) -> Weights {
    let step = p.hidden * p.hidden;
    var w = Weights();
    w.x = some_weights(row, k, p.hidden);
    if (GATES > 1u) {
        w.y = some_weights(row + step, k, p.hidden);
        w.z = some_weights(row + 2u * step, k, p.hidden);
    }
    if (GATES > 3u) {
        w.w = some_weights(row + 3u * step, k, p.hidden);
    }
    return w;
}

// The biases of the gates that new states come from.
fn state_biases(p: RecurrentParams, d: u32, j: u32) -> vec4<f32> {
    var sums = vec4<f32>();
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

// The new state of long short-term memory, whose cell is c and at this place.
fn long_short(p: RecurrentParams, d: u32, j: u32, sums: vec4<f32>, c: f32, cell: u32) -> f32 {
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

// Operands of an element of a new state beside products of states.
struct Unit {
    // Whether there is such an element.
    exists: bool,
    runs: bool,
    // Its place among the elements of states, and in the result.
    at: u32,
    y: u32,
    j: u32,
    old: f32,
    cell: f32,
    inputs: vec4<f32>,
    biases: vec4<f32>,
}

fn unit_of(p: RecurrentParams, k: u32, d: u32, b: u32, j: u32) -> Unit {
    var u = Unit();
    u.exists = b < p.batch && j < p.hidden;
    if (!u.exists) {
        return u;
    }
    let sequence = b * p.directions + d;
    let s = place(p, sequence, k);
    u.runs = s.runs;
    u.at = sequence * p.hidden + j;
    u.y = s.y + j;
    u.j = j;
    u.old = bitcast<f32>(scratch[old_states(p, k) + u.at]);
    if (GATES == 4u) {
        u.cell = bitcast<f32>(scratch[2u * states_count(p) + u.at]);
    }
    if (s.runs) {
        u.inputs = input_sums(p, d, s.step, j);
    }
    u.biases = state_biases(p, d, j);
    return u;
}

// Finishes an element with the sums of its products.
fn finish_unit(p: RecurrentParams, k: u32, d: u32, u: Unit, products: vec4<f32>) {
    if (!u.exists) {
        return;
    }
    if (!u.runs) {
        scratch[new_states(p, k) + u.at] = bitcast<u32>(u.old);
        emit0(u.y, 0.0);
        return;
    }
    let sums = products + u.biases;
    var next = 0.0;
    if (GATES == 1u) {
        next = activate(p, d, 0u, u.inputs.x + sums.x);
    } else if (GATES == 3u) {
        next = gated(p, d, u.inputs, sums, u.old);
    } else {
        next = long_short(p, d, u.j, u.inputs + sums, u.cell, 2u * states_count(p) + u.at);
    }
    scratch[new_states(p, k) + u.at] = bitcast<u32>(next);
    emit0(u.y, next);
}

// Element k of the old state of a sequence; 0 where there is none.
fn state_of(p: RecurrentParams, old: u32, d: u32, b: u32, k: u32) -> f32 {
    let at = old + (min(b, p.batch - 1u) * p.directions + d) * p.hidden + min(k, p.hidden - 1u);
    return select(0.0, bitcast<f32>(scratch[at]), b < p.batch && k < p.hidden);
}

// Loads elements of the old states of eight sequences, from element `first` on.
fn load_states(p: RecurrentParams, old: u32, d: u32, b0: u32, first: u32, lane: u32) {
    for (var e = lane; e < 2u * CHUNK; e += 256u) {
        let k = e % CHUNK;
        let b = b0 + e / CHUNK * 4u;
        some[(e / CHUNK * 4u + k % 4u) * STEP + k / 4u] = vec4<f32>(
            state_of(p, old, d, b, first + k),
            state_of(p, old, d, b + 1u, first + k),
            state_of(p, old, d, b + 2u, first + k),
            state_of(p, old, d, b + 3u, first + k),
        );
    }
}

// Sums of the gates of eight sequences.
struct EightSums {
    a: vec4<f32>,
    b: vec4<f32>,
    c: vec4<f32>,
    d: vec4<f32>,
    e: vec4<f32>,
    f: vec4<f32>,
    g: vec4<f32>,
    h: vec4<f32>,
}

// Adds products of the weights of an element, one of each gate, and the states that they are for.
fn add_products(s: EightSums, w: vec4<f32>, at: u32) -> EightSums {
    let few = some[at];
    let more = some[at + 4u * STEP];
    return EightSums(
        s.a + w * few.x,
        s.b + w * few.y,
        s.c + w * few.z,
        s.d + w * few.w,
        s.e + w * more.x,
        s.f + w * more.y,
        s.g + w * more.z,
        s.h + w * more.w,
    );
}

fn add_four(s: EightSums, w: Weights, at: u32) -> EightSums {
    let a = add_products(s, vec4<f32>(w.x.x, w.y.x, w.z.x, w.w.x), at);
    let b = add_products(a, vec4<f32>(w.x.y, w.y.y, w.z.y, w.w.y), at + STEP);
    let c = add_products(b, vec4<f32>(w.x.z, w.y.z, w.z.z, w.w.z), at + 2u * STEP);
    return add_products(c, vec4<f32>(w.x.w, w.y.w, w.z.w, w.w.w), at + 3u * STEP);
}

// Sums of four sequences from all threads of an element to sixteen.
fn put_fewer(a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>, first: u32, lane: u32) {
    workgroupBarrier();
    some[lane] = a;
    some[lane + 256u] = b;
    some[lane + 512u] = c;
    some[lane + 768u] = d;
    workgroupBarrier();
    let at = lane / 16u % 4u * 256u + lane / 64u * SHARERS + lane % 16u;
    fewer_sums[first + lane] = (some[at] + some[at + 16u]) + (some[at + 32u] + some[at + 48u]);
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
    // The first row of weights of this thread's element; sums of elements beyond the last one are not used.
    let row = (d * GATES * p.hidden + min(j0 + lane / SHARERS, p.hidden - 1u)) * p.hidden;
    let own = lane % SHARERS;
    let old = old_states(p, lo());
    var unit = Unit();
    if (lane < UNITS * TOGETHER) {
        unit = unit_of(p, lo(), d, b0 + lane % TOGETHER, j0 + lane / TOGETHER);
    }
    var s = EightSums();
    for (var first = 0u; first < p.hidden; first += CHUNK) {
        let k = first + own * 4u;
        var few = Weights();
        var more = Weights();
        if (p.hidden % 4u == 0u) {
            few = whole_weights(p, row, k);
            more = whole_weights(p, row, k + CHUNK / 2u);
        } else {
            few = broken_weights(p, row, k);
            more = broken_weights(p, row, k + CHUNK / 2u);
        }
        load_states(p, old, d, b0, first, lane);
        workgroupBarrier();
        s = add_four(s, few, own);
        s = add_four(s, more, own + SHARERS);
        workgroupBarrier();
    }
    put_fewer(s.a, s.b, s.c, s.d, 0u, lane);
    put_fewer(s.e, s.f, s.g, s.h, 256u, lane);
    workgroupBarrier();
    if (lane < UNITS * TOGETHER) {
        let at = (lane % TOGETHER / 4u * 16u + lane / TOGETHER * 4u + lane % 4u) * 16u;
        var sum = fewer_sums[at];
        for (var i = 1u; i < 16u; i++) {
            sum += fewer_sums[at + i];
        }
        finish_unit(p, lo(), d, unit, sum);
    }
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

fn whole_four(at: u32) -> vec4<f32> {
    return vec4<f32>();
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
