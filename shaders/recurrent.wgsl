// Recurrences: one workgroup runs one sequence in one direction, step by step. Words: 0 steps, 1 directions, 2 batch,
// 3 input size, 4 hidden size, 5 batch first, 6 backward, 7 clip, 8 first step of this launch, 9 its end. GATES is the number of gates. Scratch of a sequence:
// old state, new state, cell, reset state.

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

GROUPS recur 64 {
    let dirs = m(1u);
    let hidden = m(4u);
    let d = group % dirs;
    let b = group / dirs;
    let old_h = group * hidden * 4u;
    let new_h = old_h + hidden;
    let cell = new_h + hidden;
    let reset = cell + hidden;
    let row = select(d * m(2u) + b, b * dirs + d, m(5u) == 1u) * hidden;
    if (m(8u) == 0u) {
        for (var j = l; j < hidden; j += 64u) {
            scratch[old_h + j] = bitcast<u32>(H0);
            scratch[cell + j] = bitcast<u32>(C0);
        }
    }
    storageBarrier();
    let steps = m(0u);
    let len = LEN;
    let backward = d == 1u || m(6u) == 1u;
    for (var k = m(8u); k < m(9u); k++) {
        let runs = k < len;
        let t = select(k, len - 1u - k, backward && runs);
        let x = select(t * m(2u) + b, b * steps + t, m(5u) == 1u) * m(3u);
        let y = select((t * dirs + d) * m(2u) + b, (b * steps + t) * dirs + d, m(5u) == 1u) * hidden;
        FIRST
        for (var j = l; j < hidden; j += 64u) {
            if (runs) {
                let h = bitcast<f32>(scratch[old_h + j]);
                var next = h;
                CELL
                scratch[new_h + j] = bitcast<u32>(next);
                emit0(y + j, next);
            } else {
                emit0(y + j, 0.0);
            }
        }
        storageBarrier();
        for (var j = l; j < hidden; j += 64u) {
            if (runs) {
                scratch[old_h + j] = scratch[new_h + j];
            }
        }
        storageBarrier();
    }
    if (m(9u) < steps) {
        return;
    }
    for (var j = l; j < hidden; j += 64u) {
        emit1(row + j, bitcast<f32>(scratch[old_h + j]));
        LAST
    }
}

// ---- rnn
next = activate(d, 0u, gate(d, 0u, j, x, old_h));

// ---- gru_first
for (var j = l; j < hidden; j += 64u) {
    if (runs) {
        let r = activate(d, 0u, gate(d, 1u, j, x, old_h));
        scratch[reset + j] = bitcast<u32>(RESET);
    }
}
storageBarrier();

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
