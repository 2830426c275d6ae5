// Recurrences of few units: a block runs one sequence of one direction, alone, and its threads keep the weights. The products with the
// input come from a launch before (inputs.cuh, inputs_f32.cuh); those of AHEAD steps are on their way at once.
//
// After a product lane l has the sum of row l % 4 of each of its quads (quads.cuh): a gate of a unit, or a unit of a plain network.
// Lanes of a unit exchange gates, and the one that has the last gate leaves the new state for all threads. Two buffers take turns. A
// GRU whose reset gate comes before the product has two products a step: the second one is with states times that gate, which are in
// the other buffer.
#pragma once
#include "quads.cuh"
#include "units.cuh"

// The value of lane i of four.
DEV f32 of_lane(f32 v, u32 i) { return __shfl_sync(~0u, v, i, 4); }

// The activation of a gate of an LSTM, in the order i o f c. By tanh all lanes go the same way.
template <class K> DEV f32 gate_of(const K& k, const RecurrentChipParams& p, u32 d, u32 gate, f32 value) {
    const bool last = gate == 3u;
    if constexpr (K::BY_TANH) {
        const f32 v = clipped<K>(p, value);
        const f32 y = k.activation(d * K::PER_DIRECTION + 1u, last ? v : 0.5f * v, 0.0f);
        return last ? y : __fmaf_rn(0.5f, y, 0.5f);
    } else {
        return activate(k, p, d, last ? 1u : 0u, value);
    }
}

// Numbers that a thread keeps for its row of a quad from step to step.
template <class K> struct Unit {
    f32 bias, input_bias, peephole, cell, next;

    DEV void begin(const K& k, u32 d, u32 gate, u32 j, u32 at) {
        bias = bias_of(k, d, gate, j);
        input_bias = K::GRU && !K::RESET_FIRST && gate == 2u ? input_bias_of(k, d, j) : 0.0f;
        peephole = 0.0f;
        if constexpr (K::PEEPHOLES) {
            peephole = gate < 3u ? k.x7((d * 3u + gate) * K::HIDDEN + j) : 0.0f;
        }
        cell = 0.0f;
        if constexpr (K::CELL) {
            cell = k.x6(at + j);
        }
    }

    // The next state of an LSTM's unit, in lane 1, of the sum of this lane's gate.
    DEV f32 lstm(const K& k, const RecurrentChipParams& p, u32 d, u32 gate, f32 v) {
        const f32 y = gate_of(k, p, d, gate, !K::PEEPHOLES || gate == 1u ? v : v + peephole * cell);
        const f32 i = of_lane(y, 0u);
        const f32 c = of_lane(y, 3u);
        const f32 f = K::INPUT_FORGET ? 1.0f - i : of_lane(y, 2u);
        cell = f * cell + i * c;
        const f32 o = K::PEEPHOLES ? activate(k, p, d, 0u, v + peephole * cell) : y;
        return o * activate(k, p, d, 2u, cell);
    }

    // Goes on by products with the input `x` and with the states `sum`, from the state h.
    DEV void go(const K& k, const RecurrentChipParams& p, u32 d, u32 gate, f32 x, f32 sum, f32 h) {
        if constexpr (K::LSTM) {
            next = lstm(k, p, d, gate, (x + bias) + sum);
        } else if constexpr (K::GRU) {
            const f32 y = activate(k, p, d, 0u, (x + bias) + sum);
            const f32 z = of_lane(y, 0u);
            const f32 n = activate(k, p, d, 1u, (x + input_bias) + of_lane(y, 1u) * (sum + bias));
            next = (1.0f - z) * n + z * h;
        } else {
            next = activate(k, p, d, 0u, (x + bias) + sum);
        }
    }
};

// Waits for all threads of the block.
template <class K> DEV void meet() {
    if constexpr (K::THREADS == 32u) {
        __syncwarp();
    } else {
        __syncthreads();
    }
}

template <class K> DEV void recur(const K& k) {
    typedef Quads<K> Q;
    __shared__ __align__(16) f32 states[2u * Q::PADDED];
    constexpr u32 HIDDEN = K::HIDDEN;
    constexpr u32 QUADS = K::QUADS;
    constexpr u32 AHEAD = K::AHEAD;
    const auto& p = params<RecurrentChipParams>(k);
    Q own;
    const u32 l = own.l;
    const u32 d = blockIdx.x % p.directions;
    const u32 b = blockIdx.x / p.directions;
    const bool first = p.batch_first == 1u;
    const bool backward = d == 1u || p.backward == 1u;
    const u32 steps = p.steps;
    const u32 length = length_of(k, p, b);
    const u32 state = state_of<K>(p, d, b);
    const f32* products = reinterpret_cast<const f32*>(k.scratch);
    own.hold(k, d);
    for (u32 e = l; e < 2u * Q::PADDED; e += K::THREADS) {
        states[e] = e < HIDDEN ? first_state(k, state + e) : 0.0f;
    }
    // The gate of this lane, and the lanes that have new states.
    const u32 gate = Q::PLAIN ? 0u : l % 4u;
    const bool owns = Q::PLAIN ? l % Q::SPLIT < 4u : l % Q::SPLIT == (K::LSTM ? 1u : 2u);
    Unit<K> units[QUADS];
#pragma unroll
    for (u32 q = 0u; q < QUADS; q++) {
        units[q] = {};
        if (own.unit(q) < HIDDEN && gate < K::GATES) {
            units[q].begin(k, d, gate, own.unit(q), state);
        }
    }
    const auto inside = [&](u32 q) { return owns && own.unit(q) < HIDDEN; };
    const auto result_at = [&](u32 t) {
        return (first ? (b * steps + t) * p.directions + d : (t * p.directions + d) * p.batch + b) * HIDDEN;
    };
    // Places of a step's results and of its products with the input, and how far it is to those of the next step.
    const u32 begin = backward ? length - 1u : 0u;
    const u32 distance = (first ? 1u : p.batch) * p.directions * HIDDEN;
    const u32 onward = backward ? 0u - distance : distance;
    u32 to = result_at(begin);
    u32 from = ((first ? b * steps + begin : begin * p.batch + b) * p.directions + d) * K::GATES * HIDDEN;
    u32 column[QUADS];
#pragma unroll
    for (u32 q = 0u; q < QUADS; q++) {
        column[q] = own.unit(q) < HIDDEN && gate < K::GATES ? gate * HIDDEN + own.unit(q) : 0u;
    }
    // Products of the next step that has none yet; behind the last step, those again.
    u32 left = length;
    f32 given[AHEAD][QUADS];
    const auto fetch = [&](f32 (&x)[QUADS]) {
#pragma unroll
        for (u32 q = 0u; q < QUADS; q++) {
            x[q] = products[from + column[q]];
        }
        if (left > 1u) {
            left--;
            from += onward * K::GATES;
        }
    };
#pragma unroll
    for (u32 a = 0u; a + 1u < AHEAD; a++) {
        if (length > 0u) {
            fetch(given[a]);
        }
    }
    __syncthreads();
    for (u32 step = 0u; step < length; step += AHEAD) {
#pragma unroll
        for (u32 a = 0u; a < AHEAD; a++) {
            if (step + a >= length) {
                break;
            }
            const f32* now = states + (K::RESET_FIRST ? 0u : a % 2u * Q::PADDED);
            f32* other = states + (K::RESET_FIRST ? 0u : (a + 1u) % 2u * Q::PADDED);
            if constexpr (K::RESET_FIRST) {
                f32 h[QUADS], z[QUADS];
                f32 gates[QUADS][2] = {};
                f32 sums[QUADS][1] = {};
                own.template multiply<0u, 2u>(now, gates);
                fetch(given[(a + AHEAD - 1u) % AHEAD]);
#pragma unroll
                for (u32 q = 0u; q < QUADS; q++) {
                    h[q] = own.unit(q) < HIDDEN ? now[own.unit(q)] : 0.0f;
                    z[q] = activate(k, p, d, 0u, (given[a][q] + units[q].bias) + own.total(gates[q]));
                    if (l % Q::SPLIT == 1u && own.unit(q) < HIDDEN) {
                        states[Q::PADDED + own.unit(q)] = z[q] * h[q];
                    }
                }
                meet<K>();
                own.template multiply<2u, 1u>(states + Q::PADDED, sums);
#pragma unroll
                for (u32 q = 0u; q < QUADS; q++) {
                    z[q] = of_lane(z[q], 0u);
                    const f32 n = activate(k, p, d, 1u, (given[a][q] + units[q].bias) + own.total(sums[q]));
                    units[q].next = (1.0f - z[q]) * n + z[q] * h[q];
                }
            } else {
                f32 sums[QUADS][Q::ROWS] = {};
                own.template multiply<0u, Q::ROWS>(now, sums);
                fetch(given[(a + AHEAD - 1u) % AHEAD]);
#pragma unroll
                for (u32 q = 0u; q < QUADS; q++) {
                    const f32 h = K::GRU && own.unit(q) < HIDDEN ? now[own.unit(q)] : 0.0f;
                    units[q].go(k, p, d, gate, given[a][q], own.total(sums[q]), h);
                }
            }
#pragma unroll
            for (u32 q = 0u; q < QUADS; q++) {
                if (inside(q)) {
                    other[own.unit(q)] = units[q].next;
                }
            }
            meet<K>();
            // Others wait for the states, nobody for the results.
#pragma unroll
            for (u32 q = 0u; q < QUADS; q++) {
                if (inside(q)) {
                    k.emit0(to + own.unit(q), units[q].next);
                }
            }
            to += onward;
        }
    }
    for (u32 e = l; e < (steps - length) * HIDDEN; e += K::THREADS) {
        k.emit0(result_at(length + e / HIDDEN) + e % HIDDEN, 0.0f);
    }
    const f32* last = states + (K::RESET_FIRST ? 0u : length % 2u * Q::PADDED);
    for (u32 e = l; e < HIDDEN; e += K::THREADS) {
        k.emit1(state + e, last[e]);
    }
    if constexpr (K::LSTM) {
#pragma unroll
        for (u32 q = 0u; q < QUADS; q++) {
            if (inside(q)) {
                k.emit2(state + own.unit(q), units[q].cell);
            }
        }
    }
}
