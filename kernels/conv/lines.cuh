// Convolutions of images with few channels last, of 16 bits, by mma.sync: what is under a line of a filter is contiguous, and
// goes from shared memory to registers as it is stored there. A block makes TALL lines of up to WIDE windows, 32 columns a warp,
// one piece of the image after another; the weights of its columns stay in registers. `K::Form` is what it is compiled for: a
// filter has FILTER_LINES lines of LINE elements, which are PARTS_OF_LINE parts of eight; STEP elements lie from one window to the
// next, DOWN lines of the image from one line of windows to the next, APART from one line of a filter to the next. Its
// instruction is `Mma`.
#pragma once
#include "bias.cuh"
#include "../prelude/launch.cuh"
#include "../mma/instruction.cuh"

struct ConvLinesParams {
    u32 height;
    u32 width;
    u32 channels;
    u32 outputs;
    u32 out_height;
    u32 out_width;
    i32 stride_x;
    i32 pad_y;
    i32 pad_x;
    u32 pieces;
    u32 beside;
    u32 wide;
    u32 constant;
};

extern __shared__ __align__(16) u8 block_memory[];

template <class Form> struct Filter {
    static constexpr u32 LINE = Form::LINE;
    static constexpr u32 STEP = Form::STEP;
    static constexpr u32 WARPS = 4u;
    static constexpr u32 WIDE = 128u;
    static constexpr u32 PARTS_OF_LINE = (LINE + 7u) / 8u;
    static constexpr u32 PARTS = Form::FILTER_LINES * PARTS_OF_LINE;
    // Instructions along the depth, of two parts.
    static constexpr u32 DEEP = (PARTS + 1u) / 2u;
    static constexpr u32 IMAGE_LINES = (Form::TALL - 1u) * Form::DOWN + (Form::FILTER_LINES - 1u) * Form::APART + 1u;
    // Words of two elements from one line of the image to the next. Where windows begin at odd elements, there is a copy of all
    // lines that begins with the second element.
    static constexpr u32 PITCH = ((WIDE - 1u) * STEP + PARTS_OF_LINE * 8u + 1u) / 2u;
    static constexpr u32 COPY = STEP % 2u == 1u ? IMAGE_LINES * PITCH : 0u;
};

// The words of instruction `s` for two of its lines of windows, and two parts of the depth.
template <class Form> struct LineFragment {
    typedef Filter<Form> F;
    u32 v[4];
    DEV void read(const u32* window, u32 s, u32 inside) {
#pragma unroll
        for (u32 i = 0u; i < 4u; i++) {
            const u32 part = s * 2u + i / 2u;
            v[i] = part < F::PARTS ? window[at(part) + i % 2u * (F::STEP * 4u)] : 0u;
            // Beyond the filter's line lie other windows, with numbers that must not count.
            if (F::LINE % 8u != 0u && part % F::PARTS_OF_LINE + 1u == F::PARTS_OF_LINE) {
                v[i] &= inside;
            }
        }
    }
    DEV static u32 at(u32 part) { return part / F::PARTS_OF_LINE * Form::APART * F::PITCH + part % F::PARTS_OF_LINE * 4u; }
};

// The weights of 32 columns from `first` on, in the order that gives a lane sums of eight neighbours.
template <class K> struct LineWeights {
    typedef Filter<typename K::Form> F;
    u32 v[F::DEEP][4][2];

    DEV void read(const K& k, u32 outputs, u32 first) {
        const u32 lane = threadIdx.x % 32u;
#pragma unroll
        for (u32 s = 0u; s < F::DEEP; s++) {
#pragma unroll
            for (u32 j = 0u; j < 4u; j++) {
                const u32 col = first + lane / 8u * 8u + j * 2u + lane / 4u % 2u;
#pragma unroll
                for (u32 i = 0u; i < 2u; i++) {
                    const u32 part = s * 2u + i;
                    const u32 at = lane % 4u * 2u;
                    v[s][j][i] = weight(k, outputs, col, part, at) | (weight(k, outputs, col, part, at + 1u) << 16);
                }
            }
        }
    }

    DEV static u32 weight(const K& k, u32 outputs, u32 col, u32 part, u32 at) {
        at += part % F::PARTS_OF_LINE * 8u;
        const bool inside = part < F::PARTS && at < F::LINE && col < outputs;
        return inside ? k.bx1[(col * K::Form::FILTER_LINES + part / F::PARTS_OF_LINE) * F::LINE + at] : 0u;
    }
};

// A piece of the result: windows from `x`, lines from `y` on.
struct Piece {
    u32 image, x, y;
};

template <u32 TALL> DEV Piece piece_of(const ConvLinesParams& p, u32 number) {
    Piece piece;
    piece.x = number % p.beside * p.wide;
    number /= p.beside;
    const u32 tall = (p.out_height + TALL - 1u) / TALL;
    piece.y = number % tall * TALL;
    piece.image = number / tall;
    return piece;
}

// Two neighbours of a line of `elements`, outside of which are zeros.
DEV u32 two_of_line(const u16* line, i32 at, i32 elements) {
    const u32 low = u32(at) < u32(elements) ? line[at] : 0u;
    const u32 high = u32(at + 1) < u32(elements) ? line[at + 1] : 0u;
    return low | (high << 16);
}

// Lines of the image under a piece, `words` of each: many are on their way at once.
template <class K> DEV void read_image(const K& k, const ConvLinesParams& p, const Piece& piece, u32 words) {
    typedef Filter<typename K::Form> F;
    constexpr u32 AT_ONCE = 8u;
    u32* const to = reinterpret_cast<u32*>(block_memory);
    const i32 elements = i32(p.width) * i32(p.channels);
    const i32 first = (i32(piece.x) * p.stride_x - p.pad_x) * i32(p.channels);
    const u32 down = F::WARPS * 32u / words;
    const u32 right = F::WARPS * 32u % words;
    u32 r = threadIdx.x / words;
    u32 w = threadIdx.x % words;
    while (r < F::IMAGE_LINES) {
        u32 place[AT_ONCE], own[AT_ONCE], copy[AT_ONCE];
#pragma unroll
        for (u32 i = 0u; i < AT_ONCE; i++) {
            const i32 y = i32(piece.y * K::Form::DOWN + r) - p.pad_y;
            const bool there = r < F::IMAGE_LINES && u32(y) < p.height;
            const u16* line = k.bx0 + u64(there ? piece.image * p.height + u32(y) : 0u) * u32(elements);
            const i32 at = first + i32(w) * 2;
            place[i] = r < F::IMAGE_LINES ? r * F::PITCH + w : 0xffffffffu;
            own[i] = two_of_line(line, at, there ? elements : 0);
            copy[i] = F::COPY > 0u ? two_of_line(line, at + 1, there ? elements : 0) : 0u;
            w += right;
            const bool over = w >= words;
            w -= over ? words : 0u;
            r += down + u32(over);
        }
#pragma unroll
        for (u32 i = 0u; i < AT_ONCE; i++) {
            if (place[i] != 0xffffffffu) {
                to[place[i]] = own[i];
                if constexpr (F::COPY > 0u) {
                    to[F::COPY + place[i]] = copy[i];
                }
            }
        }
    }
}

template <class K> DEV void lines(const K& k) {
    typedef typename K::Form Form;
    typedef Filter<Form> F;
    constexpr u32 WARPS_N = Form::WARPS_N;
    const auto& p = params<ConvLinesParams>(k);
    const u32 cols = p.outputs;
    const u32 columns = (cols + WARPS_N * 32u - 1u) / (WARPS_N * 32u);
    const u32 lane = threadIdx.x % 32u;
    const u32 warp = threadIdx.x / 32u;
    const u32 first = blockIdx.x % columns * (WARPS_N * 32u) + warp % WARPS_N * 32u;
    if (p.constant == 0u) {
        depend();
    }
    LineWeights<K> weights;
    weights.read(k, cols, first);
    depend();
    const u32 col = first + lane % 4u * 8u;
    const bool runs = cols % 8u == 0u && Biases<K>::even(k);
    const Biases<K> own = runs ? Biases<K>::read(k, col < cols ? col : 0u) : Biases<K>{};
    // The last part of a filter's line ends within a word of this lane, or before it, or behind.
    constexpr u32 REST = F::LINE - (F::PARTS_OF_LINE - 1u) * 8u;
    const u32 inside = lane % 4u * 2u + 1u < REST ? 0xffffffffu : lane % 4u * 2u < REST ? 0xffffu : 0u;
    for (u32 number = blockIdx.x / columns; number < p.pieces; number += gridDim.x / columns) {
        const Piece piece = piece_of<Form::TALL>(p, number);
        const u32 across = (::min(p.wide, p.out_width - piece.x) + 15u) / 16u;
        __syncthreads();
        read_image(k, p, piece, ((across * 16u - 1u) * F::STEP + F::PARTS_OF_LINE * 8u + 1u) / 2u);
        __syncthreads();
        for (u32 q = warp / WARPS_N; q < across * Form::TALL; q += F::WARPS / WARPS_N) {
            const u32 x = q % across * 16u + lane / 4u;
            const u32 y = q / across;
            if (piece.y + y >= p.out_height) {
                break;
            }
            const u32* window =
                reinterpret_cast<const u32*>(block_memory) + y * Form::DOWN * F::PITCH + x * F::STEP / 2u + lane % 4u;
            if constexpr (F::COPY > 0u) {
                window += x * F::STEP % 2u * F::COPY;
            }
            f32 sum[4][4] = {};
#pragma unroll
            for (u32 s = 0u; s < F::DEEP; s++) {
                LineFragment<Form> a;
                a.read(window, s, inside);
#pragma unroll
                for (u32 j = 0u; j < 4u; j++) {
                    Form::Mma::product(sum[j], a.v, weights.v[s][j]);
                }
            }
#pragma unroll
            for (u32 half = 0u; half < 2u; half++) {
                f32 v[8];
#pragma unroll
                for (u32 i = 0u; i < 8u; i++) {
                    v[i] = sum[i / 2u][half * 2u + i % 2u];
                }
                const u32 to = piece.x + x + half * 8u;
                if (to < p.out_width && x + half * 8u < p.wide && col < cols) {
                    const u32 at = ((piece.image * p.out_height + piece.y + y) * p.out_width + to) * cols + col;
                    if (runs) {
                        own.add(v);
                        k.emit0_run(at, v);
                    } else {
#pragma unroll
                        for (u32 i = 0u; i < 8u; i++) {
                            if (col + i < cols) {
                                k.emit0(at + i, Biases<K>::biased(k, v[i], col + i));
                            }
                        }
                    }
                }
            }
        }
    }
}
