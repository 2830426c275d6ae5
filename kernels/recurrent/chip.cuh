// Recurrences whose weights stay on the chip: a cluster of CLUSTER blocks runs COLUMNS sequences of one direction through
// all steps. A block has UNITS of the hidden units with all their gates: its rows of R are in registers, what finds no room
// there in shared memory, the rest is read again at each step. The products with the input come from a launch before (inputs.cuh).
//
// A step has a product with what all blocks have, or two where a GRU's reset gate comes before the product (RESET_FIRST), which
// then is one with the states times that gate. LSTM, GRU and neither tell the operators apart.
#pragma once
#include "products.cuh"
#include "states.cuh"

template <class K, bool NARROW> struct ProductsOf {
    typedef MmaProducts<K> Type;
};
template <class K> struct ProductsOf<K, false> {
    typedef FmaProducts<K> Type;
};

template <class K> DEV f32 peep(const K& k, u32 d, u32 g, u32 j, f32 c) {
    if constexpr (K::PEEPHOLES) {
        return k.x7((d * 3u + g) * K::HIDDEN + j) * c;
    } else {
        return 0.0f;
    }
}

// The next state of unit j: products with the input `x` and with the states `sum`, its state h, and what an LSTM keeps in `cell`. In
// the first of a GRU's two products `cell` gets the update gate, and the result is what the second product takes.
template <class K>
DEV f32 next_of(const K& k, const RecurrentChipParams& p, u32 d, u32 j, const f32* x, const f32* sum, f32 h, f32& cell, bool ends) {
    const auto by = [&](u32 i, f32 v) { return activate(k, p, d, i, v); };
    if constexpr (K::LSTM) {
        const f32 c = cell;
        const f32 i_gate = by(0u, x[0] + sum[0] + peep(k, d, 0u, j, c));
        f32 f_gate;
        if constexpr (K::INPUT_FORGET) {
            f_gate = 1.0f - i_gate;
        } else {
            f_gate = by(0u, x[2] + sum[2] + peep(k, d, 2u, j, c));
        }
        const f32 c_next = f_gate * c + i_gate * by(1u, x[3] + sum[3]);
        const f32 o_gate = by(0u, x[1] + sum[1] + peep(k, d, 1u, j, c_next));
        cell = c_next;
        return o_gate * by(2u, c_next);
    } else if constexpr (K::RESET_FIRST) {
        if (ends) {
            const f32 n = by(1u, x[2] + sum[2]);
            return (1.0f - cell) * n + cell * h;
        }
        cell = by(0u, x[0] + sum[0]);
        return by(0u, x[1] + sum[1]) * h;
    } else if constexpr (K::GRU) {
        const f32 bias = input_bias_of(k, d, j);
        const f32 z = by(0u, x[0] + sum[0]);
        const f32 r = by(0u, x[1] + sum[1]);
        const f32 n = by(1u, x[2] + bias + r * sum[2]);
        return (1.0f - z) * n + z * h;
    } else {
        return by(0u, x[0] + sum[0]);
    }
}

template <class K> DEV void recur(const K& k) {
    typedef typename ProductsOf<K, K::NARROW>::Type Products;
    __shared__ __align__(8) u64 arrived[2];
    constexpr u32 UNITS = K::UNITS;
    constexpr u32 HIDDEN = K::HIDDEN;
    constexpr u32 GATES = K::GATES;
    constexpr u32 CLUSTER = K::CLUSTER;
    constexpr u32 STATE_BYTES = K::STATE_BYTES;
    constexpr u32 PAIRS = (UNITS * K::COLUMNS + BLOCK - 1u) / BLOCK;
    constexpr u32 EXCHANGES = K::RESET_FIRST ? 2u : 1u;
    const auto& p = params<RecurrentChipParams>(k);
    const u32 l = threadIdx.x;
    const u32 rank = blockIdx.x % CLUSTER;
    const u32 dirs = p.directions;
    const u32 cluster = blockIdx.x / CLUSTER + (K::GRID ? p.first_cluster : 0u);
    const u32 d = cluster % dirs;
    const u32 from = cluster / dirs * p.sequences;
    const u32 steps = p.steps;
    const u32 batch = p.batch;
    const u32 columns = ::min(p.sequences, batch - from);
    const bool first = p.batch_first == 1u;
    const bool backward = d == 1u || p.backward == 1u;
    const f32* products = reinterpret_cast<const f32*>(k.scratch);
    f32* part = reinterpret_cast<f32*>(block_memory + 2u * STATE_BYTES);
    typename Products::Held held;
    Products::hold(k, held, d, rank);
    for (u32 e = l; e < 2u * STATE_BYTES / 4u; e += BLOCK) {
        reinterpret_cast<u32*>(block_memory)[e] = 0u;
    }
    __syncthreads();
    for (u32 e = l; e < HIDDEN * columns; e += BLOCK) {
        const u32 row = state_of<K>(p, d, from + e / HIDDEN);
        const u32 j = e % HIDDEN;
        Products::put_state(block_memory, e / HIDDEN, j, first_state(k, row + j));
    }
    if constexpr (CLUSTER > 1u && !K::GRID) {
        if (l == 0u) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&arrived[0])) : "memory");
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&arrived[1])) : "memory");
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        meet_cluster();
    }
    __syncthreads();
    // The pairs of a unit and a sequence that this thread goes on with.
    f32 own[PAIRS], cell[PAIRS], given[PAIRS][GATES], bias[PAIRS][GATES];
    u32 length[PAIRS];
    const auto unit = [&](u32 q) { return (q * BLOCK + l) % UNITS; };
    const auto column = [&](u32 q) { return (q * BLOCK + l) / UNITS; };
    const auto inside = [&](u32 q) { return column(q) < columns && rank * UNITS + unit(q) < HIDDEN; };
    const auto when = [&](u32 q, u32 step) { return backward && step < length[q] ? length[q] - 1u - step : step; };
    const auto fetch = [&](u32 step) {
#pragma unroll
        for (u32 q = 0u; q < PAIRS; q++) {
            if (step < steps && inside(q)) {
                const u32 b = from + column(q);
                const u32 t = when(q, step);
                const u32 row = first ? b * steps + t : t * batch + b;
                const f32* x = products + u64(row * dirs + d) * (GATES * HIDDEN) + rank * UNITS + unit(q);
#pragma unroll
                for (u32 g = 0u; g < GATES; g++) {
                    given[q][g] = x[g * HIDDEN];
                }
            }
        }
    };
#pragma unroll
    for (u32 q = 0u; q < PAIRS; q++) {
        own[q] = 0.0f;
        cell[q] = 0.0f;
        length[q] = steps;
        if (inside(q)) {
            const u32 b = from + column(q);
            const u32 j = rank * UNITS + unit(q);
            const u32 row = state_of<K>(p, d, b);
            own[q] = first_state(k, row + j);
            if constexpr (K::CELL) {
                cell[q] = k.x6(row + j);
            }
            length[q] = length_of(k, p, b);
#pragma unroll
            for (u32 g = 0u; g < GATES; g++) {
                bias[q][g] = bias_of(k, d, g, j);
            }
        }
    }
    const auto put_out = [&](u32 q, u32 step) {
        if (inside(q)) {
            const u32 b = from + column(q);
            const u32 t = when(q, step);
            const u32 row = first ? (b * steps + t) * dirs + d : (t * dirs + d) * batch + b;
            k.emit0(row * HIDDEN + rank * UNITS + unit(q), step < length[q] ? own[q] : 0.0f);
        }
    };
    fetch(0u);
    for (u32 e = 0u; e < steps * EXCHANGES; e++) {
        const u32 step = e / EXCHANGES;
        const bool ends = EXCHANGES == 1u || e % EXCHANGES != 0u;
        const bool sends = e + 1u < steps * EXCHANGES;
        u8* next_state = K::GRID ? left_states(k, p, cluster, e + 1u) : block_memory + (e + 1u) % 2u * STATE_BYTES;
        const u32 barrier = address(&arrived[(e + 1u) % 2u]);
        if constexpr (K::GRID) {
            if (e > 0u) {
                take<Products>(k, p, cluster, e, columns);
            }
        } else if constexpr (CLUSTER > 1u) {
            if (e > 0u) {
                barrier_wait(address(&arrived[e % 2u]), (e - 1u) / 2u % 2u);
            }
            if (sends && l == 0u) {
                barrier_expect(barrier, columns * CLUSTER * UNITS * Products::STATE_SIZE);
            }
        }
        Products::multiply(k, held, block_memory + e % 2u * STATE_BYTES, part, columns, d, rank);
        __syncthreads();
#pragma unroll
        for (u32 q = 0u; q < PAIRS; q++) {
            if (q * BLOCK + l - l % 32u >= UNITS * columns) {
                break;
            }
            const u32 j = rank * UNITS + unit(q);
            const bool runs = step < length[q];
            f32 next = own[q];
            if (inside(q) && runs) {
                f32 sum[GATES];
#pragma unroll
                for (u32 g = 0u; g < GATES; g++) {
                    sum[g] = bias[q][g];
#pragma unroll
                    for (u32 s = 0u; s < K::K_SPLIT; s++) {
                        sum[g] += part[(s * K::COLUMNS + column(q)) * K::PART_PITCH + g * UNITS + unit(q)];
                    }
                }
                next = next_of(k, p, d, j, given[q], sum, own[q], cell[q], ends);
                if (ends) {
                    own[q] = next;
                }
            }
            if (sends) {
                const u32 offset = Products::state_offset(column(q), rank * UNITS + unit(q) / Products::NEIGHBOURS * Products::NEIGHBOURS);
                share<Products, K>(next_state, offset, next, barrier, column(q) < columns);
            }
            if (!K::GRID && ends) {
                put_out(q, step);
            }
        }
        if constexpr (K::GRID) {
            // Others wait for the states, nobody for the results.
            if (sends) {
                tell(k, p, cluster);
            }
#pragma unroll
            for (u32 q = 0u; q < PAIRS && ends; q++) {
                put_out(q, step);
            }
        }
        if (ends) {
            fetch(step + 1u);
        }
        if constexpr (CLUSTER == 1u) {
            __syncthreads();
        }
#ifdef WATCHED
        // Sums are read before the states are sent that all wait for; racecheck does not know what such a barrier waits for.
        __syncthreads();
#endif
    }
#pragma unroll
    for (u32 q = 0u; q < PAIRS; q++) {
        if (inside(q)) {
            const u32 at = state_of<K>(p, d, from + column(q)) + rank * UNITS + unit(q);
            k.emit1(at, own[q]);
            if constexpr (K::LSTM) {
                k.emit2(at, cell[q]);
            }
        }
    }
}
