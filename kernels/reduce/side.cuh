// Rows of a result, each with a reduction of its elements as an element of output 1. Hooks: `side_element(at)` computes element `at`
// of output 0, stores it, and returns it as it is stored; `side_empty`, `side_step`, `side_merge`, `side_last`, `side_infinite` and
// SIDE_SHIFTED are those of `reduce.cuh`; a row has `side_count()` elements and `side_width()` threads, a power of two.
#pragma once
#include "../prelude/launch.cuh"
#include "../prelude/math.cuh"

// Threads of a block that computes rows.
constexpr u32 SIDE_THREADS = 128u;

// Merges what the threads of each row have found; `merge` gets two of them.
template <class T, class M> DEV T side_tree(T* found, u32 width, T mine, M merge) {
    const u32 l = threadIdx.x;
    found[l] = mine;
    __syncthreads();
    for (u32 s = width / 2u; s > 0u; s = s / 2u) {
        if (l % width < s) {
            found[l] = merge(found[l], found[l + s]);
        }
        __syncthreads();
    }
    return found[l - l % width];
}

// A block of rows.
template <class K> DEV void side_rows(const K& k) {
    typedef typename K::SideSum Sum;
    __shared__ Sum sums[SIDE_THREADS];
    const u32 width = k.side_width();
    const u32 first = threadIdx.x % width;
    const u32 row = blockIdx.x * (SIDE_THREADS / width) + threadIdx.x / width;
    const u32 count = k.side_count();
    const u32 end = row < k.side_row_count() ? count : 0u;
    Sum acc = k.side_empty();
    f32 top = 0.0f;
    if constexpr (K::SIDE_SHIFTED) {
        __shared__ f32 tops[SIDE_THREADS];
        top = cf(0xff800000u);
        for (u32 i = first; i < end; i += width) {
            top = kmax(top, f32(k.side_element(row * count + i)));
        }
        top = side_tree(tops, width, top, [](f32 a, f32 b) { return kmax(a, b); });
        for (u32 i = first; i < end; i += width) {
            acc = k.side_step(acc, Sum(k.ry0(row * count + i)), top);
        }
    } else {
        for (u32 i = first; i < end; i += width) {
            acc = k.side_step(acc, Sum(k.side_element(row * count + i)), top);
        }
    }
    acc = side_tree(sums, width, acc, [&](Sum a, Sum b) { return k.side_merge(a, b); });
    if (first != 0u || row >= k.side_row_count()) {
        return;
    }
    if (K::SIDE_SHIFTED && (is_nan(top) || is_inf(top))) {
        k.emit1(row, k.side_infinite(top));
    } else {
        k.emit1(row, k.side_last(acc, count, top));
    }
}

// Tiles of SIDE_ROWS x SIDE_COLUMNS results: each thread reduces those that it stores, SIDE_CHUNK neighbours of a row, and leaves
// what it finds in memory that the block shares. `emitted0` stores an element and returns it as it is stored.

template <class K> struct SideTile {
    // Elements from one row to the next in that memory.
    static constexpr u32 STEP = K::SIDE_COLUMNS / K::SIDE_CHUNK + 1u;
    static constexpr u32 SIZE = K::SIDE_ROWS * STEP;
};

template <class K> DEV typename K::SideSum* side_memory(void* block) {
    return reinterpret_cast<typename K::SideSum*>(static_cast<u8*>(block) + K::SIDE_AT);
}

// Stores neighbours, and reduces them.
template <class K, class V> DEV typename K::SideSum side_elements(const K& k, u32 at, const V* v, u32 count) {
    typename K::SideSum acc = k.side_empty();
    for (u32 q = 0u; q < K::SIDE_CHUNK && q < count; q++) {
        acc = k.side_step(acc, typename K::SideSum(k.emitted0(at + q, v[q])), 0.0f);
    }
    return acc;
}

// Stores eight neighbours, at once where possible, and returns the reduction of what is stored.
template <class K, class V> DEV typename K::SideSum side_run(const K& k, u32 at, const V* v) {
    typename K::SideValue stored[8];
    k.emitted0_run(at, v, stored);
    typename K::SideSum acc = k.side_empty();
#pragma unroll
    for (u32 q = 0u; q < 8u; q++) {
        acc = k.side_step(acc, typename K::SideSum(stored[q]), 0.0f);
    }
    return acc;
}

template <class K> DEV void side_put(typename K::SideSum* found, u32 row, u32 column, typename K::SideSum part) {
    found[row * SideTile<K>::STEP + column / K::SIDE_CHUNK] = part;
}

// Finishes the rows of a tile, so many from `first` on, or keeps what this tile has found of them.
template <class K> DEV void side_tile(const K& k, const typename K::SideSum* found, u32 first, u32 rows, u32 column) {
    typedef typename K::SideSum Sum;
    __syncthreads();
    const u32 n = k.side_count();
    const u32 chunks = (::min(n - column, K::SIDE_COLUMNS) + K::SIDE_CHUNK - 1u) / K::SIDE_CHUNK;
    for (u32 r = threadIdx.x; r < rows; r += K::LANES) {
        const Sum* own = found + r * SideTile<K>::STEP;
        Sum acc = own[0];
        for (u32 c = 1u; c < chunks; c++) {
            acc = k.side_merge(acc, own[c]);
        }
        if (n <= K::SIDE_COLUMNS) {
            k.emit1(first + r, k.side_last(acc, n, 0.0f));
        } else {
            reinterpret_cast<Sum*>(k.scratch)[u64(column / K::SIDE_COLUMNS) * k.side_row_count() + first + r] = acc;
        }
    }
}

// Joins what the tiles of a row reduced.
template <class K> DEV void side_join(const K& k, u32 row) {
    typedef typename K::SideSum Sum;
    const Sum* from = reinterpret_cast<const Sum*>(k.scratch) + row;
    const u32 parts = (k.side_count() + K::SIDE_COLUMNS - 1u) / K::SIDE_COLUMNS;
    Sum acc = k.side_empty();
    for (u32 part = 0u; part < parts; part++) {
        acc = k.side_merge(acc, from[u64(part) * k.side_row_count()]);
    }
    k.emit1(row, k.side_last(acc, k.side_count(), 0.0f));
}
