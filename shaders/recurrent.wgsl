// Recurrences: one workgroup runs one sequence in one direction, step by step. Words: 0 steps, 1 directions, 2 batch,
// 3 input size, 4 hidden size, 5 batch first, 6 backward, 7 clip. GATES is the number of gates. A launch makes steps
// lo() .. hi(). Scratch of a sequence: old state, new state, cell, reset state.

fn of_input(d: u32, gate: u32, j: u32, x: u32) -> f32 {
    let row = (d * GATESu + gate) * m(4u) + j;
    var sum = 0.0;
    for (var i = 0u; i < m(3u); i++) {
        sum += x1(row * m(3u) + i) * x0(x + i);
    }
    BIAS_W
    return sum;
}

fn of_state(d: u32, gate: u32, j: u32, h: u32) -> f32 {
    let row = (d * GATESu + gate) * m(4u) + j;
    var sum = 0.0;
    for (var i = 0u; i < m(4u); i++) {
        sum += x2(row * m(4u) + i) * bitcast<f32>(scratch[h + i]);
    }
    BIAS_R
    return sum;
}

fn gate(d: u32, g: u32, j: u32, x: u32, h: u32) -> f32 {
    return of_input(d, g, j, x) + of_state(d, g, j, h);
}

fn peep(d: u32, g: u32, j: u32) -> f32 {
    PEEP
}

fn activate(d: u32, k: u32, value: f32) -> f32 {
    var v = value;
    if (mf(7u) > 0.0 && !is_nan(v)) {
        v = clamp(v, -mf(7u), mf(7u));
    }
    let relu = select(v, 0.0, v < 0.0);
    switch (d * ACTIVATIONSu + k) {
        CASES
        default: { return v; }
    }
}

// Where a sequence and one of its steps lie.
struct Place {
    d: u32,
    b: u32,
    old_h: u32,
    new_h: u32,
    cell: u32,
    reset: u32,
    row: u32,
    x: u32,
    y: u32,
    runs: bool,
}

fn place(group: u32, k: u32) -> Place {
    let dirs = m(1u);
    let hidden = m(4u);
    let steps = m(0u);
    var p: Place;
    p.d = group % dirs;
    let b = group / dirs;
    p.b = b;
    p.old_h = group * hidden * 4u;
    p.new_h = p.old_h + hidden;
    p.cell = p.new_h + hidden;
    p.reset = p.cell + hidden;
    p.row = select(p.d * m(2u) + b, b * dirs + p.d, m(5u) == 1u) * hidden;
    let len = LEN;
    p.runs = k < len;
    let backward = p.d == 1u || m(6u) == 1u;
    let t = select(k, len - 1u - k, backward && p.runs);
    p.x = select(t * m(2u) + b, b * steps + t, m(5u) == 1u) * m(3u);
    p.y = select((t * dirs + p.d) * m(2u) + b, (b * steps + t) * dirs + p.d, m(5u) == 1u) * hidden;
    return p;
}

// Element j of the state before the first step.
fn start(p: Place, j: u32) {
    let b = p.b;
    let row = p.row;
    scratch[p.old_h + j] = bitcast<u32>(H0);
    scratch[p.cell + j] = bitcast<u32>(C0);
}

// What element j of a step needs of all others: the state that a gate has reset.
fn reset_state(p: Place, j: u32) {
    let d = p.d;
    let x = p.x;
    let old_h = p.old_h;
    let reset = p.reset;
    FIRST
}

// Element j of the new state.
fn step(p: Place, j: u32) {
    if (!p.runs) {
        emit0(p.y + j, 0.0);
        return;
    }
    let d = p.d;
    let x = p.x;
    let old_h = p.old_h;
    let cell = p.cell;
    let reset = p.reset;
    let h = bitcast<f32>(scratch[old_h + j]);
    var next = h;
    CELL
    scratch[p.new_h + j] = bitcast<u32>(next);
    emit0(p.y + j, next);
}

fn accept(p: Place, j: u32) {
    if (p.runs) {
        scratch[p.old_h + j] = scratch[p.new_h + j];
    }
}

fn finish_state(p: Place, j: u32) {
    let row = p.row;
    let cell = p.cell;
    emit1(row + j, bitcast<f32>(scratch[p.old_h + j]));
    LAST
}

// Steps of a launch, one workgroup a sequence.
GROUPS recur 64 {
    let hidden = m(4u);
    if (lo() == 0u) {
        for (var j = l; j < hidden; j += 64u) {
            start(place(group, 0u), j);
        }
    }
    storageBarrier();
    for (var k = lo(); k < hi(); k++) {
        let p = place(group, k);
        FIRST_LOOP
        for (var j = l; j < hidden; j += 64u) {
            step(p, j);
        }
        storageBarrier();
        for (var j = l; j < hidden; j += 64u) {
            accept(p, j);
        }
        storageBarrier();
    }
    if (hi() < m(0u)) {
        return;
    }
    for (var j = l; j < hidden; j += 64u) {
        finish_state(place(group, 0u), j);
    }
}

// The same of step lo() for states too wide for one workgroup, a launch for each part, a thread for each element.
THREADS wide_start {
    start(place(t / m(4u), 0u), t % m(4u));
}

THREADS wide_reset {
    let p = place(t / m(4u), lo());
    if (p.runs) {
        reset_state(p, t % m(4u));
    }
}

THREADS wide_step {
    step(place(t / m(4u), lo()), t % m(4u));
}

THREADS wide_accept {
    accept(place(t / m(4u), lo()), t % m(4u));
}

THREADS wide_finish {
    finish_state(place(t / m(4u), 0u), t % m(4u));
}

// ---- rnn
next = activate(d, 0u, gate(d, 0u, j, x, old_h));

// ---- gru_loop
for (var j = l; j < hidden; j += 64u) {
    if (p.runs) {
        reset_state(p, j);
    }
}
storageBarrier();

// ---- gru_first
let r = activate(d, 0u, gate(d, 1u, j, x, old_h));
scratch[reset + j] = bitcast<u32>(RESET);

// ---- gru
let z = activate(d, 0u, gate(d, 0u, j, x, old_h));
let n = activate(d, 1u, of_input(d, 2u, j, x) + RECURRENT);
next = (1.0 - z) * n + z * h;

// ---- lstm
let c = bitcast<f32>(scratch[cell + j]);
let i_gate = activate(d, 0u, gate(d, 0u, j, x, old_h) + peep(d, 0u, j) * c);
let f_gate = FORGET;
let c_next = f_gate * c + i_gate * activate(d, 1u, gate(d, 3u, j, x, old_h));
let o_gate = activate(d, 0u, gate(d, 1u, j, x, old_h) + peep(d, 1u, j) * c_next);
scratch[cell + j] = bitcast<u32>(c_next);
next = o_gate * activate(d, 2u, c_next);
