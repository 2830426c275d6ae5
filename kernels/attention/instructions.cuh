// Instructions of tensor cores, and copies into shared memory, for tiles whose lines are CELLs of SIZE bytes.

// ---- instructions
extern __shared__ __align__(128) u8 block_memory[];
static constexpr u32 PER_COPY = 16u / SIZE;
// Elements that one instruction takes of the depth.
static constexpr u32 STEP = 32u / SIZE;

DEV static u32 address(const void* p) { return u32(__cvta_generic_to_shared(p)); }

// 16 bytes from memory, or zeros.
DEV static void copy16(void* to, const void* from, bool inside) {
    const u32 bytes = inside ? 16u : 0u;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address(to)), "l"(from), "r"(bytes) : "memory");
}

DEV static void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most N groups of copies are on their way.
template <u32 N> DEV static void arrived() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }

// d += a b for 16 x 32 bytes by 32 bytes x 8.
DEV static void product(f32 (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.MMA_SHAPE.row.col.f32.MMA_TYPE.MMA_TYPE.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
                 "{%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

DEV static void matrices(u32 (&f)[4], const u8* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
                 : "r"(address(p))
                 : "memory");
#pragma unroll
    for (u32 r = 0u; r < 4u; r++) {
        f[r] = operand(f[r]);
    }
}

DEV static f32 power(f32 x) {
    f32 y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// `LINES` lines of a tile, `by` elements apart from `from` on, those from `lines` on zeros. A line has `size` elements, and
// DEPTH in the tile. `whole`: addresses and sizes allow copies of 16 bytes.
template <u32 LINES, u32 DEPTH>
DEV static void load_rows(u8* tile, const CELL* from, u32 by, u32 lines, u32 size, bool whole) {
    constexpr u32 COPIES = DEPTH / PER_COPY;
    if constexpr (THREADS % COPIES == 0u) {
        constexpr u32 WIDE = DEPTH * SIZE + 16u;
        constexpr u32 BELOW = THREADS / COPIES;
        if (whole) {
            const u32 line = threadIdx.x / COPIES;
            const u32 d = threadIdx.x % COPIES * PER_COPY;
            const CELL* p = from + u64(line) * by + d;
            const u64 step = u64(BELOW) * by;
            u8* to = tile + line * WIDE + d * SIZE;
            const bool all = lines >= LINES && size == DEPTH;
#pragma unroll
            for (u32 k = 0u; k < (LINES + BELOW - 1u) / BELOW; k++) {
                if (LINES % BELOW == 0u || line + k * BELOW < LINES) {
                    const bool inside = all || (line + k * BELOW < lines && d < size);
                    copy16(to + k * BELOW * WIDE, inside ? p + k * step : from, inside);
                }
            }
            return;
        }
    }
    auto line = [&](u32 k) -> const CELL* { return k < lines ? from + u64(k) * by : nullptr; };
    load_lines<LINES, DEPTH>(tile, from, size, whole, line);
}

// The same, where `line(k)` gives the address of the k-th, null outside.
template <u32 LINES, u32 DEPTH, class Line>
DEV static void load_lines(u8* tile, const CELL* any, u32 size, bool whole, Line line) {
    constexpr u32 WIDE = DEPTH * SIZE + 16u;
    constexpr u32 COPIES = DEPTH / PER_COPY;
    if (whole) {
        for (u32 e = threadIdx.x; e < LINES * COPIES; e += THREADS) {
            const CELL* from = line(e / COPIES);
            const u32 d = e % COPIES * PER_COPY;
            const bool inside = from != nullptr && d < size;
            copy16(tile + e / COPIES * WIDE + e % COPIES * 16u, inside ? from + d : any, inside);
        }
        return;
    }
    for (u32 e = threadIdx.x; e < LINES * DEPTH; e += THREADS) {
        const CELL* from = line(e / DEPTH);
        const u32 d = e % DEPTH;
        const bool inside = from != nullptr && d < size;
        reinterpret_cast<CELL*>(tile + e / DEPTH * WIDE)[d] = inside ? from[d] : CELL(0);
    }
}

// ---- narrow
DEV static u32 operand(u32 x) { return x; }

// Two weights side by side.
DEV static u32 pair(f32 low, f32 high) {
    u32 both;
    asm("cvt.rn.PAIR_TYPE.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

// Two neighbouring results.
DEV static void put_pair(u8* to, f32 a, f32 b) { *reinterpret_cast<u32*>(to) = pair(a, b); }

DEV static void transposed(u32 (&f)[4], const u8* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f[0]), "=r"(f[1]), "=r"(f[2]), "=r"(f[3])
                 : "r"(address(p))
                 : "memory");
}

// o += weights x values, for KEYS keys of a warp, of which the first `live` count at an EDGE.
template <bool EDGE, u32 KEYS>
DEV static void weigh(f32 (&o)[MI][DV / 8][4], const f32 (&s)[MI][NJ][4], const u8* values, u32 live) {
    const u32 lane = threadIdx.x % 32u;
#pragma unroll
    for (u32 k = 0u; k < KEYS / 16u; k++) {
        if (EDGE && k * 16u >= live) {
            continue;
        }
        u32 a[MI][4];
#pragma unroll
        for (u32 i = 0u; i < MI; i++) {
#pragma unroll
            for (u32 r = 0u; r < 4u; r++) {
                const f32* at = s[i][2u * k + r / 2u] + r % 2u * 2u;
                a[i][r] = pair(at[0], at[1]);
            }
        }
#pragma unroll
        for (u32 n = 0u; n < DV / 16; n++) {
            u32 f[4];
            transposed(f, values + (k * 16u + lane % 16u) * PITCH_V + (n * 16u + lane / 16u * 8u) * SIZE);
#pragma unroll
            for (u32 i = 0u; i < MI; i++) {
                product(o[i][2u * n], a[i], f[0], f[1]);
                product(o[i][2u * n + 1u], a[i], f[2], f[3]);
            }
        }
    }
}

// ---- wide
DEV static u32 operand(u32 x) {
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(x) : "f"(__uint_as_float(x)));
    return x;
}

DEV static void put_pair(u8* to, f32 a, f32 b) { *reinterpret_cast<float2*>(to) = float2{a, b}; }

// The same; which key goes where in the depth of an instruction is free, so that sums are operands as they lie: the keys 2t
// and 2t + 1 of thread t are its k = t and t + 4.
template <bool EDGE, u32 KEYS>
DEV static void weigh(f32 (&o)[MI][DV / 8][4], const f32 (&s)[MI][NJ][4], const u8* values, u32 live) {
    const u32 lane = threadIdx.x % 32u;
#pragma unroll
    for (u32 k = 0u; k < KEYS / 8u; k++) {
        if (EDGE && k * 8u >= live) {
            continue;
        }
        u32 a[MI][4];
#pragma unroll
        for (u32 i = 0u; i < MI; i++) {
#pragma unroll
            for (u32 r = 0u; r < 4u; r++) {
                a[i][r] = operand(__float_as_uint(s[i][k][r % 2u * 2u + r / 2u]));
            }
        }
        const u8* at = values + (k * 8u + lane % 4u * 2u) * PITCH_V + lane / 4u * SIZE;
#pragma unroll
        for (u32 n = 0u; n < DV / 8; n++) {
            const u32 b0 = operand(*reinterpret_cast<const u32*>(at + n * 8u * SIZE));
            const u32 b1 = operand(*reinterpret_cast<const u32*>(at + n * 8u * SIZE + PITCH_V));
#pragma unroll
            for (u32 i = 0u; i < MI; i++) {
                product(o[i][n], a[i], b0, b1);
            }
        }
    }
}
