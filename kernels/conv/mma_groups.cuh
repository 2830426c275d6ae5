// Convolutions of images with channels last and few channels a group, on tensor cores by mma.sync. A block computes TOGETHER bundles
// of groups for a rectangle of windows. Their channels of the image under all of these windows, and their weights, lie in shared
// memory, and every tap is multiplied where it lies. A bundle is one group, or several whose channels fill vectors together: the
// weights between its groups are zeros.
#pragma once
#include "../mma/tiles.cuh"
#include "../prelude/launch.cuh"
#include "bias.cuh"

struct GroupsMmaParams {
    u32 height;
    u32 width;
    u32 out_height;
    u32 out_width;
    u32 channels;
    u32 outputs;
    i32 stride_y;
    i32 stride_x;
    u32 dilation_y;
    u32 dilation_x;
    i32 pad_y;
    i32 pad_x;
    u32 tile_y;
    u32 tile_x;
    u32 tiles_y;
    u32 tiles_x;
    u32 halo_y;
    u32 halo_x;
    u32 parts;
};

// `Groups` is the structure of constants: CHANNELS and OUTPUTS of a group, BUNDLE groups in a bundle, TOGETHER bundles in a block,
// TAPS_X x TAPS_Y taps, WARPS with PARTS times 16 windows each, HALO pixels that have room, and the instruction.
template <class Groups> struct GroupsTile {
    typedef typename Groups::Mma Mma;
    typedef typename Mma::Sum Sum;
    static constexpr u32 SIZE = Mma::SIZE;
    static constexpr u32 PER_COPY = 16u / SIZE;
    static constexpr u32 THREADS = Groups::WARPS * 32u;
    static constexpr u32 TAPS = Groups::TAPS_Y * Groups::TAPS_X;
    static constexpr u32 MI = Groups::PARTS;
    static constexpr u32 WINDOWS = Groups::WARPS * MI * 16u;
    // Channels and output channels of a bundle, and of a block.
    static constexpr u32 DEEP = Groups::BUNDLE * Groups::CHANNELS;
    static constexpr u32 WIDE = Groups::BUNDLE * Groups::OUTPUTS;
    static constexpr u32 ALL = Groups::TOGETHER * WIDE;
    static constexpr u32 NJ = WIDE / 8u;
    // Vectors under one tap of a bundle, those of all taps, and steps of two.
    static constexpr u32 VECTORS = DEEP / PER_COPY;
    static constexpr u32 DEPTH = TAPS * VECTORS;
    static constexpr u32 STEPS = (DEPTH + 1u) / 2u;
    // Bytes from one pixel, and from one output channel, to the next: odd numbers of vectors, so that no two of eight neighbours
    // begin in the same banks.
    static constexpr u32 OF_PIXEL = Groups::TOGETHER * VECTORS;
    static constexpr u32 PITCH_A = (OF_PIXEL | 1u) * 16u;
    static constexpr u32 PITCH_B = (STEPS * 2u | 1u) * 16u;
    static constexpr u32 BYTES_A = Groups::HALO * PITCH_A;
    static constexpr u32 BYTES_B = ALL * PITCH_B;
    // Sums from one row to the next, where they go through shared memory.
    static constexpr u32 ROW = ALL + 4u;
    typedef Sum Sums[MI][Groups::TOGETHER][NJ][4];

    DEV static u8* image() { return block_memory; }
    DEV static u8* weights() { return block_memory + BYTES_A; }
    // How far each vector of the depth lies from the first one under a window.
    DEV static u32* reach() { return reinterpret_cast<u32*>(weights() + BYTES_B); }
};

// Starts the copies of the image from pixel (y0, x0) on, and of its channels from `channel` on; outside are zeros.
template <class T, class Cell>
DEV void load_halo(const GroupsMmaParams& p, const Cell* x, u32 image, i32 y0, i32 x0, u32 channel) {
    const u32 count = p.halo_y * p.halo_x * T::OF_PIXEL;
    for (u32 e = threadIdx.x; e < count; e += T::THREADS) {
        const u32 pixel = e / T::OF_PIXEL;
        const i32 row = y0 + i32(pixel / p.halo_x);
        const i32 col = x0 + i32(pixel % p.halo_x);
        const bool inside = u32(row) < p.height && u32(col) < p.width;
        const u64 at = inside ? (u64(image * p.height + u32(row)) * p.width + u32(col)) * p.channels + channel + e % T::OF_PIXEL * T::PER_COPY : 0u;
        copy16(T::image() + pixel * T::PITCH_A + e % T::OF_PIXEL * 16u, x + at, inside);
    }
}

// Loads the weights of output channels from `first` on: whole vectors, or those of a bundle of groups one by one.
template <class Groups, class T, class Cell> DEV void load_weights(const Cell* w, u32 first) {
    if constexpr (Groups::BUNDLE == 1u) {
        constexpr u32 LINE = T::STEPS * 2u;
        for (u32 e = threadIdx.x; e < T::ALL * LINE; e += T::THREADS) {
            const u32 line = e / LINE;
            const bool inside = e % LINE < T::DEPTH;
            copy16(T::weights() + line * T::PITCH_B + e % LINE * 16u, w + (inside ? (first + line) * (T::DEPTH * T::PER_COPY) + e % LINE * T::PER_COPY : 0u),
                   inside);
        }
    } else {
        constexpr u32 LINE = T::STEPS * 2u * T::PER_COPY;
        for (u32 e = threadIdx.x; e < T::ALL * LINE; e += T::THREADS) {
            const u32 line = e / LINE;
            const u32 tap = e % LINE / T::DEEP;
            const u32 channel = e % LINE % T::DEEP;
            const bool own = line % T::WIDE / Groups::OUTPUTS == channel / Groups::CHANNELS && tap < T::TAPS;
            reinterpret_cast<Cell*>(T::weights() + line * T::PITCH_B)[e % LINE] =
                own ? w[((first + line) * T::TAPS + tap) * Groups::CHANNELS + channel % Groups::CHANNELS] : Cell(0);
        }
    }
}

template <class K> DEV void conv_groups(const K& k) {
    typedef typename K::Groups Groups;
    typedef GroupsTile<Groups> T;
    typedef typename T::Sum Sum;
    const auto& p = params<GroupsMmaParams>(k);
    const u32 lane = threadIdx.x % 32u;
    const u32 part = blockIdx.x % p.parts;
    const u32 tile = blockIdx.x / p.parts;
    const u32 image = tile / p.tiles_x / p.tiles_y;
    const u32 y0 = tile / p.tiles_x % p.tiles_y * p.tile_y;
    const u32 x0 = tile % p.tiles_x * p.tile_x;
    load_halo<T>(p, k.bx0, image, i32(y0) * p.stride_y - p.pad_y, i32(x0) * p.stride_x - p.pad_x, part * Groups::TOGETHER * T::DEEP);
    load_weights<Groups, T>(k.bx1, part * T::ALL);
    for (u32 e = threadIdx.x; e < T::STEPS * 2u; e += T::THREADS) {
        const u32 tap = e / T::VECTORS;
        const u32 pixel = tap / Groups::TAPS_X * p.dilation_y * p.halo_x + tap % Groups::TAPS_X * p.dilation_x;
        T::reach()[e] = e < T::DEPTH ? pixel * T::PITCH_A + e % T::VECTORS * 16u : 0u;
    }
    // Place of the first vector under the windows of this lane. Windows that are not there are those of the last one.
    const u32 count = p.tile_y * p.tile_x;
    const u8* at[T::MI];
#pragma unroll
    for (u32 i = 0u; i < T::MI; i++) {
        const u32 window = ::min((threadIdx.x / 32u * T::MI + i) * 16u + lane % 16u, count - 1u);
        const u32 pixel = window / p.tile_x * u32(p.stride_y) * p.halo_x + window % p.tile_x * u32(p.stride_x);
        at[i] = T::image() + pixel * T::PITCH_A;
    }
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    typename T::Sums sum = {};
#pragma unroll 2
    for (u32 step = 0u; step < T::STEPS; step++) {
        const u32 reach = T::reach()[step * 2u + lane / 16u];
        // Behind the last tap both operands are zeros.
        const bool half = T::DEPTH % 2u == 1u && step + 1u == T::STEPS;
#pragma unroll
        for (u32 g = 0u; g < Groups::TOGETHER; g++) {
            u32 a[T::MI][4];
            u32 b[(T::NJ + 1u) / 2u][4];
#pragma unroll
            for (u32 i = 0u; i < T::MI; i++) {
                matrices(a[i][0], a[i][1], a[i][2], a[i][3], at[i] + reach + g * T::VECTORS * 16u);
                a[i][2] = half ? 0u : a[i][2];
                a[i][3] = half ? 0u : a[i][3];
#pragma unroll
                for (u32 r = 0u; r < 4u; r++) {
                    a[i][r] = T::Mma::operand(a[i][r]);
                }
            }
#pragma unroll
            for (u32 j = 0u; j < (T::NJ + 1u) / 2u; j++) {
                const u32 line = ::min(j * 16u + lane / 16u * 8u, T::WIDE - 8u) + lane % 8u;
                matrices(b[j][0], b[j][1], b[j][2], b[j][3],
                         T::weights() + (g * T::WIDE + line) * T::PITCH_B + step * 32u + lane / 8u % 2u * 16u);
#pragma unroll
                for (u32 r = 0u; r < 4u; r++) {
                    b[j][r] = T::Mma::operand(b[j][r]);
                }
            }
#pragma unroll
            for (u32 i = 0u; i < T::MI; i++) {
#pragma unroll
                for (u32 j = 0u; j < T::NJ; j++) {
                    const u32 pair[2] = {b[j / 2u][j % 2u * 2u], b[j / 2u][j % 2u * 2u + 1u]};
                    T::Mma::product(sum[i][g][j], a[i], pair);
                }
            }
        }
    }
    // Sums go where operands were, 16 windows of a warp at a time.
    __syncthreads();
    Sum* const own = reinterpret_cast<Sum*>(block_memory) + threadIdx.x / 32u * 16u * T::ROW;
#pragma unroll
    for (u32 i = 0u; i < T::MI; i++) {
#pragma unroll
        for (u32 g = 0u; g < Groups::TOGETHER; g++) {
#pragma unroll
            for (u32 j = 0u; j < T::NJ; j++) {
#pragma unroll
                for (u32 r = 0u; r < 4u; r++) {
                    own[(lane / 4u + r / 2u * 8u) * T::ROW + g * T::WIDE + j * 8u + lane % 4u * 2u + r % 2u] = sum[i][g][j][r];
                }
            }
        }
        __syncwarp();
        for (u32 e = lane; e < 2u * T::ALL; e += 32u) {
            const u32 window = (threadIdx.x / 32u * T::MI + i) * 16u + e / (T::ALL / 8u);
            const u32 y = y0 + window / p.tile_x;
            const u32 x = x0 + window % p.tile_x;
            if (window >= count || y >= p.out_height || x >= p.out_width) {
                continue;
            }
            const u32 ch = part * T::ALL + e % (T::ALL / 8u) * 8u;
            Sum v[8];
#pragma unroll
            for (u32 q = 0u; q < 8u; q++) {
                v[q] = own[e / (T::ALL / 8u) * T::ROW + e % (T::ALL / 8u) * 8u + q];
            }
            Biases<K>::read_any(k, ch).add(v);
            k.emit0_run(((image * p.out_height + y) * p.out_width + x) * p.outputs + ch, v);
        }
        __syncwarp();
    }
}
