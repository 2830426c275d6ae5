// Recurrences: one workgroup runs one sequence in one direction, step by step. Words: 0 steps, 1 directions, 2 batch,
// 3 input size, 4 hidden size, 5 batch first, 6 backward, 7 clip, 8 first step of this launch, 9 its end. GATES is the number of gates. Scratch of a sequence:
// old state, new state, cell, reset state.

DEV f32 of_input(u32 d, u32 gate, u32 j, u32 x) const {
    const auto row = (d * GATESu + gate) * m(4u) + j;
    f32 sum = 0.0f;
    for (u32 i = 0u; i < m(3u); i++) {
        mac(sum, x1(row * m(3u) + i), x0(x + i));
    }
    BIAS_W
    return sum;
}

DEV f32 of_state(u32 d, u32 gate, u32 j, u32 h) const {
    const auto row = (d * GATESu + gate) * m(4u) + j;
    f32 sum = 0.0f;
    for (u32 i = 0u; i < m(4u); i++) {
        mac(sum, x2(row * m(4u) + i), bitcast<f32>(scratch[h + i]));
    }
    BIAS_R
    return sum;
}

DEV f32 gate(u32 d, u32 g, u32 j, u32 x, u32 h) const {
    return of_input(d, g, j, x) + of_state(d, g, j, h);
}

DEV f32 peep(u32 d, u32 g, u32 j) const {
    PEEP
}

DEV f32 activate(u32 d, u32 k, f32 value) const {
    auto v = value;
    if (mf(7u) > 0.0f && !is_nan(v)) {
        v = clamp(v, -mf(7u), mf(7u));
    }
    const auto relu = select(v, 0.0f, v < 0.0f);
    switch (d * ACTIVATIONSu + k) {
        CASES
        default: { return v; }
    }
}

GROUPS recur 256 {
    const auto dirs = m(1u);
    const auto hidden = m(4u);
    const auto d = group % dirs;
    const auto b = group / dirs;
    const auto old_h = group * hidden * 4u;
    const auto new_h = old_h + hidden;
    const auto cell = new_h + hidden;
    const auto reset = cell + hidden;
    const auto row = select(d * m(2u) + b, b * dirs + d, m(5u) == 1u) * hidden;
    if (m(8u) == 0u) {
        for (auto j = l; j < hidden; j += LANES) {
            scratch[old_h + j] = bitcast<u32>(H0);
            scratch[cell + j] = bitcast<u32>(C0);
        }
    }
    __syncthreads();
    const auto steps = m(0u);
    const auto len = LEN;
    const auto backward = d == 1u || m(6u) == 1u;
    for (auto k = m(8u); k < m(9u); k++) {
        const auto runs = k < len;
        const auto t = select(k, len - 1u - k, backward && runs);
        const auto x = select(t * m(2u) + b, b * steps + t, m(5u) == 1u) * m(3u);
        const auto y = select((t * dirs + d) * m(2u) + b, (b * steps + t) * dirs + d, m(5u) == 1u) * hidden;
        FIRST
        for (auto j = l; j < hidden; j += LANES) {
            if (runs) {
                const auto h = bitcast<f32>(scratch[old_h + j]);
                auto next = h;
                CELL
                scratch[new_h + j] = bitcast<u32>(next);
                emit0(y + j, next);
            } else {
                emit0(y + j, 0.0f);
            }
        }
        __syncthreads();
        for (auto j = l; j < hidden; j += LANES) {
            if (runs) {
                scratch[old_h + j] = scratch[new_h + j];
            }
        }
        __syncthreads();
    }
    if (m(9u) < steps) {
        return;
    }
    for (auto j = l; j < hidden; j += LANES) {
        emit1(row + j, bitcast<f32>(scratch[old_h + j]));
        LAST
    }
}

// ---- rnn
next = activate(d, 0u, gate(d, 0u, j, x, old_h));

// ---- gru_first
for (auto j = l; j < hidden; j += LANES) {
    if (runs) {
        const auto r = activate(d, 0u, gate(d, 1u, j, x, old_h));
        scratch[reset + j] = bitcast<u32>(RESET);
    }
}
__syncthreads();

// ---- gru
const auto z = activate(d, 0u, gate(d, 0u, j, x, old_h));
const auto n = activate(d, 1u, of_input(d, 2u, j, x) + RECURRENT);
next = (1.0f - z) * n + z * h;

// ---- lstm
const auto c = bitcast<f32>(scratch[cell + j]);
const auto i_gate = activate(d, 0u, gate(d, 0u, j, x, old_h) + peep(d, 0u, j) * c);
const auto f_gate = FORGET;
const auto c_next = f_gate * c + i_gate * activate(d, 1u, gate(d, 3u, j, x, old_h));
const auto o_gate = activate(d, 0u, gate(d, 1u, j, x, old_h) + peep(d, 1u, j) * c_next);
scratch[cell + j] = bitcast<u32>(c_next);
next = o_gate * activate(d, 2u, c_next);
