// Matrix products by packed 2:4 sparse weights by wgmma.mma_async.sp with TMA.
#pragma once
#include "../wgmma/sparse.cuh"
#include "../wgmma/stores.cuh"

struct SparseWgmmaParams {
    u32 rows;
    u32 columns;
    u32 chunks;
    u32 results;
    u32 constant;
};

// The copies of a block, by one warp.
template <class K> struct SparseCopies {
    typedef SparseGroups<typename K::Tile> T;

    // Starts those of values and places of a step. Beyond the last columns their places are repeated: the instruction takes no word
    // that is none, and values are zeros there.
    DEV static void copy_w(const K& k, const SparseWgmmaParams& p, const TilePlace& tile, u32 step, u32 stage) {
        const u32 lane = threadIdx.x % 32u;
        const u32 bytes = ::min(p.chunks - step * 2u, 2u) * T::WORDS * 4u;
        if (lane == 0u) {
            barrier_expect(T::full_w(stage), T::BYTES_W + T::LINES * bytes);
            box(T::stage_w(stage), k.maps + 1, T::full_w(stage), step * T::BK, tile.row, 0u);
        }
        __syncwarp();
        if (lane < T::LINES) {
            const u32 piece = ::min(tile.row / 16u + lane, (p.columns + 15u) / 16u - 1u);
            const i32* from = k.bx2 + (u64(piece) * p.chunks + step * 2u) * T::WORDS;
            bytes_to(T::stage_p(stage) + lane * T::WORDS * 8u, from, bytes, T::full_w(stage));
        }
    }

    DEV static void copy_x(const K& k, const TilePlace& tile, u32 chunk, u32 stage) {
        if (threadIdx.x % 32u == 0u) {
            barrier_expect(T::full_x(stage), T::BYTES_X);
            box(T::stage_x(stage), k.maps, T::full_x(stage), chunk * T::BK, tile.col, 0u);
        }
        __syncwarp();
    }

    // Starts all of them. Those of constant weights begin before what the kernel depends on is done.
    DEV static void copy_all(const K& k, const SparseWgmmaParams& p, const typename T::Product& product) {
        release();
        u32 ahead = 0u;
        if (product.constant && blockIdx.x < product.tiles) {
            const TilePlace tile = product.raster.place(blockIdx.x);
            ahead = ::min(product.count(tile), T::W_STAGES);
            for (u32 step = 0u; step < ahead; step++) {
                copy_w(k, p, tile, product.first(tile) + step, step);
            }
        }
        depend();
        typename T::TurnW w;
        typename T::TurnX x;
        for (u32 number = blockIdx.x; number < product.tiles; number += gridDim.x) {
            const TilePlace tile = product.raster.place(number);
            const u32 first = product.first(tile) * 2u;
            const u32 chunks = T::chunks_of(product, tile, p.chunks);
            for (u32 chunk = 0u; chunk < chunks; chunk++) {
                if (chunk % 2u == 0u) {
                    if (ahead > 0u) {
                        ahead--;
                    } else {
                        barrier_wait(T::empty_w(w.stage), w.parity ^ 1u);
                        copy_w(k, p, tile, (first + chunk) / 2u, w.stage);
                    }
                    w.next();
                }
                barrier_wait(T::empty_x(x.stage), x.parity ^ 1u);
                copy_x(k, tile, first + chunk, x.stage);
                x.next();
            }
        }
    }
};

// Stores the sums of a warpgroup, of columns from `line` of the tile on: by runs of eight where rows of the result are multiples of
// it. A lane has sums of two columns, eight apart, and two rows; eight lanes exchange those of 16 columns and 4 rows.
template <class K>
DEV void put_sparse(const K& k, const SparseWgmmaParams& p, const TilePlace& tile, u32 line,
                    const typename SparseGroups<typename K::Tile>::Sums& sum) {
    typedef SparseGroups<typename K::Tile> T;
    typedef typename SumsOf<K>::Type To;
    constexpr u32 ACROSS = T::BN / 16u;
    const u32 lane = threadIdx.x % 32u;
    const u32 first_row = tile.col + lane % 4u * 2u + lane / 4u % 2u + lane / 8u % 2u * 8u;
    const u32 first_col = tile.row + line + threadIdx.x % 128u / 32u * 16u + lane / 16u * 8u;
    const bool runs = p.columns % 8u == 0u && To::even(k);
#pragma unroll (K::LOOPED ? 1 : T::PARTS * ACROSS)
    for (u32 n = 0u; n < T::PARTS * ACROSS; n++) {
        const u32 row = first_row + n % ACROSS * 16u;
        const u32 col = first_col + n / ACROSS * 64u;
        const bool inside = row < p.rows && col < p.columns;
        const u32 at = inside ? row * p.columns + col : 0u;
        typename To::Columns columns;
        typename To::Beside beside;
        if (runs) {
            columns = To::fetch_columns(k, inside ? col : 0u, inside ? col : 0u);
            beside = To::fetch_sums(k, at);
        }
        typename T::Sum v[1][8];
#pragma unroll
        for (u32 m = 0u; m < T::PARTS * ACROSS; m++) {
            if (n == m) {
#pragma unroll
                for (u32 q = 0u; q < 8u; q++) {
                    v[0][q] = sum[m / ACROSS][m % ACROSS * 8u + q / 2u % 2u * 4u + q / 4u * 2u + q % 2u];
                }
            }
        }
        T::turn(v[0]);
        if (!inside) {
            continue;
        }
        if (runs) {
            To::put(k, tile.part, p.results, at, v, RowNorm{}, columns, beside);
        } else {
            Stores<K>::put_some(k, tile.part, p.results, at, v, col, p.columns);
        }
    }
}

// All tiles of a block.
template <class K> DEV void sparse_groups(const K& k) {
    typedef typename K::Tile Tile;
    typedef SparseGroups<Tile> T;
    const auto& p = params<SparseWgmmaParams>(k);
    const typename T::Product product(p.columns, p.rows, 1u, (p.chunks + 1u) / 2u, p.constant != 0u);
    if (threadIdx.x == 0u) {
        T::init();
    }
    __syncthreads();
    if (threadIdx.x >= T::WARPS * 32u) {
        if constexpr (Tile::LENT) {
            asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        }
        if (threadIdx.x < T::WARPS * 32u + 32u) {
            SparseCopies<K>::copy_all(k, p, product);
        }
        return;
    }
    if constexpr (Tile::LENT) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    }
    depend();
    const u32 line = threadIdx.x / 128u * T::PARTS * 64u;
    typename T::TurnW w;
    typename T::TurnX x;
    for (u32 number = blockIdx.x; number < product.tiles; number += gridDim.x) {
        const TilePlace tile = product.raster.place(number);
        // Ends the lives of the last tile's sums with their stores.
        typename T::Sums sum;
        T::clear(sum);
        T::multiply_chunks(sum, T::chunks_of(product, tile, p.chunks), w, x, line);
        put_sparse(k, p, tile, line, sum);
    }
}

// A result from the parts of its sum.
template <class K> DEV typename K::Tile::Sum sparse_sum(const K& k, u32 at) {
    const auto& p = params<SparseWgmmaParams>(k);
    return sum_of_parts(k, p.results, at, at % p.columns);
}
