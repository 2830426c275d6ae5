// Recurrences: a block runs one sequence in one direction, step by step. Scratch of a sequence: old state, new state, cell, reset
// state. Inputs: x, weights of inputs, of states, biases, lengths, first state, first cell, peepholes. `K::GATES` is 1 for a
// plain network, 3 for a gated recurrent unit, 4 for long short-term memory.
#pragma once
#include "../prelude/launch.cuh"
#include "../prelude/math.cuh"

struct RecurrentParams {
    u32 steps;
    u32 directions;
    u32 batch;
    u32 inputs;
    u32 hidden;
    u32 batch_first;
    u32 backward;
    f32 clip;
    u32 first;
    u32 end;
};

template <class K> DEV f32 of_input(const K& k, const RecurrentParams& p, u32 d, u32 gate, u32 j, u32 x) {
    const u32 row = (d * K::GATES + gate) * p.hidden + j;
    f32 sum = 0.0f;
    for (u32 i = 0u; i < p.inputs; i++) {
        mac(sum, k.x1(row * p.inputs + i), k.x0(x + i));
    }
    if constexpr (K::HAS_BIAS) {
        sum += k.x3(d * (K::GATES * p.hidden) * 2u + gate * p.hidden + j);
    }
    return sum;
}

template <class K> DEV f32 of_state(const K& k, const RecurrentParams& p, u32 d, u32 gate, u32 j, u32 h) {
    const u32 row = (d * K::GATES + gate) * p.hidden + j;
    f32 sum = 0.0f;
    for (u32 i = 0u; i < p.hidden; i++) {
        mac(sum, k.x2(row * p.hidden + i), bitcast<f32>(k.scratch[h + i]));
    }
    if constexpr (K::HAS_BIAS) {
        sum += k.x3(d * (K::GATES * p.hidden) * 2u + K::GATES * p.hidden + gate * p.hidden + j);
    }
    return sum;
}

template <class K> DEV f32 gate(const K& k, const RecurrentParams& p, u32 d, u32 g, u32 j, u32 x, u32 h) {
    return of_input(k, p, d, g, j, x) + of_state(k, p, d, g, j, h);
}

template <class K> DEV f32 peephole(const K& k, const RecurrentParams& p, u32 d, u32 g, u32 j) {
    if constexpr (K::HAS_PEEPHOLES) {
        return k.x7((d * 3u + g) * p.hidden + j);
    } else {
        return 0.0f;
    }
}

// Activation number n of a direction.
template <class K> DEV f32 activate(const K& k, const RecurrentParams& p, u32 d, u32 n, f32 value) {
    f32 v = value;
    if (p.clip > 0.0f && !is_nan(v)) {
        v = clamp(v, -p.clip, p.clip);
    }
    const f32 relu = v < 0.0f ? 0.0f : v;
    switch (d * K::ACTIVATIONS + n) {
        case 0u: return k.activation0(v, relu);
        case 1u: return k.activation1(v, relu);
        case 2u: return k.activation2(v, relu);
        case 3u: return k.activation3(v, relu);
        case 4u: return k.activation4(v, relu);
        case 5u: return k.activation5(v, relu);
        default: return v;
    }
}

// Places of a sequence, of one of its steps and of its scratch.
struct Step {
    u32 d, x, old_h, cell, reset;
};

// A gated recurrent unit's values of all elements that the new state needs.
template <class K> DEV f32 reset_state(const K& k, const RecurrentParams& p, const Step& s, u32 j) {
    const f32 r = activate(k, p, s.d, 0u, gate(k, p, s.d, 1u, j, s.x, s.old_h));
    return K::LINEAR_BEFORE_RESET ? r : r * bitcast<f32>(k.scratch[s.old_h + j]);
}

// Element j of the new state; h is that of the old one.
template <class K> DEV f32 new_state(const K& k, const RecurrentParams& p, const Step& s, u32 j, f32 h) {
    const u32 d = s.d;
    if constexpr (K::GATES == 1u) {
        return activate(k, p, d, 0u, gate(k, p, d, 0u, j, s.x, s.old_h));
    } else if constexpr (K::GATES == 3u) {
        const f32 z = activate(k, p, d, 0u, gate(k, p, d, 0u, j, s.x, s.old_h));
        f32 recurrent;
        if constexpr (K::LINEAR_BEFORE_RESET) {
            recurrent = bitcast<f32>(k.scratch[s.reset + j]) * of_state(k, p, d, 2u, j, s.old_h);
        } else {
            recurrent = of_state(k, p, d, 2u, j, s.reset);
        }
        const f32 n = activate(k, p, d, 1u, of_input(k, p, d, 2u, j, s.x) + recurrent);
        return (1.0f - z) * n + z * h;
    } else {
        const f32 c = bitcast<f32>(k.scratch[s.cell + j]);
        const f32 i_gate = activate(k, p, d, 0u, gate(k, p, d, 0u, j, s.x, s.old_h) + peephole(k, p, d, 0u, j) * c);
        f32 f_gate;
        if constexpr (K::INPUT_FORGET) {
            f_gate = 1.0f - i_gate;
        } else {
            f_gate = activate(k, p, d, 0u, gate(k, p, d, 2u, j, s.x, s.old_h) + peephole(k, p, d, 2u, j) * c);
        }
        const f32 c_next = f_gate * c + i_gate * activate(k, p, d, 1u, gate(k, p, d, 3u, j, s.x, s.old_h));
        const f32 o_gate =
            activate(k, p, d, 0u, gate(k, p, d, 1u, j, s.x, s.old_h) + peephole(k, p, d, 1u, j) * c_next);
        k.scratch[s.cell + j] = bitcast<u32>(c_next);
        return o_gate * activate(k, p, d, 2u, c_next);
    }
}

template <class K> DEV void recur(const K& k) {
    const auto& p = params<RecurrentParams>(k);
    const u32 l = threadIdx.x;
    const u32 dirs = p.directions;
    const u32 hidden = p.hidden;
    const u32 steps = p.steps;
    const u32 b = blockIdx.x / dirs;
    Step s;
    s.d = blockIdx.x % dirs;
    s.old_h = blockIdx.x * hidden * 4u;
    const u32 new_h = s.old_h + hidden;
    s.cell = new_h + hidden;
    s.reset = s.cell + hidden;
    const u32 row = (p.batch_first == 1u ? b * dirs + s.d : s.d * p.batch + b) * hidden;
    if (p.first == 0u) {
        for (u32 j = l; j < hidden; j += K::LANES) {
            f32 h = 0.0f;
            f32 c = 0.0f;
            if constexpr (K::HAS_STATE) {
                h = k.x5(row + j);
            }
            if constexpr (K::HAS_CELL) {
                c = k.x6(row + j);
            }
            k.scratch[s.old_h + j] = bitcast<u32>(h);
            k.scratch[s.cell + j] = bitcast<u32>(c);
        }
    }
    __syncthreads();
    u32 len = steps;
    if constexpr (K::HAS_LENGTHS) {
        len = u32(clamp(k.near4(b), 0, i32(steps)));
    }
    const bool backward = s.d == 1u || p.backward == 1u;
    for (u32 step = p.first; step < p.end; step++) {
        const bool runs = step < len;
        const u32 t = backward && runs ? len - 1u - step : step;
        s.x = (p.batch_first == 1u ? b * steps + t : t * p.batch + b) * p.inputs;
        const u32 y = (p.batch_first == 1u ? (b * steps + t) * dirs + s.d : (t * dirs + s.d) * p.batch + b) * hidden;
        if constexpr (K::GATES == 3u) {
            for (u32 j = l; j < hidden; j += K::LANES) {
                if (runs) {
                    k.scratch[s.reset + j] = bitcast<u32>(reset_state(k, p, s, j));
                }
            }
            __syncthreads();
        }
        for (u32 j = l; j < hidden; j += K::LANES) {
            if (runs) {
                const f32 next = new_state(k, p, s, j, bitcast<f32>(k.scratch[s.old_h + j]));
                k.scratch[new_h + j] = bitcast<u32>(next);
                k.emit0(y + j, next);
            } else {
                k.emit0(y + j, 0.0f);
            }
        }
        __syncthreads();
        for (u32 j = l; j < hidden; j += K::LANES) {
            if (runs) {
                k.scratch[s.old_h + j] = k.scratch[new_h + j];
            }
        }
        __syncthreads();
    }
    if (p.end < steps) {
        return;
    }
    for (u32 j = l; j < hidden; j += K::LANES) {
        k.emit1(row + j, bitcast<f32>(k.scratch[s.old_h + j]));
        if constexpr (K::GATES == 4u) {
            k.emit2(row + j, bitcast<f32>(k.scratch[s.cell + j]));
        }
    }
}
