// Linear attention: a thread for each column of a state, which no other column depends on, or a warp for eight. Inputs: queries,
// keys, values; a past state, decays and betas are functions of the generated unit.
#pragma once
#include "../prelude/launch.cuh"
#include "../prelude/math.cuh"

struct LinearAttentionParams {
    u32 steps;
    u32 q_heads;
    u32 kv_heads;
    u32 rows;
    u32 columns;
    f32 scale;
    u32 decays;
    u32 beta_heads;
    u32 warps;
};

// One thread a column of a state, which lies in scratch memory as the states do.
template <class K> DEV void columns(const K& k, u32 t) {
    const auto& p = params<LinearAttentionParams>(k);
    const u32 rows = p.rows;
    const u32 stride = p.columns;
    const u32 j = t % stride;
    const u32 state = t / stride;
    const u32 h = state % p.kv_heads;
    const u32 b = state / p.kv_heads;
    const u32 column = state * rows * stride + j;
    const u32 group = p.q_heads / p.kv_heads;
    for (u32 i = 0u; i < rows; i++) {
        k.scratch[column + i * stride] = bitcast<u32>(k.past_state(column + i * stride));
    }
    for (u32 s = 0u; s < p.steps; s++) {
        const u32 step = b * p.steps + s;
        const u32 head = step * p.kv_heads + h;
        const u32 keys = head * rows;
        const u32 decays = head * p.decays;
        f32 write = k.x2(head * stride + j);
        f32 held = 0.0f;
        if (K::GATED || K::DELTA) {
            for (u32 i = 0u; i < rows; i++) {
                f32 x = bitcast<f32>(k.scratch[column + i * stride]);
                if (K::GATED) {
                    x = x * k.decay(decays + (p.decays != 1u ? i : 0u));
                    k.scratch[column + i * stride] = bitcast<u32>(x);
                }
                mac(held, x, k.x1(keys + i));
            }
        }
        if (K::DELTA) {
            write = k.beta(p.beta_heads == 1u ? head : step) * (write - held);
        }
        for (u32 i = 0u; i < rows; i++) {
            f32 x = bitcast<f32>(k.scratch[column + i * stride]);
            mac(x, k.x1(keys + i), write);
            k.scratch[column + i * stride] = bitcast<u32>(x);
        }
        for (u32 g = 0u; g < group; g++) {
            const u32 own = step * p.q_heads + h * group + g;
            f32 sum = 0.0f;
            for (u32 i = 0u; i < rows; i++) {
                mac(sum, k.x0(own * rows + i), bitcast<f32>(k.scratch[column + i * stride]));
            }
            k.emit0(own * stride + j, sum * p.scale);
        }
    }
    for (u32 i = 0u; i < rows; i++) {
        k.emit1(column + i * stride, bitcast<f32>(k.scratch[column + i * stride]));
    }
}

// Inputs of one step: R rows of key and first query, the decays of these rows, the value of this lane's column, beta.
template <u32 R> struct Step {
    f32 key[R];
    f32 query[R];
    f32 decay[R];
    f32 value;
    f32 beta;
};

template <u32 R, class K>
DEV void fetch(const K& k, const LinearAttentionParams& p, Step<R>& s, u32 step, u32 h, u32 j, u32 lane) {
    const u32 rows = p.rows;
    const u32 head = step * p.kv_heads + h;
    const u32 first = step * p.q_heads + h * (p.q_heads / p.kv_heads);
    // One decay for all rows of a head is read and raised once.
    const f32 all = K::GATED && p.decays == 1u ? k.decay(head) : 1.0f;
#pragma unroll
    for (u32 r = 0u; r < R; r++) {
        const u32 i = r * 32u + lane;
        s.key[r] = 0.0f;
        s.query[r] = 0.0f;
        s.decay[r] = 0.0f;
        if (i < rows) {
            s.key[r] = k.x1(head * rows + i);
            s.query[r] = k.x0(first * rows + i);
            s.decay[r] = K::GATED && p.decays != 1u ? k.decay(head * rows + i) : all;
        }
    }
    s.value = 0.0f;
    if (j < p.columns) {
        s.value = k.x2(head * p.columns + j);
    }
    s.beta = K::DELTA ? k.beta(p.beta_heads == 1u ? head : step) : 1.0f;
}

// Sums over the lanes of eight numbers each: every lane returns that of number lane / 4.
DEV f32 all_lanes(const f32 (&v)[8], u32 lane) {
    f32 four[4];
    f32 two[2];
    const bool a = (lane & 16u) != 0u;
    const bool b = (lane & 8u) != 0u;
    const bool c = (lane & 4u) != 0u;
#pragma unroll
    for (u32 i = 0u; i < 4u; i++) {
        four[i] = (a ? v[i + 4u] : v[i]) + __shfl_xor_sync(0xffffffffu, a ? v[i] : v[i + 4u], 16);
    }
#pragma unroll
    for (u32 i = 0u; i < 2u; i++) {
        two[i] = (b ? four[i + 2u] : four[i]) + __shfl_xor_sync(0xffffffffu, b ? four[i] : four[i + 2u], 8);
    }
    f32 one = (c ? two[1] : two[0]) + __shfl_xor_sync(0xffffffffu, c ? two[0] : two[1], 4);
    one += __shfl_xor_sync(0xffffffffu, one, 2);
    return one + __shfl_xor_sync(0xffffffffu, one, 1);
}

// A warp keeps eight columns of a state, R rows a lane: row r of lane l is row 32 r + l. What the next step reads is on its way
// while this one computes.
template <u32 R, class K> DEV void warps(const K& k) {
    const auto& p = params<LinearAttentionParams>(k);
    const u32 l = threadIdx.x;
    const u32 warp = blockIdx.x * 4u + l / 32u;
    if (warp >= p.warps) {
        return;
    }
    const u32 lane = l % 32u;
    const u32 rows = p.rows;
    const u32 stride = p.columns;
    const u32 across = (stride + 7u) / 8u;
    const u32 from = warp % across * 8u;
    const u32 state = warp / across;
    const u32 h = state % p.kv_heads;
    const u32 b = state / p.kv_heads;
    const u32 queries = p.q_heads / p.kv_heads;
    const u32 place = state * rows * stride;
    const u32 j = from + lane / 4u;
    f32 x[R][8];
#pragma unroll
    for (u32 r = 0u; r < R; r++) {
#pragma unroll
        for (u32 c = 0u; c < 8u; c++) {
            const u32 i = r * 32u + lane;
            x[r][c] = 0.0f;
            if (i < rows && from + c < stride) {
                x[r][c] = k.past_state(place + i * stride + from + c);
            }
        }
    }
    const u32 steps = p.steps;
    Step<R> next;
    if (steps > 0u) {
        fetch<R>(k, p, next, b * steps, h, j, lane);
    }
    for (u32 s = 0u; s < steps; s++) {
        const u32 step = b * steps + s;
        const Step<R> now = next;
        if (s + 1u < steps) {
            fetch<R>(k, p, next, step + 1u, h, j, lane);
        }
        f32 write = now.value;
        f32 part[8];
        if (K::GATED) {
#pragma unroll
            for (u32 r = 0u; r < R; r++) {
#pragma unroll
                for (u32 c = 0u; c < 8u; c++) {
                    x[r][c] *= now.decay[r];
                }
            }
        }
        if (K::DELTA) {
#pragma unroll
            for (u32 c = 0u; c < 8u; c++) {
                part[c] = 0.0f;
#pragma unroll
                for (u32 r = 0u; r < R; r++) {
                    mac(part[c], x[r][c], now.key[r]);
                }
            }
            write = now.beta * (write - all_lanes(part, lane));
        }
#pragma unroll
        for (u32 c = 0u; c < 8u; c++) {
            const f32 w = __shfl_sync(0xffffffffu, write, c * 4u);
            part[c] = 0.0f;
#pragma unroll
            for (u32 r = 0u; r < R; r++) {
                // Rows that are not there stay 0, whatever is written.
                if (r * 32u + lane < rows) {
                    mac(x[r][c], now.key[r], w);
                    mac(part[c], now.query[r], x[r][c]);
                }
            }
        }
        for (u32 g = 0u; g < queries; g++) {
            const u32 own = step * p.q_heads + h * queries + g;
            if (g > 0u) {
                f32 query[R];
#pragma unroll
                for (u32 r = 0u; r < R; r++) {
                    const u32 i = r * 32u + lane;
                    query[r] = i < rows ? k.x0(own * rows + i) : 0.0f;
                }
#pragma unroll
                for (u32 c = 0u; c < 8u; c++) {
                    part[c] = 0.0f;
#pragma unroll
                    for (u32 r = 0u; r < R; r++) {
                        mac(part[c], query[r], x[r][c]);
                    }
                }
            }
            const f32 sum = all_lanes(part, lane);
            if (lane % 4u == 0u && j < stride) {
                k.emit0(own * stride + j, sum * p.scale);
            }
        }
    }
#pragma unroll
    for (u32 r = 0u; r < R; r++) {
#pragma unroll
        for (u32 c = 0u; c < 8u; c++) {
            const u32 i = r * 32u + lane;
            if (i < rows && from + c < stride) {
                k.emit1(place + i * stride + from + c, x[r][c]);
            }
        }
    }
}

template <class K> DEV void warps_1(const K& k) { warps<1u>(k); }
template <class K> DEV void warps_2(const K& k) { warps<2u>(k); }
template <class K> DEV void warps_4(const K& k) { warps<4u>(k); }
template <class K> DEV void warps_8(const K& k) { warps<8u>(k); }
