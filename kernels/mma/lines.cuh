// Convolutions of images with few channels last, of 16 bits, by mma.sync: what lies under a line of a filter is contiguous, and
// goes from shared memory to registers as it lies there. A block makes TALL lines of up to WIDE windows, 32 columns a warp, one
// piece of the image after another; the weights of its columns stay in registers. A line of a filter, LINE elements, is
// PARTS_OF_LINE parts of eight; STEP elements lie from one window to the next, DOWN lines of the image from one line of
// windows to the next, APART from one line of a filter to the next.

// ---- lines
extern __shared__ __align__(16) u8 block_memory[];
static constexpr u32 WARPS = 4u;
static constexpr u32 WIDE = 128u;
static constexpr u32 PARTS_OF_LINE = (LINE + 7u) / 8u;
static constexpr u32 PARTS = KERNEL_LINES * PARTS_OF_LINE;
// Instructions along the depth, of two parts.
static constexpr u32 DEEP = (PARTS + 1u) / 2u;
static constexpr u32 IMAGE_LINES = (TALL - 1u) * DOWN + (KERNEL_LINES - 1u) * APART + 1u;
// Words of two elements from one line of the image to the next. Where windows begin at odd elements, there is a copy of all lines
// that begins with the second element.
static constexpr u32 PITCH = ((WIDE - 1u) * STEP + PARTS_OF_LINE * 8u + 1u) / 2u;
static constexpr u32 COPY = STEP % 2u == 1u ? IMAGE_LINES * PITCH : 0u;

// The words of instruction `s` for two of its lines of windows, and two parts of the depth.
struct Lines {
    u32 v[4];
    DEV void read(const u32* window, u32 s, u32 inside) {
#pragma unroll
        for (u32 i = 0u; i < 4u; i++) {
            const u32 part = s * 2u + i / 2u;
            v[i] = part < PARTS ? window[at(part) + i % 2u * (STEP * 4u)] : 0u;
            // Beyond the filter's line lie other windows, with numbers that must not count.
            if (LINE % 8u != 0u && part % PARTS_OF_LINE + 1u == PARTS_OF_LINE) {
                v[i] &= inside;
            }
        }
    }
    DEV static u32 at(u32 part) { return part / PARTS_OF_LINE * APART * PITCH + part % PARTS_OF_LINE * 4u; }
};

DEV static void product(f32 (&d)[4], const Lines& a, const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.MMA_A.MMA_B.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a.v[0]), "r"(a.v[1]), "r"(a.v[2]), "r"(a.v[3]), "r"(b[0]), "r"(b[1]));
}

// The weights of 32 columns from `first` on, in the order that gives a lane sums of eight neighbours.
struct Weights {
    u32 v[DEEP][4][2];

    DEV void read(const K& k, u32 first) {
        const u32 lane = threadIdx.x % 32u;
#pragma unroll
        for (u32 s = 0u; s < DEEP; s++) {
#pragma unroll
            for (u32 j = 0u; j < 4u; j++) {
                const u32 col = first + lane / 8u * 8u + j * 2u + lane / 4u % 2u;
#pragma unroll
                for (u32 i = 0u; i < 2u; i++) {
                    v[s][j][i] = k.weight(col, s * 2u + i, lane % 4u * 2u) | (k.weight(col, s * 2u + i, lane % 4u * 2u + 1u) << 16);
                }
            }
        }
    }
};

DEV u32 weight(u32 col, u32 part, u32 at) const {
    at += part % PARTS_OF_LINE * 8u;
    const bool inside = part < PARTS && at < LINE && col < m(22u);
    return inside ? bx1[(col * KERNEL_LINES + part / PARTS_OF_LINE) * LINE + at] : 0u;
}

// A piece of the result: windows from `x`, lines from `y` on.
struct Piece {
    u32 image, x, y;
    DEV Piece(const K& k, u32 number) {
        x = number % k.m(26u) * k.m(27u);
        number /= k.m(26u);
        const u32 tall = (k.m(8u) + TALL - 1u) / TALL;
        y = number % tall * TALL;
        image = number / tall;
    }
};

// Two neighbours of a line of `elements`, outside of which are zeros.
DEV static u32 two(const u16* line, i32 at, i32 elements) {
    const u32 low = u32(at) < u32(elements) ? line[at] : 0u;
    const u32 high = u32(at + 1) < u32(elements) ? line[at + 1] : 0u;
    return low | (high << 16);
}

// Lines of the image under a piece, `words` of each: many are on their way at once.
DEV void read_image(const Piece& p, u32 words) const {
    constexpr u32 AT_ONCE = 8u;
    u32* const to = reinterpret_cast<u32*>(block_memory);
    const i32 elements = mi(14u) * mi(21u);
    const i32 first = (i32(p.x) * mi(17u) - mi(19u)) * mi(21u);
    const u32 down = WARPS * 32u / words;
    const u32 right = WARPS * 32u % words;
    u32 r = threadIdx.x / words;
    u32 w = threadIdx.x % words;
    while (r < IMAGE_LINES) {
        u32 place[AT_ONCE], own[AT_ONCE], copy[AT_ONCE];
#pragma unroll
        for (u32 i = 0u; i < AT_ONCE; i++) {
            const i32 y = i32(p.y * DOWN + r) - mi(12u);
            const bool there = r < IMAGE_LINES && u32(y) < m(7u);
            const u16* line = bx0 + u64(there ? p.image * m(7u) + u32(y) : 0u) * u32(elements);
            const i32 at = first + i32(w) * 2;
            place[i] = r < IMAGE_LINES ? r * PITCH + w : 0xffffffffu;
            own[i] = two(line, at, there ? elements : 0);
            copy[i] = COPY > 0u ? two(line, at + 1, there ? elements : 0) : 0u;
            w += right;
            const bool over = w >= words;
            w -= over ? words : 0u;
            r += down + u32(over);
        }
#pragma unroll
        for (u32 i = 0u; i < AT_ONCE; i++) {
            if (place[i] != 0xffffffffu) {
                to[place[i]] = own[i];
                if constexpr (COPY > 0u) {
                    to[COPY + place[i]] = copy[i];
                }
            }
        }
    }
}

// Words 0 to 24 as in generic/window.cuh, then pieces; how many of them lie side by side, of how many windows; are weights constant?
EARLY lines 128 {
    const u32 cols = m(22u);
    const u32 columns = (cols + WARPS_N * 32u - 1u) / (WARPS_N * 32u);
    const u32 lane = threadIdx.x % 32u;
    const u32 warp = threadIdx.x / 32u;
    const u32 first = blockIdx.x % columns * (WARPS_N * 32u) + warp % WARPS_N * 32u;
    if (m(28u) == 0u) {
        depend();
    }
    Weights weights;
    weights.read(*this, first);
    depend();
    const u32 col = first + lane % 4u * 8u;
    const bool runs = cols % 8u == 0u && even_biases();
    const Biases own = runs ? biases(col < cols ? col : 0u) : Biases{};
    // The last part of a filter's line ends within a word of this lane, or before it, or behind.
    constexpr u32 REST = LINE - (PARTS_OF_LINE - 1u) * 8u;
    const u32 inside = lane % 4u * 2u + 1u < REST ? 0xffffffffu : lane % 4u * 2u < REST ? 0xffffu : 0u;
    for (u32 number = blockIdx.x / columns; number < m(25u); number += gridDim.x / columns) {
        const Piece p(*this, number);
        const u32 across = (::min(m(27u), m(15u) - p.x) + 15u) / 16u;
        __syncthreads();
        read_image(p, ((across * 16u - 1u) * STEP + PARTS_OF_LINE * 8u + 1u) / 2u);
        __syncthreads();
        for (u32 q = warp / WARPS_N; q < across * TALL; q += WARPS / WARPS_N) {
            const u32 x = q % across * 16u + lane / 4u;
            const u32 y = q / across;
            if (p.y + y >= m(8u)) {
                break;
            }
            const u32* window = reinterpret_cast<const u32*>(block_memory) + y * DOWN * PITCH + x * STEP / 2u + lane % 4u;
            if constexpr (COPY > 0u) {
                window += x * STEP % 2u * COPY;
            }
            f32 sum[4][4] = {};
#pragma unroll
            for (u32 s = 0u; s < DEEP; s++) {
                Lines a;
                a.read(window, s, inside);
#pragma unroll
                for (u32 j = 0u; j < 4u; j++) {
                    product(sum[j], a, weights.v[s][j]);
                }
            }
#pragma unroll
            for (u32 half = 0u; half < 2u; half++) {
                f32 v[8];
#pragma unroll
                for (u32 i = 0u; i < 8u; i++) {
                    v[i] = sum[i / 2u][half * 2u + i % 2u];
                }
                const u32 to = p.x + x + half * 8u;
                if (to < m(15u) && x + half * 8u < m(27u) && col < cols) {
                    const u32 at = ((p.image * m(8u) + p.y + y) * m(15u) + to) * cols + col;
                    if (runs) {
                        add_biases(v, own);
                        emit0_run(at, v);
                    } else {
                        put_some(at, v, col);
                    }
                }
            }
        }
    }
}

// Those of eight neighbouring results that are columns.
DEV void put_some(u32 at, const f32* v, u32 col) const {
#pragma unroll
    for (u32 q = 0u; q < 8u; q++) {
        if (col + q < m(22u)) {
            emit0(at + q, biased(v[q], col + q));
        }
    }
}
