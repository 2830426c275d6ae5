// Products of many small matrices on tensor cores by mma.sync: a block has MATRICES of them, each with WARPS_M x WARPS_N warps and
// its whole depth in shared memory. Their sizes are constants; what is computed beyond them is not stored.
#pragma once
#include "../mma/tiles.cuh"
#include "../prelude/launch.cuh"

struct SmallMatmulParams {
    u32 products;
    List batch;
    List a_batch;
    List b_batch;
};

// Up to 16 bytes from memory, and zeros behind them.
DEV void copy_some(void* to, const void* from, u32 bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address(to)), "l"(from), "r"(bytes) : "memory");
}

// A matrix of LINES lines of LENGTH elements in shared memory. A line is a row of A or a column of B, or, ACROSS, one k of all.
template <class Mma, u32 LINES, u32 LENGTH, bool ACROSS> struct SmallMatrix {
    static constexpr u32 SIZE = Mma::SIZE;
    static constexpr u32 BYTES = LENGTH * SIZE;
    // Lines of whole vectors are an odd number of vectors apart: no two of eight begin in the same banks. Other matrices are as they
    // are in memory, from the vector on that they begin in.
    static constexpr bool WHOLE = BYTES % 16u == 0u;
    static constexpr u32 PITCH = WHOLE ? (BYTES / 16u | 1u) * 16u : BYTES;
    static constexpr u32 ROOM = WHOLE ? LINES * PITCH : (LINES * BYTES + 15u) / 16u * 16u + 16u;
    static constexpr u32 DEPTH = ACROSS ? LINES : LENGTH;
    static constexpr u32 SIDE = ACROSS ? LENGTH : LINES;
    static constexpr u32 STEP = 32u / SIZE;
    // Elements of a word.
    static constexpr u32 FEW = 4u / SIZE;
    static constexpr bool ENDS = DEPTH % STEP != 0u;

    // Starts the copies by THREADS threads, of which this is number `t`; returns where the first element comes to be.
    template <u32 THREADS> DEV static const u8* copy(u8* room, const void* matrix, u32 t) {
        const u8* from = reinterpret_cast<const u8*>(matrix);
        if constexpr (WHOLE) {
            constexpr u32 VECTORS = BYTES / 16u;
            for (u32 e = t; e < LINES * VECTORS; e += THREADS) {
                copy_some(room + e / VECTORS * PITCH + e % VECTORS * 16u, from + e * 16u, 16u);
            }
            return room;
        } else {
            const u32 skip = u32(reinterpret_cast<u64>(from) & 15u);
            const u32 bytes = skip + LINES * BYTES;
            for (u32 e = t; e * 16u < bytes; e += THREADS) {
                copy_some(room + e * 16u, from - skip + e * 16u, ::min(bytes - e * 16u, 16u));
            }
            return room + skip;
        }
    }

    // A word of elements from `k` on with zeros behind the depth.
    DEV static u32 ended(u32 word, u32 k) {
        const u32 count = k < DEPTH ? DEPTH - k : 0u;
        return count >= FEW ? word : word & ((1u << count * SIZE * 8u) - 1u);
    }

    // The elements from `k` on of one line along the depth.
    DEV static u32 gather(const u8* tile, u32 line, u32 k) {
        const u8* p = tile + (ACROSS ? k * PITCH + line * SIZE : line * PITCH + k * SIZE);
        constexpr u32 NEXT = ACROSS ? PITCH : SIZE;
        if constexpr (SIZE == 4u || (!ACROSS && BYTES % 4u == 0u)) {
            return k < DEPTH ? *reinterpret_cast<const u32*>(p) : 0u;
        } else {
            u32 word = 0u;
#pragma unroll
            for (u32 e = 0u; e < FEW; e++) {
                if (!ENDS || k + e < DEPTH) {
                    const u32 own = SIZE == 2u ? u32(*reinterpret_cast<const u16*>(p + e * NEXT)) : u32(p[e * NEXT]);
                    word |= own << e * SIZE * 8u;
                }
            }
            return word;
        }
    }

    // Place that a lane reads eight elements from: the line, and k, are within the matrix.
    DEV static const u8* vector(const u8* tile, u32 line, u32 k) {
        if constexpr (ACROSS) {
            return tile + ::min(k, DEPTH - 1u) * PITCH + ::min(line, SIDE - 8u) * SIZE;
        } else {
            return tile + ::min(line, SIDE - 1u) * PITCH + ::min(k * SIZE, BYTES - 16u);
        }
    }

    // Fragments of 16 lines from `line` on and 32 bytes of the depth from `k` on, eight lines and 16 bytes each: in A's order (lines
    // first), or in B's (the depth first).
    template <bool LINES_FIRST> DEV static void fragments(u32 (&f)[4], const u8* tile, u32 line, u32 k) {
        const u32 lane = threadIdx.x % 32u;
        const auto line_of = [&](u32 r) { return line + (LINES_FIRST ? r % 2u : r / 2u) * 8u; };
        const auto k_of = [&](u32 r) { return k + (LINES_FIRST ? r / 2u : r % 2u) * (16u / SIZE); };
        if constexpr (WHOLE && (!ACROSS || SIZE == 2u)) {
            const u32 r = lane / 8u;
            const u32 row = line_of(r) + (ACROSS ? 0u : lane % 8u);
            const u32 own = k_of(r) + (ACROSS ? lane % 8u : 0u);
            if constexpr (ACROSS) {
                transposed(f[0], f[1], f[2], f[3], vector(tile, row, own));
            } else {
                matrices(f[0], f[1], f[2], f[3], vector(tile, row, own));
            }
            if (ENDS && k + STEP > DEPTH) {
#pragma unroll
                for (u32 i = 0u; i < 4u; i++) {
                    f[i] = ended(f[i], k_of(i) + lane % 4u * FEW);
                }
            }
        } else {
#pragma unroll
            for (u32 i = 0u; i < 4u; i++) {
                f[i] = gather(tile, ::min(line_of(i) + lane / 4u, SIDE - 1u), k_of(i) + lane % 4u * FEW);
            }
        }
#pragma unroll
        for (u32 i = 0u; i < 4u; i++) {
            f[i] = Mma::operand(f[i]);
        }
    }
};

// `Small` is the structure of constants: the sizes M, N, DEPTH of a product, how its operands lie, and the instruction.
template <class Small> struct SmallTile {
    typedef typename Small::Mma Mma;
    typedef typename Mma::Sum Sum;
    static constexpr u32 WARPS = Small::WARPS_M * Small::WARPS_N;
    static constexpr u32 THREADS = Small::MATRICES * WARPS * 32u;
    // Tiles of 16 rows and of 8 columns of a warp.
    static constexpr u32 MI = ((Small::M + 15u) / 16u + Small::WARPS_M - 1u) / Small::WARPS_M;
    static constexpr u32 NJ = ((Small::N + 7u) / 8u + Small::WARPS_N - 1u) / Small::WARPS_N;
    typedef SmallMatrix<Mma, Small::ACROSS_A ? Small::DEPTH : Small::M, Small::ACROSS_A ? Small::M : Small::DEPTH, Small::ACROSS_A> A;
    typedef SmallMatrix<Mma, Small::ACROSS_B ? Small::DEPTH : Small::N, Small::ACROSS_B ? Small::N : Small::DEPTH, Small::ACROSS_B> B;
    typedef Sum Sums[MI][NJ][4];
    static constexpr u32 RESULTS = Small::M * Small::N;

    // Adds the products of a warp: of rows from `row` on and columns from `col` on.
    DEV static void multiply(Sums& sum, const u8* a, const u8* b, u32 row, u32 col) {
        constexpr u32 STEPS = (Small::DEPTH + A::STEP - 1u) / A::STEP;
#pragma unroll 4
        for (u32 step = 0u; step < STEPS; step++) {
            u32 of_a[MI][4];
            u32 of_b[(NJ + 1u) / 2u][4];
#pragma unroll
            for (u32 i = 0u; i < MI; i++) {
                A::template fragments<true>(of_a[i], a, row + i * 16u, step * A::STEP);
            }
#pragma unroll
            for (u32 j = 0u; j < (NJ + 1u) / 2u; j++) {
                B::template fragments<false>(of_b[j], b, col + j * 16u, step * A::STEP);
            }
#pragma unroll
            for (u32 i = 0u; i < MI; i++) {
#pragma unroll
                for (u32 j = 0u; j < NJ; j++) {
                    const u32 pair[2] = {of_b[j / 2u][j % 2u * 2u], of_b[j / 2u][j % 2u * 2u + 1u]};
                    Mma::product(sum[i][j], of_a[i], pair);
                }
            }
        }
    }

    // Brings the sums of a warp to where those of its product begin.
    DEV static void put(Sum* to, const Sums& sum, u32 row, u32 col) {
        const u32 lane = threadIdx.x % 32u;
#pragma unroll
        for (u32 i = 0u; i < MI; i++) {
#pragma unroll
            for (u32 j = 0u; j < NJ; j++) {
#pragma unroll
                for (u32 r = 0u; r < 4u; r++) {
                    const u32 y = row + i * 16u + lane / 4u + r / 2u * 8u;
                    const u32 x = col + j * 8u + lane % 4u * 2u + r % 2u;
                    if (y < Small::M && x < Small::N) {
                        to[y * Small::N + x] = sum[i][j][r];
                    }
                }
            }
        }
    }
};

template <class K> DEV void small(const K& k) {
    typedef typename K::Small Small;
    typedef SmallTile<Small> T;
    typedef typename T::Sum Sum;
    const auto& p = params<SmallMatmulParams>(k);
    const u32 own = threadIdx.x / (T::WARPS * 32u);
    const u32 first = blockIdx.x * Small::MATRICES;
    const bool there = first + own < p.products;
    u8* const room = block_memory + own * (T::A::ROOM + T::B::ROOM);
    const u8* a = room;
    const u8* b = room;
    if (there) {
        const u32 t = threadIdx.x % (T::WARPS * 32u);
        a = T::A::template copy<T::WARPS * 32u>(room, k.bx0 + strided(k, p.batch, p.a_batch, first + own), t);
        b = T::B::template copy<T::WARPS * 32u>(room + T::A::ROOM, k.bx1 + strided(k, p.batch, p.b_batch, first + own), t);
    }
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
    if constexpr (T::WARPS == 1u) {
        __syncwarp();
    } else {
        __syncthreads();
    }
    const u32 warp = threadIdx.x / 32u % T::WARPS;
    const u32 row = warp / Small::WARPS_N * T::MI * 16u;
    const u32 col = warp % Small::WARPS_N * T::NJ * 8u;
    typename T::Sums sum = {};
    if (there) {
        T::multiply(sum, a, b, row, col);
    }
    // The results of a block are neighbours, and so are their sums, where the operands were.
    __syncthreads();
    Sum* const sums = reinterpret_cast<Sum*>(block_memory);
    if (there) {
        T::put(sums + own * T::RESULTS, sum, row, col);
    }
    __syncthreads();
    const u32 at = first * T::RESULTS;
    const u32 count = ::min(p.products - first, Small::MATRICES) * T::RESULTS;
    constexpr bool RUNS = Small::MATRICES * T::RESULTS % 8u == 0u;
    if constexpr (RUNS) {
        for (u32 e = threadIdx.x * 8u; e + 8u <= count; e += T::THREADS * 8u) {
            Sum v[8];
#pragma unroll
            for (u32 q = 0u; q < 8u; q++) {
                v[q] = sums[e + q];
            }
            k.emit0_any(at + e, v);
        }
    }
    for (u32 e = (RUNS ? count / 8u * 8u : 0u) + threadIdx.x; e < count; e += T::THREADS) {
        k.emit0(at + e, sums[e]);
    }
}
