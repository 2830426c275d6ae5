// Recurrences whose weights stay on the chip: a cluster of CLUSTER blocks runs COLUMNS sequences of one direction through
// all steps. A block has UNITS of the hidden units with all their gates: its rows of R lie in registers, what finds no room
// there in shared memory, the rest is read again at each step. New states go to all blocks of the cluster by stores that
// count their bytes in the receiver's barrier; two buffers take turns, so that nobody overwrites what is still read: a block
// sends states of step k + 1 only after it has those of step k, which their owners sent after they had read those of step
// k - 1. The products with the input come from launches before, f32, in scratch memory: rows as those of x, columns by
// direction, gate, unit.
//
// With GRID the "cluster" is blocks of a grid that all run at once: of more than a cluster can have, for weights that find no
// room there. They leave new states in scratch memory, and count there who has done so; two buffers take turns.
//
// A step has EXCHANGES products with what all blocks have: two where a GRU's reset gate comes before the product, which then
// is one with the states times that gate.
//
// Words 0 - 7 are those of the input's product (gemm.cuh), then: 8 steps, 9 directions, 10 batch, 11 batch first,
// 12 backward, 13 clip, 14 sequences of a cluster; with GRID also 15 where counters begin in scratch memory, 16 how many there
// are, the states behind them, 17 the first cluster of this launch.

// ---- core
extern __shared__ __align__(128) u8 block_memory[];
__shared__ __align__(8) u64 arrived[2];
static constexpr u32 BLOCK = 512u;
static constexpr u32 PAIRS = (UNITS * COLUMNS + BLOCK - 1u) / BLOCK;

DEV static u32 shared_address(const void* p) { return u32(__cvta_generic_to_shared(p)); }

// Lets the barrier's phase end after so many bytes.
DEV static void expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

DEV static void wait_for(u32 barrier, u32 parity) {
    u32 done = 0u;
    while (done == 0u) {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    }
}

DEV static void meet_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

DEV static u32 at_rank(u32 address, u32 rank) {
    u32 there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
    return there;
}

DEV static void send16(u32 to, const u32 (&v)[4], u32 barrier) {
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
                 "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]), "r"(barrier)
                 : "memory");
}

DEV f32 activate(u32 d, u32 k, f32 value) const {
    auto v = value;
    if (mf(13u) > 0.0f && !is_nan(v)) {
        v = clamp(v, -mf(13u), mf(13u));
    }
    const auto relu = select(v, 0.0f, v < 0.0f);
    switch (WHICH) {
        CASES
        default: { return v; }
    }
}

// What is added to a gate's products: both biases; where the reset gate comes between, that of the state alone.
DEV f32 bias_of(u32 d, u32 g, u32 j) const {
    const u32 at = (d * 2u * GATES + g) * HIDDEN + j;
    return BIAS;
}

DEV f32 peep(u32 d, u32 g, u32 j, f32 c) const {
    PEEP
}

// The first element of a sequence's state.
DEV u32 state_of(u32 d, u32 b) const {
    return select(d * m(10u) + b, b * m(9u) + d, m(11u) == 1u) * HIDDEN;
}

// Where blocks of a grid leave states for product e, and the counter of those that have.
DEV u8* left_states(u32 cluster, u32 e) const {
    return reinterpret_cast<u8*>(scratch + m(15u) + m(16u)) + u64(cluster * 2u + e % 2u) * STATE_BYTES;
}

// One thread of the input's product clears what blocks of a grid count with.
DEV void clear_counters() const {
    if constexpr (GRID) {
        for (u32 i = 0u; i < m(16u); i++) {
            scratch[m(15u) + i] = 0u;
        }
    }
}

DEV void tell(u32 cluster) const {
    if constexpr (GRID) {
        __syncthreads();
        if (threadIdx.x == 0u) {
            __threadfence();
            asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(scratch + m(15u) + cluster) : "memory");
        }
    }
}

// Waits for the states of product e, and takes them over.
DEV void take(u32 cluster, u32 e, u32 columns) const {
    constexpr u32 PIECES = CLUSTER * UNITS * STATE_SIZE / 16u;
    if (threadIdx.x == 0u) {
        u32 done = 0u;
        while (done < e * CLUSTER) {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(done) : "l"(scratch + m(15u) + cluster) : "memory");
        }
    }
    __syncthreads();
    const u8* from = left_states(cluster, e);
    u8* to = block_memory + e % 2u * STATE_BYTES;
    for (u32 p = threadIdx.x; p < columns * PIECES; p += BLOCK) {
        const u32 offset = state_offset(p / PIECES, 0u) + p % PIECES * 16u;
        *reinterpret_cast<uint4*>(to + offset) = __ldcg(reinterpret_cast<const uint4*>(from + offset));
    }
    __syncthreads();
}

// Gives 16 bytes of neighbouring units, one in each lane, to all blocks; all lanes of the warp call it.
DEV static void share(u8* buffer, u32 offset, f32 value, u32 barrier, bool active) {
    const u32 lane = threadIdx.x % 32u;
    u32 v[4];
    gather16(v, value);
    if (!active) {
        return;
    }
    if constexpr (CLUSTER == 1u || GRID) {
        if (lane % NEIGHBOURS == 0u) {
            *reinterpret_cast<uint4*>(buffer + offset) = make_uint4(v[0], v[1], v[2], v[3]);
        }
    } else {
        const u32 here = shared_address(buffer) + offset;
#pragma unroll
        for (u32 r = 0u; r < CLUSTER; r += NEIGHBOURS) {
            const u32 to = r + lane % NEIGHBOURS;
            if (CLUSTER % NEIGHBOURS == 0u || to < CLUSTER) {
                send16(at_rank(here, to), v, at_rank(barrier, to));
            }
        }
    }
}

GROUPS recur 512 {
    const u32 rank = group % CLUSTER;
    const u32 dirs = m(9u);
    const u32 cluster = group / CLUSTER + (GRID ? m(17u) : 0u);
    const u32 d = cluster % dirs;
    const u32 from = cluster / dirs * m(14u);
    const u32 steps = m(8u);
    const u32 batch = m(10u);
    const u32 columns = ::min(m(14u), batch - from);
    const bool first = m(11u) == 1u;
    const bool backward = d == 1u || m(12u) == 1u;
    const f32* products = reinterpret_cast<const f32*>(scratch);
    f32* part = reinterpret_cast<f32*>(block_memory + 2u * STATE_BYTES);
    Held held;
    hold(held, d, rank);
    for (u32 e = l; e < 2u * STATE_BYTES / 4u; e += BLOCK) {
        reinterpret_cast<u32*>(block_memory)[e] = 0u;
    }
    __syncthreads();
    for (u32 e = l; e < HIDDEN * columns; e += BLOCK) {
        const u32 row = state_of(d, from + e / HIDDEN);
        const u32 j = e % HIDDEN;
        put_state(block_memory, e / HIDDEN, j, H0);
    }
    if constexpr (CLUSTER > 1u && !GRID) {
        if (l == 0u) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&arrived[0])) : "memory");
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&arrived[1])) : "memory");
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
    const auto when = [&](u32 q, u32 k) { return backward && k < length[q] ? length[q] - 1u - k : k; };
    const auto fetch = [&](u32 k) {
#pragma unroll
        for (u32 q = 0u; q < PAIRS; q++) {
            if (k < steps && inside(q)) {
                const u32 b = from + column(q);
                const u32 t = when(q, k);
                const u32 row = first ? b * steps + t : t * batch + b;
                const f32* p = products + u64(row * dirs + d) * (GATES * HIDDEN) + rank * UNITS + unit(q);
#pragma unroll
                for (u32 g = 0u; g < GATES; g++) {
                    given[q][g] = p[g * HIDDEN];
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
            const u32 row = state_of(d, b);
            own[q] = H0;
            cell[q] = C0;
            length[q] = LEN;
#pragma unroll
            for (u32 g = 0u; g < GATES; g++) {
                bias[q][g] = bias_of(d, g, j);
            }
        }
    }
    const auto put_out = [&](u32 q, u32 k) {
        if (inside(q)) {
            const u32 b = from + column(q);
            const u32 t = when(q, k);
            const u32 row = first ? (b * steps + t) * dirs + d : (t * dirs + d) * batch + b;
            emit0(row * HIDDEN + rank * UNITS + unit(q), k < length[q] ? own[q] : 0.0f);
        }
    };
    fetch(0u);
    for (u32 e = 0u; e < steps * EXCHANGES; e++) {
        const u32 k = e / EXCHANGES;
        const bool ends = EXCHANGES == 1u || e % EXCHANGES != 0u;
        const bool sends = e + 1u < steps * EXCHANGES;
        u8* next_state = GRID ? left_states(cluster, e + 1u) : block_memory + (e + 1u) % 2u * STATE_BYTES;
        const u32 barrier = shared_address(&arrived[(e + 1u) % 2u]);
        if constexpr (GRID) {
            if (e > 0u) {
                take(cluster, e, columns);
            }
        } else if constexpr (CLUSTER > 1u) {
            if (e > 0u) {
                wait_for(shared_address(&arrived[e % 2u]), (e - 1u) / 2u % 2u);
            }
            if (sends && l == 0u) {
                expect(barrier, columns * CLUSTER * UNITS * STATE_SIZE);
            }
        }
        multiply(held, block_memory + e % 2u * STATE_BYTES, part, columns, d, rank);
        __syncthreads();
#pragma unroll
        for (u32 q = 0u; q < PAIRS; q++) {
            if (q * BLOCK + l - l % 32u >= UNITS * columns) {
                break;
            }
            const u32 j = rank * UNITS + unit(q);
            const bool runs = k < length[q];
            f32 next = own[q];
            if (inside(q) && runs) {
                f32 sum[GATES];
#pragma unroll
                for (u32 g = 0u; g < GATES; g++) {
                    sum[g] = bias[q][g];
#pragma unroll
                    for (u32 s = 0u; s < K_SPLIT; s++) {
                        sum[g] += part[(s * COLUMNS + column(q)) * PART_PITCH + g * UNITS + unit(q)];
                    }
                }
                const f32* x = given[q];
                const f32 h = own[q];
                CELL
                if (ends) {
                    own[q] = next;
                }
            }
            if (sends) {
                const u32 offset = state_offset(column(q), rank * UNITS + unit(q) / NEIGHBOURS * NEIGHBOURS);
                share(next_state, offset, next, barrier, column(q) < columns);
            }
            if (!GRID && ends) {
                put_out(q, k);
            }
        }
        if constexpr (GRID) {
            // Others wait for the states, nobody for the results.
            if (sends) {
                tell(cluster);
            }
#pragma unroll
            for (u32 q = 0u; q < PAIRS && ends; q++) {
                put_out(q, k);
            }
        }
        if (ends) {
            fetch(k + 1u);
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
            const u32 at = state_of(d, from + column(q)) + rank * UNITS + unit(q);
            emit1(at, own[q]);
            LAST
        }
    }
}

// ---- rnn
next = activate(d, 0u, x[0] + sum[0]);

// ---- gru
const f32 z = activate(d, 0u, x[0] + sum[0]);
const f32 r = activate(d, 0u, x[1] + sum[1]);
const f32 n = activate(d, 1u, x[2] + INPUT_BIAS + r * sum[2]);
next = (1.0f - z) * n + z * h;

// ---- gru_reset_first
if (ends) {
    const f32 n = activate(d, 1u, x[2] + sum[2]);
    next = (1.0f - cell[q]) * n + cell[q] * h;
} else {
    cell[q] = activate(d, 0u, x[0] + sum[0]);
    next = activate(d, 0u, x[1] + sum[1]) * h;
}

// ---- lstm
const f32 c = cell[q];
const f32 i_gate = activate(d, 0u, x[0] + sum[0] + peep(d, 0u, j, c));
const f32 f_gate = FORGET;
const f32 c_next = f_gate * c + i_gate * activate(d, 1u, x[3] + sum[3]);
const f32 o_gate = activate(d, 0u, x[1] + sum[1] + peep(d, 1u, j, c_next));
cell[q] = c_next;
next = o_gate * activate(d, 2u, c_next);
