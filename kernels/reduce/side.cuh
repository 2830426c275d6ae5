// Rows of a result, each with a reduction of its elements as an element of output 1. Hooks: `side_element(at)` computes element `at`
// of output 0, stores it, and returns it as it is stored; `side_empty`, `side_step`, `side_merge`, `side_last`, `side_infinite` and
// SIDE_SHIFTED are those of `reduce.cuh`; a row has `side_count()` elements and `side_width()` threads, a power of two.
#pragma once
#include "../prelude/launch.cuh"
#include "../prelude/math.cuh"

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
    __shared__ Sum sums[K::LANES];
    const u32 width = k.side_width();
    const u32 first = threadIdx.x % width;
    const u32 row = blockIdx.x * (K::LANES / width) + threadIdx.x / width;
    const u32 count = k.side_count();
    const u32 end = row < k.side_row_count() ? count : 0u;
    Sum acc = k.side_empty();
    f32 top = 0.0f;
    if constexpr (K::SIDE_SHIFTED) {
        __shared__ f32 tops[K::LANES];
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
