// Convolutions with few channels a group, images with channels last: a thread has RUN neighbouring windows and OUT neighbouring
// output channels, of GROUPS groups or within one. Sums are of f32. Its inputs are read in PIECES of PIECE neighbouring channels, TILE taps
// of a line of the kernel at a time. STEP is the stride along a line, SIDE the threads side by side along channels.
#pragma once
#include "../prelude/launch.cuh"
#include "../prelude/storage.cuh"

struct GroupedLastParams {
    u32 depth;
    u32 height;
    u32 width;
    u32 out_depth;
    u32 out_height;
    u32 out_width;
    u32 channels;
    u32 outputs;
    u32 taps_z;
    u32 taps_y;
    i32 stride_z;
    i32 stride_y;
    i32 dilation_z;
    i32 dilation_y;
    i32 dilation_x;
    i32 pad_z;
    i32 pad_y;
    i32 pad_x;
    u32 runs;
    u32 positions;
    u32 along;
    u32 blocks;
};

// Neighbouring elements that are read at once.
template <class Cell, u32 COUNT> struct alignas(COUNT * sizeof(Cell)) Neighbours {
    Cell v[COUNT];
};

template <class K> struct GroupedLast {
    typedef typename K::Cell Cell;
    // Whether each tap reads elements of its own; else neighbouring taps share those of a span.
    static constexpr bool SPACED = K::TILE == 1u;
    static constexpr u32 SPAN = SPACED ? K::RUN : (K::RUN - 1u) * K::STEP + K::TILE;
    // Weights that a thread reads at once.
    static constexpr u32 QUAD = K::OUT % 4u == 0u ? 4u : K::OUT % 2u == 0u ? 2u : 1u;
    static constexpr u32 QUADS = K::OUT / QUAD;
    // Channels of the image of a thread, and in front of the next thread's.
    static constexpr u32 IN = K::PIECE * K::PIECES;
    // Channel of a group and tap: weights of a block from one to the next.
    static constexpr u32 PITCH = K::SIDE * K::OUT;

    const K& k;
    const GroupedLastParams& p;
    // The weights of a block's output channels.
    const f32* weights;

    // First channel of the image for the thread `number` along output channels.
    DEV static u32 first_channel(u32 number) {
        return K::GROUPS > 1u ? number * IN : number * K::OUT / K::GROUP_OUTPUTS * K::GROUP_CHANNELS;
    }

    DEV void elements(const Cell* line, i32 left, u32 piece, f32 (&x)[SPAN][K::PIECE]) const {
#pragma unroll
        for (u32 s = 0u; s < SPAN; s++) {
            const i32 at = left + i32(SPACED ? s * K::STEP : s);
            const bool there = u32(at) < p.width;
            const Cell* from = line + (there ? u32(at) : 0u) * p.channels + piece * K::PIECE;
#pragma unroll
            for (u32 q = 0u; q < K::PIECE; q += K::VECTOR) {
                const auto r = *reinterpret_cast<const Neighbours<Cell, K::VECTOR>*>(from + q);
#pragma unroll
                for (u32 i = 0u; i < K::VECTOR; i++) {
                    x[s][q + i] = there ? f32(k.wide(r.v[i])) : 0.0f;
                }
            }
        }
    }

    // Adds the products of a tap with one piece of channels; `w` are the weights of the tap's first channel.
    DEV void tap(u32 t, u32 piece, const f32* w, const f32 (&x)[SPAN][K::PIECE], f32 (&sums)[K::RUN][K::OUT]) const {
#pragma unroll
        for (u32 i = 0u; i < K::PIECE; i++) {
            const u32 c = piece * K::PIECE + i;
            const f32* row = w + (K::GROUPS > 1u ? c % K::GROUP_CHANNELS : c) * PITCH;
#pragma unroll
            for (u32 q = 0u; q < QUADS; q++) {
                if (K::GROUPS > 1u && (q * QUAD / K::GROUP_OUTPUTS > c / K::GROUP_CHANNELS ||
                                       (q * QUAD + QUAD - 1u) / K::GROUP_OUTPUTS < c / K::GROUP_CHANNELS)) {
                    continue;
                }
                const auto some = *reinterpret_cast<const Neighbours<f32, QUAD>*>(row + q * (K::SIDE * QUAD));
#pragma unroll
                for (u32 j = 0u; j < QUAD; j++) {
                    if (K::GROUPS == 1u || (q * QUAD + j) / K::GROUP_OUTPUTS == c / K::GROUP_CHANNELS) {
#pragma unroll
                        for (u32 r = 0u; r < K::RUN; r++) {
                            mac(sums[r][q * QUAD + j], x[SPACED ? r : r * K::STEP + t][i], some.v[j]);
                        }
                    }
                }
            }
        }
    }

    // One line of the kernel over a line of the image.
    DEV void line_of_taps(const Cell* line, i32 left, const f32* w, f32 (&sums)[K::RUN][K::OUT]) const {
#pragma unroll K::UNROLL
        for (u32 piece = 0u; piece < K::PIECES; piece++) {
#pragma unroll 1
            for (u32 first = 0u; first < K::TAPS_X; first += K::TILE) {
                f32 x[SPAN][K::PIECE];
                elements(line, left + i32(first) * p.dilation_x, piece, x);
#pragma unroll
                for (u32 t = 0u; t < K::TILE; t++) {
                    if (K::TAPS_X % K::TILE == 0u || first + t < K::TAPS_X) {
                        tap(t, piece, w + (first + t) * (K::GROUP_CHANNELS * PITCH), x, sums);
                    }
                }
            }
        }
    }

    // The windows of a run; `number` is the thread's along output channels, `lane` that of the block.
    DEV void windows(u32 position, u32 number, u32 lane) const {
        const u32 row = position / p.runs;
        const u32 ox = (position - row * p.runs) * K::RUN;
        const u32 slice = row / p.out_height;
        const u32 oy = row - slice * p.out_height;
        const u32 image = slice / p.out_depth;
        const u32 oz = slice - image * p.out_depth;
        const u32 to = number * K::OUT;
        f32 sums[K::RUN][K::OUT];
#pragma unroll
        for (u32 j = 0u; j < K::OUT; j++) {
            const f32 first = k.bias(to + j);
#pragma unroll
            for (u32 r = 0u; r < K::RUN; r++) {
                sums[r][j] = first;
            }
        }
        const Cell* own = k.bx0 + first_channel(number);
        const i32 left = i32(ox * K::STEP) - p.pad_x;
        const f32* w = weights + lane * QUAD;
        for (u32 kz = 0u; kz < p.taps_z; kz++) {
            const u32 z = u32(i32(oz) * p.stride_z - p.pad_z + i32(kz) * p.dilation_z);
            for (u32 ky = 0u; ky < p.taps_y; ky++) {
                const u32 y = u32(i32(oy) * p.stride_y - p.pad_y + i32(ky) * p.dilation_y);
                // Elements of lines are read where padding is, too, but for lines without any.
                if (z < p.depth && y < p.height && p.width > 0u) {
                    line_of_taps(own + ((image * p.depth + z) * p.height + y) * p.width * p.channels, left, w, sums);
                }
                w += K::TAPS_X * K::GROUP_CHANNELS * PITCH;
            }
        }
        const u32 at = (row * p.out_width + ox) * p.outputs + to;
#pragma unroll
        for (u32 r = 0u; r < K::RUN; r++) {
            if (ox + r < p.out_width) {
                if constexpr (K::OUT == 8u) {
                    k.emit0_run(at + r * p.outputs, sums[r]);
                } else {
#pragma unroll
                    for (u32 j = 0u; j < K::OUT; j++) {
                        k.emit0(at + r * p.outputs + j, sums[r][j]);
                    }
                }
            }
        }
    }
};

template <class K> DEV void grouped_last(const K& k) {
    typedef GroupedLast<K> Of;
    __shared__ __align__(16) f32 weights[K::DEPTH * Of::PITCH];
    const auto& p = params<GroupedLastParams>(k);
    const u32 first = blockIdx.x % p.along * K::SIDE;
    // Weights are stored by output channel, then by tap and channel.
    for (u32 i = threadIdx.x; i < K::DEPTH * Of::PITCH; i += K::LANES) {
        const u32 j = i / K::DEPTH;
        const u32 d = i - j * K::DEPTH;
        const u32 out = first * K::OUT + j;
        const u32 lane = j / K::OUT;
        const u32 of = j % K::OUT;
        const u32 place = d * Of::PITCH + of / Of::QUAD * (K::SIDE * Of::QUAD) + lane * Of::QUAD + of % Of::QUAD;
        weights[place] = out < p.outputs ? k.x1(out * K::DEPTH + d) : 0.0f;
    }
    __syncthreads();
    const u32 lane = threadIdx.x % K::SIDE;
    const u32 number = first + lane;
    if (number * K::OUT >= p.outputs) {
        return;
    }
    const Of of{k, p, weights};
    const u32 step = p.blocks * (K::LANES / K::SIDE);
    u32 position = blockIdx.x / p.along * (K::LANES / K::SIDE) + threadIdx.x / K::SIDE;
    for (; position < p.positions; position += step) {
        of.windows(position, number, lane);
    }
}
