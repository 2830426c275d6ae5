// Convolutions of each channel by itself, images with channels last: a thread has windows of 8 channels, RUN neighbours in each of
// LINES rows of the result, which share what they read. Sums are of f32. KERNEL_DOWN and KERNEL_ACROSS are the kernel's sizes,
// STRIDE_DOWN and STRIDE_ACROSS its strides, SIDE the threads side by side along channels, UNROLL the rows of x that are read at once;
// `bias` returns a channel's.
#pragma once
#include "../prelude/launch.cuh"
#include "../prelude/storage.cuh"

struct DepthwiseParams {
    u32 height;
    u32 width;
    u32 rows;
    u32 columns;
    u32 channels;
    i32 before_down;
    i32 before_across;
    u32 runs;
    u32 bands;
    u32 positions;
    u32 along;
    u32 blocks;
};

template <class K> struct Depthwise {
    // Channels of a thread.
    static constexpr u32 WIDTH = 8u;
    // Elements of a row of x under the windows of a thread.
    static constexpr u32 SPAN = (K::RUN - 1u) * K::STRIDE_ACROSS + K::KERNEL_ACROSS;
    // Rows of x under them.
    static constexpr u32 HEIGHT = (K::LINES - 1u) * K::STRIDE_DOWN + K::KERNEL_DOWN;
    static constexpr u32 TAPS = K::KERNEL_DOWN * K::KERNEL_ACROSS;
    // Channels of a block.
    static constexpr u32 CHANNELS = K::SIDE * WIDTH;
    typedef typename K::Cell Cell;
    static constexpr u32 WORDS_OF_8 = u32(sizeof(Cell)) * 2u;

    const K& k;
    const DepthwiseParams& p;
    // The weights of a block's channels: of a tap four channels of each thread, then the other four, so that neighbouring threads
    // read neighbours.
    const f32* weights;

    DEV static u32 place(u32 tap, u32 channel) {
        return tap * CHANNELS + channel % WIDTH / 4u * (K::SIDE * 4u) + channel / WIDTH * 4u + channel % 4u;
    }

    DEV void windows(u32 position, u32 c, u32 lane) const {
        const u32 band = position / p.runs;
        const u32 ox = (position - band * p.runs) * K::RUN;
        const u32 image = band / p.bands;
        const u32 oy = (band - image * p.bands) * K::LINES;
        const i32 top = i32(oy * K::STRIDE_DOWN) - p.before_down;
        const i32 left = i32(ox * K::STRIDE_ACROSS) - p.before_across;
        f32 sums[K::LINES][K::RUN][WIDTH];
#pragma unroll
        for (u32 j = 0u; j < WIDTH; j++) {
            const f32 first = k.bias(c + j);
#pragma unroll
            for (u32 r = 0u; r < K::LINES * K::RUN; r++) {
                sums[r / K::RUN][r % K::RUN][j] = first;
            }
        }
#pragma unroll K::UNROLL
        for (u32 down = 0u; down < HEIGHT; down++) {
            const i32 y = top + i32(down);
            const bool within = y >= 0 && y < i32(p.height);
            const Cell* line = k.bx0 + (image * p.height + u32(within ? y : 0)) * p.width * p.channels + c;
            u32 cells[SPAN][WORDS_OF_8];
#pragma unroll
            for (u32 s = 0u; s < SPAN; s++) {
                const i32 x = left + i32(s);
                const bool there = within && x >= 0 && x < i32(p.width);
#pragma unroll
                for (u32 q = 0u; q < WORDS_OF_8; q += 4u) {
                    uint4 four = make_uint4(0u, 0u, 0u, 0u);
                    if (there) {
                        four = reinterpret_cast<const uint4*>(line + u32(x) * p.channels)[q / 4u];
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
                    if constexpr (sizeof(Cell) == 4u) {
                        taps[s][j] = cf(cells[s][j]);
                        taps[s][j + 1u] = cf(cells[s][j + 1u]);
                    } else if constexpr (K::BF16) {
                        bf16x2_to_f32(cells[s][j / 2u], taps[s][j], taps[s][j + 1u]);
                    } else {
                        f16x2_to_f32(cells[s][j / 2u], taps[s][j], taps[s][j + 1u]);
                    }
                }
            }
#pragma unroll
            for (u32 l = 0u; l < K::LINES; l++) {
                const u32 ky = down - l * K::STRIDE_DOWN;
                if (ky < K::KERNEL_DOWN) {
                    add_row(sums[l], taps, ky, lane);
                }
            }
        }
        const u32 at = ((image * p.rows + oy) * p.columns + ox) * p.channels + c;
#pragma unroll
        for (u32 r = 0u; r < K::LINES * K::RUN; r++) {
            if (oy + r / K::RUN < p.rows && ox + r % K::RUN < p.columns) {
                k.emit0_run(at + (r / K::RUN * p.columns + r % K::RUN) * p.channels, sums[r / K::RUN][r % K::RUN]);
            }
        }
    }

    // Adds the products with row `ky` of the kernel.
    DEV void add_row(f32 (&sums)[K::RUN][WIDTH], const f32 (&taps)[SPAN][WIDTH], u32 ky, u32 lane) const {
#pragma unroll
        for (u32 kx = 0u; kx < K::KERNEL_ACROSS; kx++) {
            f32 w[WIDTH];
#pragma unroll
            for (u32 j = 0u; j < WIDTH; j += 4u) {
                const float4 four = *reinterpret_cast<const float4*>(weights + place(ky * K::KERNEL_ACROSS + kx, lane * WIDTH + j));
                w[j] = four.x;
                w[j + 1u] = four.y;
                w[j + 2u] = four.z;
                w[j + 3u] = four.w;
            }
#pragma unroll
            for (u32 r = 0u; r < K::RUN; r++) {
#pragma unroll
                for (u32 j = 0u; j < WIDTH; j++) {
                    mac(sums[r][j], taps[r * K::STRIDE_ACROSS + kx][j], w[j]);
                }
            }
        }
    }
};

template <class K> DEV void depthwise(const K& k) {
    typedef Depthwise<K> Of;
    __shared__ __align__(16) f32 weights[Of::TAPS * Of::CHANNELS];
    const auto& p = params<DepthwiseParams>(k);
    const u32 c0 = blockIdx.x % p.along * Of::CHANNELS;
    for (u32 i = threadIdx.x; i < Of::TAPS * Of::CHANNELS; i += K::LANES) {
        const u32 c = c0 + i % Of::CHANNELS;
        const u32 tap = i / Of::CHANNELS;
        weights[Of::place(tap, i % Of::CHANNELS)] = c < p.channels ? k.x1(c * Of::TAPS + tap) : 0.0f;
    }
    __syncthreads();
    const u32 lane = threadIdx.x % K::SIDE;
    const u32 c = c0 + lane * Of::WIDTH;
    if (c >= p.channels) {
        return;
    }
    const Of of{k, p, weights};
    const u32 step = p.blocks * (K::LANES / K::SIDE);
    u32 position = blockIdx.x / p.along * (K::LANES / K::SIDE) + threadIdx.x / K::SIDE;
    for (; position < p.positions; position += step) {
        of.windows(position, c, lane);
    }
}
