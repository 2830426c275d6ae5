// Convolutions of images with channels last on tensor cores by mma.sync. A `Loader` copies the stages of a block: `start` at its
// first row, `load` one step after the other.
#pragma once
#include "bias.cuh"
#include "taps.cuh"
#include "../mma/tiles.cuh"

// The weights of output channels from `first` on, element by element.
template <class K> DEV void load_weights(const K& k, const MmaConvParams& p, u8* b, u32 step, u32 first, u32 j0) {
    typedef MmaTiles<typename K::Tile> T;
    const u32 depth = depth_of(p);
    for (u32 e = threadIdx.x; e < T::BN * T::BK; e += T::THREADS) {
        const u32 at = step * T::BK + e % T::BK;
        const bool inside = j0 + e / T::BK < p.group_outputs && at < depth;
        reinterpret_cast<typename K::CellB*>(b + e / T::BK * T::PITCH)[e % T::BK] =
            inside ? k.bx1[(first + j0 + e / T::BK) * depth + at] : typename K::CellB(0);
    }
}

// Copies of 16 bytes: the channels of a group are a multiple of their elements.
template <class K> struct VectorLoader {
    typedef MmaTiles<typename K::Tile> T;
    static constexpr u32 COPIES = K::Tile::BYTES / 16u;
    static constexpr u32 BELOW = T::THREADS / COPIES;
    static constexpr u32 LINES = T::BM / BELOW;
    Window lines[LINES];
    Tap tap;

    DEV void start(const MmaConvParams& p, u32 i0, u32 first) {
#pragma unroll
        for (u32 q = 0u; q < LINES; q++) {
            lines[q] = window_of(p, i0 + threadIdx.x / COPIES + q * BELOW, first);
        }
        tap = tap_of(p, threadIdx.x % COPIES * T::PER_COPY);
    }

    DEV void load(const K& k, const MmaConvParams& p, u8* a, u8* b, u32 step, u32 first, u32 j0) {
        const i32 far = reach(p, tap);
        u8* to = a + threadIdx.x / COPIES * T::PITCH + threadIdx.x % COPIES * 16u;
#pragma unroll
        for (u32 q = 0u; q < LINES; q++) {
            const bool inside = within<K::DEEP>(p, lines[q], tap);
            copy16(to + q * BELOW * T::PITCH, k.bx0 + (inside ? lines[q].at + far : 0), inside);
        }
        move_tap(p, tap, T::BK);
        const u32 depth = depth_of(p);
        const u32 at = step * T::BK + threadIdx.x % COPIES * T::PER_COPY;
        to = b + threadIdx.x / COPIES * T::PITCH + threadIdx.x % COPIES * 16u;
#pragma unroll
        for (u32 q = 0u; q < (T::BN + BELOW - 1u) / BELOW; q++) {
            const u32 line = threadIdx.x / COPIES + q * BELOW;
            if (T::BN % BELOW == 0u || line < T::BN) {
                const bool inside = j0 + line < p.group_outputs && at < depth;
                copy16(to + q * BELOW * T::PITCH, k.bx1 + (inside ? (first + j0 + line) * depth + at : 0u), inside);
            }
        }
    }
};

// Element by element: a thread keeps to one window.
template <class K> struct ElementLoader {
    typedef MmaTiles<typename K::Tile> T;
    typedef typename K::CellA Cell;
    Window line;

    DEV void start(const MmaConvParams& p, u32 i0, u32 first) { line = window_of(p, i0 + threadIdx.x % T::BM, first); }

    DEV void load(const K& k, const MmaConvParams& p, u8* a, u8* b, u32 step, u32 first, u32 j0) {
        constexpr u32 SHARE = T::BK * T::BM / T::THREADS;
        const u32 from = threadIdx.x / T::BM * SHARE;
        Tap tap = tap_of(p, step * T::BK + from);
        Cell* to = reinterpret_cast<Cell*>(a + threadIdx.x % T::BM * T::PITCH) + from;
#pragma unroll 8
        for (u32 q = 0u; q < SHARE; q++) {
            to[q] = within<K::DEEP>(p, line, tap) ? k.bx0[line.at + reach(p, tap)] : Cell(0);
            move_tap(p, tap, 1u);
        }
        load_weights(k, p, b, step, first, j0);
    }
};

// Element by element, where the taps of all k fit into a table of K::TABLE: a thread keeps to one window, and copies as many
// elements at a time as make 16 bytes.
template <class K> struct TableLoader {
    typedef MmaTiles<typename K::Tile> T;
    typedef typename K::CellA Cell;
    struct alignas(16) Cells {
        Cell v[T::PER_COPY];
    };
    Window line;

    DEV static uint2* taps_of_k() {
        __shared__ uint2 taps[K::TABLE];
        return taps;
    }

    DEV void start(const MmaConvParams& p, u32 i0, u32 first) {
        for (u32 e = threadIdx.x; e < K::TABLE; e += T::THREADS) {
            const Tap tap = tap_of(p, e);
            // Beyond the last tap lies what is in no image.
            const u32 dy = e < depth_of(p) ? u32(tap.y * p.dilation_y) : 0x4000u;
            taps_of_k()[e] = uint2{u32(reach(p, tap)), (dy << 16) | (u32(tap.x * p.dilation_x) & 0xffffu)};
        }
        line = window_of(p, i0 + threadIdx.x % T::BM, first);
        __syncthreads();
    }

    DEV void load(const K& k, const MmaConvParams& p, u8* a, u8* b, u32 step, u32 first, u32 j0) {
        constexpr u32 SHARE = T::BK * T::BM / T::THREADS;
        const u32 from = threadIdx.x / T::BM * SHARE;
        const u32 height = p.height;
        const u32 width = p.width;
        Cell* to = reinterpret_cast<Cell*>(a + threadIdx.x % T::BM * T::PITCH) + from;
#pragma unroll
        for (u32 e = 0u; e < SHARE; e += T::PER_COPY) {
            Cells cells;
#pragma unroll
            for (u32 q = 0u; q < T::PER_COPY; q++) {
                const uint2 tap = taps_of_k()[step * T::BK + from + e + q];
                const bool inside =
                    u32(line.y + (i32(tap.y) >> 16)) < height && u32(line.x + (i32(tap.y << 16) >> 16)) < width;
                cells.v[q] = inside ? k.bx0[line.at + i32(tap.x)] : Cell(0);
            }
            *reinterpret_cast<Cells*>(to + e) = cells;
        }
        load_weights(k, p, b, step, first, j0);
    }
};

// The loader for the channels of a convolution: by vectors, else by a table where K::TABLE has entries.
template <class K, bool VECTORS = K::VECTORS, bool TABLE = (K::TABLE > 0u)> struct LoaderOf {
    typedef VectorLoader<K> Type;
};
template <class K> struct LoaderOf<K, false, true> {
    typedef TableLoader<K> Type;
};
template <class K> struct LoaderOf<K, false, false> {
    typedef ElementLoader<K> Type;
};

template <class K> DEV void conv(const K& k) {
    typedef MmaTiles<typename K::Tile> T;
    typedef typename T::Sum Sum;
    const auto& p = params<MmaConvParams>(k);
    const u32 rows = p.windows;
    const u32 cols = p.group_outputs;
    const u32 across = (cols + T::BN - 1u) / T::BN;
    const u32 down = (rows + T::BM - 1u) / T::BM;
    const u32 part = blockIdx.x / (across * down);
    u32 ti, tj;
    place_tile(blockIdx.x % (across * down), down, across, ti, tj);
    const u32 i0 = ti * T::BM;
    const u32 j0 = tj * T::BN;
    typename LoaderOf<K>::Type loader;
    loader.start(p, i0, part * p.group_channels);
    typename T::Sums sum = {};
    const u32 steps = (depth_of(p) + T::BK - 1u) / T::BK;
    T::accumulate(sum, steps, [&](u32 stage, u32 step, u32 share) {
        if (share == 0u && step < steps) {
            loader.load(k, p, T::stage_a(stage), T::stage_b(stage), step, part * cols, j0);
        }
    });
    const u32 all = p.outputs;
    const bool runs = cols % 8u == 0u && all % 8u == 0u;
    T::spread(sum, [&](u32 row, u32 col, Sum* v) {
        row += i0;
        col += j0;
        if (row >= rows || col >= cols) {
            return;
        }
        const u32 ch = part * cols + col;
        const u32 at = row * all + ch;
        if (runs) {
            Biases<K>::read_any(k, ch).add(v);
            k.emit0_run(at, v);
            return;
        }
        const u32 left = ::min(cols - col, 8u);
        if (left == 8u) {
            Biases<K>::read_any(k, ch).add(v);
        } else {
            for (u32 q = 0u; q < left; q++) {
                v[q] = Biases<K>::biased(k, v[q], ch + q);
            }
        }
        for (u32 q = 0u; q < left; q++) {
            k.emit0(at + q, v[q]);
        }
    });
}
