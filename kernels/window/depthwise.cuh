// Convolutions of each channel by itself, images with channels last: a thread has RUN neighbouring windows of WIDTH channels.
// Sums are of f32. KH and KW are the kernel's sizes, SH and SW its strides, SIDE the threads side by side along channels,
// ALL the weights of these.
// Words: height, width of x; height, width of y; channels; padding above and left; runs of a row; positions (runs of all
// rows); blocks along channels and along positions.
static constexpr u32 WIDTH = 8u;
static constexpr u32 SPAN = (RUN - 1u) * SW + KW;
__shared__ __align__(16) f32 weights[ALL];

GROUPS depthwise 128 {
    const u32 channels = m(4u);
    const u32 c0 = group % m(9u) * (SIDE * WIDTH);
    for (u32 i = l; i < ALL; i += LANES) {
        const u32 c = c0 + i % (SIDE * WIDTH);
        weights[i] = c < channels ? x1(c * (KH * KW) + i / (SIDE * WIDTH)) : 0.0f;
    }
    __syncthreads();
    const u32 lane = l % SIDE;
    const u32 c = c0 + lane * WIDTH;
    if (c >= channels) {
        return;
    }
    const u32 step = m(10u) * (LANES / SIDE);
    for (u32 position = group / m(9u) * (LANES / SIDE) + l / SIDE; position < m(8u); position += step) {
        windows(position, c, lane);
    }
}

DEV void windows(u32 position, u32 c, u32 lane) const {
    const u32 channels = m(4u);
    const u32 runs = m(7u);
    const u32 row = position / runs;
    const u32 ox = (position - row * runs) * RUN;
    const u32 image = row / m(2u);
    const u32 oy = row - image * m(2u);
    const i32 top = i32(oy * SH) - mi(5u);
    const i32 left = i32(ox * SW) - mi(6u);
    f32 sums[RUN][WIDTH];
#pragma unroll
    for (u32 j = 0u; j < WIDTH; j++) {
        const f32 first = BIAS;
#pragma unroll
        for (u32 r = 0u; r < RUN; r++) {
            sums[r][j] = first;
        }
    }
#pragma unroll UNROLL
    for (u32 ky = 0u; ky < KH; ky++) {
        const i32 y = top + i32(ky);
        const bool within = y >= 0 && y < mi(0u);
        const CELL* line = bx0 + (image * m(0u) + u32(within ? y : 0)) * m(1u) * channels + c;
        u32 cells[SPAN][WORDS_OF_8];
#pragma unroll
        for (u32 s = 0u; s < SPAN; s++) {
            const i32 x = left + i32(s);
            const bool there = within && x >= 0 && x < mi(1u);
#pragma unroll
            for (u32 q = 0u; q < WORDS_OF_8; q += 4u) {
                uint4 four = make_uint4(0u, 0u, 0u, 0u);
                if (there) {
                    four = reinterpret_cast<const uint4*>(line + u32(x) * channels)[q / 4u];
                }
                cells[s][q] = four.x;
                cells[s][q + 1u] = four.y;
                cells[s][q + 2u] = four.z;
                cells[s][q + 3u] = four.w;
            }
        }
        f32 taps[SPAN][WIDTH];
#pragma unroll
        for (u32 s = 0u; s < SPAN; s++) {
#pragma unroll
            for (u32 j = 0u; j < WIDTH; j += 2u) {
                WIDEN
            }
        }
#pragma unroll
        for (u32 kx = 0u; kx < KW; kx++) {
            f32 w[WIDTH];
#pragma unroll
            for (u32 j = 0u; j < WIDTH; j++) {
                w[j] = weights[(ky * KW + kx) * (SIDE * WIDTH) + lane * WIDTH + j];
            }
#pragma unroll
            for (u32 r = 0u; r < RUN; r++) {
#pragma unroll
                for (u32 j = 0u; j < WIDTH; j++) {
                    mac(sums[r][j], taps[r * SW + kx][j], w[j]);
                }
            }
        }
    }
    const u32 at = (row * m(3u) + ox) * channels + c;
#pragma unroll
    for (u32 r = 0u; r < RUN; r++) {
        if (ox + r < m(3u)) {
            emit0_run(at + r * channels, sums[r]);
        }
    }
}
