// Convolutions of images with channels last as products: a row for each window, a column for each output channel of a
// group, depth = taps x channels of the group. Words 0 to 24 as in generic/window.cuh, then the number of windows.

// ---- conv
// The window of one line of A: its first element's offset (which may lie outside), and position.
struct Window {
    i32 at, z, y, x;
};

DEV Window window_of(u32 row, u32 first) const {
    if (row >= m(25u)) {
        return Window{0, 0, -(1 << 29), 0};
    }
    const u32 x = row % m(15u);
    const u32 y = row / m(15u) % m(8u);
    const u32 rest = row / m(15u) / m(8u);
    Window w;
    w.z = i32(rest % m(1u)) * mi(3u) - mi(5u);
    w.y = i32(y) * mi(10u) - mi(12u);
    w.x = i32(x) * mi(17u) - mi(19u);
    w.at = (((i32(rest / m(1u)) * mi(0u) + w.z) * mi(7u) + w.y) * mi(14u) + w.x) * mi(21u) + i32(first);
    return w;
}

// A tap and a channel under it, from the k of the product.
struct Tap {
    u32 channel;
    i32 z, y, x;
};

DEV Tap tap_of(u32 k) const {
    const u32 tap = k / m(23u);
    return Tap{k % m(23u), i32(tap / m(16u) / m(9u)), i32(tap / m(16u) % m(9u)), i32(tap % m(16u))};
}

// The tap `step` elements on.
DEV void move_tap(Tap& t, u32 step) const {
    t.channel += step;
    while (t.channel >= m(23u)) {
        t.channel -= m(23u);
        t.x++;
        if (t.x == mi(16u)) {
            t.x = 0;
            t.y++;
            if (t.y == mi(9u)) {
                t.y = 0;
                t.z++;
            }
        }
    }
}

// How far a tap lies from the first element of its window.
DEV i32 reach(const Tap& t) const {
    return ((t.z * mi(4u) * mi(7u) + t.y * mi(11u)) * mi(14u) + t.x * mi(18u)) * mi(21u) + i32(t.channel);
}

DEV bool within(const Window& w, const Tap& t) const {
    const bool flat = u32(w.y + t.y * mi(11u)) < m(7u) && u32(w.x + t.x * mi(18u)) < m(14u);
    if constexpr (DEEP) {
        return flat && t.z < mi(2u) && u32(w.z + t.z * mi(4u)) < m(0u);
    } else {
        return flat && t.z == 0;
    }
}

// ---- vectors
// Copies of 16 bytes: the channels of a group are a multiple of their elements.
struct Loader {
    static constexpr u32 COPIES = KB / 16u;
    static constexpr u32 BELOW = THREADS / COPIES;
    static constexpr u32 LINES = BM / BELOW;
    Window lines[LINES];
    Tap tap;

    DEV void start(const K& k, u32 i0, u32 first) {
#pragma unroll
        for (u32 q = 0u; q < LINES; q++) {
            lines[q] = k.window_of(i0 + threadIdx.x / COPIES + q * BELOW, first);
        }
        tap = k.tap_of(threadIdx.x % COPIES * PER_COPY);
    }

    DEV void load(const K& k, u8* a, u8* b, u32 step, u32 first, u32 j0) {
        const i32 far = k.reach(tap);
        u8* to = a + threadIdx.x / COPIES * PITCH + threadIdx.x % COPIES * 16u;
#pragma unroll
        for (u32 q = 0u; q < LINES; q++) {
            const bool inside = k.within(lines[q], tap);
            copy16(to + q * BELOW * PITCH, k.bx0 + (inside ? lines[q].at + far : 0), inside);
        }
        k.move_tap(tap, BK);
        const u32 depth = k.depth();
        const u32 at = step * BK + threadIdx.x % COPIES * PER_COPY;
        to = b + threadIdx.x / COPIES * PITCH + threadIdx.x % COPIES * 16u;
#pragma unroll
        for (u32 q = 0u; q < (BN + BELOW - 1u) / BELOW; q++) {
            const u32 line = threadIdx.x / COPIES + q * BELOW;
            if (BN % BELOW == 0u || line < BN) {
                const bool inside = j0 + line < k.m(24u) && at < depth;
                copy16(to + q * BELOW * PITCH, k.bx1 + (inside ? (first + j0 + line) * depth + at : 0u), inside);
            }
        }
    }
};

// ---- elements
// Element by element: a thread keeps to one window.
struct Loader {
    Window line;

    DEV void start(const K& k, u32 i0, u32 first) { line = k.window_of(i0 + threadIdx.x % BM, first); }

    DEV void load(const K& k, u8* a, u8* b, u32 step, u32 first, u32 j0) {
        constexpr u32 SHARE = BK * BM / THREADS;
        const u32 depth = k.depth();
        const u32 from = threadIdx.x / BM * SHARE;
        Tap tap = k.tap_of(step * BK + from);
        CELL_A* to = reinterpret_cast<CELL_A*>(a + threadIdx.x % BM * PITCH) + from;
#pragma unroll 8
        for (u32 q = 0u; q < SHARE; q++) {
            to[q] = k.within(line, tap) ? k.bx0[line.at + k.reach(tap)] : CELL_A(0);
            k.move_tap(tap, 1u);
        }
        for (u32 e = threadIdx.x; e < BN * BK; e += THREADS) {
            const u32 at = step * BK + e % BK;
            const bool inside = j0 + e / BK < k.m(24u) && at < depth;
            reinterpret_cast<CELL_B*>(b + e / BK * PITCH)[e % BK] =
                inside ? k.bx1[(first + j0 + e / BK) * depth + at] : CELL_B(0);
        }
    }
};

// ---- table
// Element by element, where the taps of all k fit into a table of TABLE: a thread keeps to one window, and copies as
// many elements at a time as make 16 bytes.
__shared__ uint2 taps_of_k[TABLE];

struct Loader {
    Window line;

    DEV void start(const K& k, u32 i0, u32 first) {
        for (u32 e = threadIdx.x; e < TABLE; e += THREADS) {
            const Tap tap = k.tap_of(e);
            // Beyond the last tap lies what is in no image.
            const u32 dy = e < k.depth() ? u32(tap.y * k.mi(11u)) : 0x4000u;
            taps_of_k[e] = uint2{u32(k.reach(tap)), (dy << 16) | (u32(tap.x * k.mi(18u)) & 0xffffu)};
        }
        line = k.window_of(i0 + threadIdx.x % BM, first);
        __syncthreads();
    }

    DEV void load(const K& k, u8* a, u8* b, u32 step, u32 first, u32 j0) {
        constexpr u32 SHARE = BK * BM / THREADS;
        const u32 depth = k.depth();
        const u32 from = threadIdx.x / BM * SHARE;
        const u32 height = k.m(7u);
        const u32 width = k.m(14u);
        CELL_A* to = reinterpret_cast<CELL_A*>(a + threadIdx.x % BM * PITCH) + from;
#pragma unroll
        for (u32 e = 0u; e < SHARE; e += PER_COPY) {
            struct alignas(16) Cells {
                CELL_A v[PER_COPY];
            } cells;
#pragma unroll
            for (u32 q = 0u; q < PER_COPY; q++) {
                const uint2 tap = taps_of_k[step * BK + from + e + q];
                const bool inside =
                    u32(line.y + (i32(tap.y) >> 16)) < height && u32(line.x + (i32(tap.y << 16) >> 16)) < width;
                cells.v[q] = inside ? k.bx0[line.at + i32(tap.x)] : CELL_A(0);
            }
            *reinterpret_cast<Cells*>(to + e) = cells;
        }
        for (u32 e = threadIdx.x; e < BN * BK; e += THREADS) {
            const u32 at = step * BK + e % BK;
            const bool inside = j0 + e / BK < k.m(24u) && at < depth;
            reinterpret_cast<CELL_B*>(b + e / BK * PITCH)[e % BK] =
                inside ? k.bx1[(first + j0 + e / BK) * depth + at] : CELL_B(0);
        }
    }
};

// ---- entry
DEV u32 depth() const { return m(2u) * m(9u) * m(16u) * m(23u); }

GROUPS conv THREADS_OF_BLOCK {
    const u32 rows = m(25u);
    const u32 cols = m(24u);
    const u32 across = (cols + BN - 1u) / BN;
    const u32 down = (rows + BM - 1u) / BM;
    const u32 part = group / (across * down);
    u32 ti, tj;
    place_tile(group % (across * down), down, across, ti, tj);
    const u32 i0 = ti * BM;
    const u32 j0 = tj * BN;
    Loader loader;
    loader.start(*this, i0, part * m(23u));
    ACC sum[WM / 16][WN / 8][4] = {};
    const u32 steps = (depth() + BK - 1u) / BK;
    accumulate(sum, steps, [&](u32 stage, u32 step, u32 share) {
        if (share == 0u && step < steps) {
            loader.load(*this, stage_a(stage), stage_b(stage), step, part * cols, j0);
        }
    });
    const u32 all = m(22u);
    const bool runs = cols % 8u == 0u && all % 8u == 0u;
    spread(sum, [&](u32 row, u32 col, ACC* v) {
        row += i0;
        col += j0;
        if (row >= rows || col >= cols) {
            return;
        }
        const u32 ch = part * cols + col;
        const u32 at = row * all + ch;
        if (runs) {
            add_bias(v, ch, 8u);
            emit0_run(at, v);
            return;
        }
        const u32 left = ::min(cols - col, 8u);
        add_bias(v, ch, left);
        for (u32 q = 0u; q < left; q++) {
            emit0(at + q, v[q]);
        }
    });
}

// ---- bias
DEV void add_bias(ACC* v, u32 ch, u32 n) const {
    if (n == 8u) {
        const auto p = Run<CELL_C>::of(bx2 + ch, 1u);
#pragma unroll
        for (u32 i = 0u; i < 8u; i++) {
            v[i] += BIAS_VALUE;
        }
        return;
    }
    for (u32 q = 0u; q < n; q++) {
        v[q] += x2(ch + q);
    }
}

// ---- no_bias
DEV void add_bias(ACC*, u32, u32) const {}
