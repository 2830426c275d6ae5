// Linear attention. Words: 0 steps, 1 query heads, 2 key heads, 3 rows of a state, 4 its columns, 5 scale, 6 decays of a head, 7 is
// beta a number a head, 8 batch, 9 warps.

// ---- common
DEV f32 past_state(u32 at) const {
    return PAST;
}

DEV f32 decay(u32 at) const {
    return DECAY;
}

DEV f32 beta(u32 at) const {
    return BETA;
}

// ---- columns
// One thread a column of a state, which lies in scratch memory as the states do.
THREADS columns {
    const auto rows = m(3u);
    const auto stride = m(4u);
    const auto j = t % stride;
    const auto state = t / stride;
    const auto h = state % m(2u);
    const auto b = state / m(2u);
    const auto column = state * rows * stride + j;
    const auto group = m(1u) / m(2u);
    for (u32 i = 0u; i < rows; i++) {
        scratch[column + i * stride] = bitcast<u32>(past_state(column + i * stride));
    }
    for (u32 s = 0u; s < m(0u); s++) {
        const auto step = b * m(0u) + s;
        const auto head = step * m(2u) + h;
        const auto key = head * rows;
        const auto decays = head * m(6u);
        f32 write = x2(head * stride + j);
        f32 held = 0.0f;
        if (GATED || DELTA) {
            for (u32 i = 0u; i < rows; i++) {
                f32 x = bitcast<f32>(scratch[column + i * stride]);
                if (GATED) {
                    x = x * decay(decays + (m(6u) != 1u ? i : 0u));
                    scratch[column + i * stride] = bitcast<u32>(x);
                }
                mac(held, x, x1(key + i));
            }
        }
        if (DELTA) {
            write = beta(m(7u) == 1u ? head : step) * (write - held);
        }
        for (u32 i = 0u; i < rows; i++) {
            f32 x = bitcast<f32>(scratch[column + i * stride]);
            mac(x, x1(key + i), write);
            scratch[column + i * stride] = bitcast<u32>(x);
        }
        for (u32 g = 0u; g < group; g++) {
            const auto own = step * m(1u) + h * group + g;
            f32 sum = 0.0f;
            for (u32 i = 0u; i < rows; i++) {
                mac(sum, x0(own * rows + i), bitcast<f32>(scratch[column + i * stride]));
            }
            emit0(own * stride + j, sum * mf(5u));
        }
    }
    for (u32 i = 0u; i < rows; i++) {
        emit1(column + i * stride, bitcast<f32>(scratch[column + i * stride]));
    }
}

// ---- warps
// What one step reads: R rows of key and first query, the decays of these rows, the value of this lane's column, beta.
template <u32 R> struct Step {
    f32 key[R];
    f32 query[R];
    f32 decay[R];
    f32 value;
    f32 beta;
};

template <u32 R> DEV void fetch(Step<R>& s, u32 step, u32 h, u32 j, u32 lane) const {
    const auto rows = m(3u);
    const auto head = step * m(2u) + h;
    const auto first = step * m(1u) + h * (m(1u) / m(2u));
    // One decay for all rows of a head is read and raised once.
    const f32 all = GATED && m(6u) == 1u ? decay(head) : 1.0f;
#pragma unroll
    for (u32 r = 0u; r < R; r++) {
        const u32 i = r * 32u + lane;
        s.key[r] = 0.0f;
        s.query[r] = 0.0f;
        s.decay[r] = 0.0f;
        if (i < rows) {
            s.key[r] = x1(head * rows + i);
            s.query[r] = x0(first * rows + i);
            s.decay[r] = GATED && m(6u) != 1u ? decay(head * rows + i) : all;
        }
    }
    s.value = 0.0f;
    if (j < m(4u)) {
        s.value = x2(head * m(4u) + j);
    }
    s.beta = DELTA ? beta(m(7u) == 1u ? head : step) : 1.0f;
}

// Sums over the lanes of eight numbers each: every lane returns that of number lane / 4.
static DEV f32 all_lanes(const f32 (&v)[8], u32 lane) {
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
template <u32 R> DEV void warps(u32 group, u32 l) const {
    const auto warp = group * 4u + l / 32u;
    if (warp >= m(9u)) {
        return;
    }
    const auto lane = l % 32u;
    const auto rows = m(3u);
    const auto stride = m(4u);
    const auto across = (stride + 7u) / 8u;
    const auto from = warp % across * 8u;
    const auto state = warp / across;
    const auto h = state % m(2u);
    const auto b = state / m(2u);
    const auto queries = m(1u) / m(2u);
    const auto place = state * rows * stride;
    const auto j = from + lane / 4u;
    f32 x[R][8];
#pragma unroll
    for (u32 r = 0u; r < R; r++) {
#pragma unroll
        for (u32 c = 0u; c < 8u; c++) {
            const u32 i = r * 32u + lane;
            x[r][c] = 0.0f;
            if (i < rows && from + c < stride) {
                x[r][c] = past_state(place + i * stride + from + c);
            }
        }
    }
    const auto steps = m(0u);
    Step<R> next;
    if (steps > 0u) {
        fetch<R>(next, b * steps, h, j, lane);
    }
    for (u32 s = 0u; s < steps; s++) {
        const auto step = b * steps + s;
        const Step<R> now = next;
        if (s + 1u < steps) {
            fetch<R>(next, step + 1u, h, j, lane);
        }
        f32 write = now.value;
        f32 part[8];
        if (GATED) {
#pragma unroll
            for (u32 r = 0u; r < R; r++) {
#pragma unroll
                for (u32 c = 0u; c < 8u; c++) {
                    x[r][c] *= now.decay[r];
                }
            }
        }
        if (DELTA) {
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
            const auto own = step * m(1u) + h * queries + g;
            if (g > 0u) {
                f32 query[R];
#pragma unroll
                for (u32 r = 0u; r < R; r++) {
                    const u32 i = r * 32u + lane;
                    query[r] = i < rows ? x0(own * rows + i) : 0.0f;
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
                emit0(own * stride + j, sum * mf(5u));
            }
        }
    }
#pragma unroll
    for (u32 r = 0u; r < R; r++) {
#pragma unroll
        for (u32 c = 0u; c < 8u; c++) {
            const u32 i = r * 32u + lane;
            if (i < rows && from + c < stride) {
                emit1(place + i * stride + from + c, x[r][c]);
            }
        }
    }
}

GROUPS warps_1 128 {
    warps<1u>(group, l);
}

GROUPS warps_2 128 {
    warps<2u>(group, l);
}

GROUPS warps_4 128 {
    warps<4u>(group, l);
}

GROUPS warps_8 128 {
    warps<8u>(group, l);
}
