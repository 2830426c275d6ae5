// A part of x with more around it, eight neighbours of the result a thread: they lie in two rows at most. Divisions are by numbers that
// the launch knows; the first dimension of the lists is the innermost.
#pragma once
#include "copy.cuh"
#include "divisor.cuh"
#include "pad.cuh"

struct PadLinesParams {
    u32 total;
    List dims;
    List factors;
    List shifts;
    List sizes;
    List strides;
    List before;
};

// Position in x of the start of a row of the result; it may be outside.
struct PadRow {
    u32 base;
    bool inside;
};

// The element that stands at position i of an axis of n elements; -1 if there is none. Most are elements of x, or in its first copy or
// mirror image on either side: these need no division.
template <class K> DEV i32 element_around(i32 i, i32 n) {
    if (i >= 0 && i < n) {
        return i;
    }
    if constexpr (K::MODE == WRAP || K::MODE == REFLECT) {
        const i32 last = n - 1;
        const i32 near = K::MODE == WRAP ? (i < 0 ? i + n : i - n) : (i < 0 ? -i : 2 * last - i);
        if (near >= 0 && near < n) {
            return near;
        }
    }
    return around<K>(i, n);
}

template <class K> DEV PadRow pad_row(const K& k, u32 row) {
    const auto& p = params<PadLinesParams>(k);
    PadRow found = {0u, true};
    for (u32 d = 1u; d < p.dims.count; d++) {
        const Divisor size{item(k, p.dims, d), item(k, p.factors, d), item(k, p.shifts, d)};
        const u32 q = divide(row, size);
        const i32 i = i32(row - q * size.size) - item_i32(k, p.before, d);
        const i32 c = element_around<K>(i, item_i32(k, p.sizes, d));
        row = q;
        found.inside = found.inside && c >= 0;
        found.base += u32(c) * item(k, p.strides, d);
    }
    return found;
}

// The element at position x of a row.
template <class K> DEV typename K::Cell pad_cell(const K& k, PadRow row, u32 x) {
    const auto& p = params<PadLinesParams>(k);
    const i32 c = element_around<K>(i32(x) - item_i32(k, p.before, 0u), item_i32(k, p.sizes, 0u));
    if (!row.inside || c < 0) {
        return k.gap_cell();
    }
    return k.bx0[row.base + u32(c) * item(k, p.strides, 0u)];
}

template <class K> DEV void pad_lines_8(const K& k, u32 t) {
    const auto& p = params<PadLinesParams>(k);
    const Divisor width{item(k, p.dims, 0u), item(k, p.factors, 0u), item(k, p.shifts, 0u)};
    const u32 at = t * 8u;
    const u32 row = divide(at, width);
    const u32 x = at - row * width.size;
    const u32 left = p.total - at;
    const u32 split = min(min(width.size - x, 8u), left);
    const PadRow first = pad_row(k, row);
    const i32 c = i32(x) - item_i32(k, p.before, 0u);
    Run<typename K::Cell> r;
    // Most are eight neighbours in x, or eight of the value around it.
    if (split == 8u && first.inside && c >= 0 && c + 8 <= item_i32(k, p.sizes, 0u) && item(k, p.strides, 0u) == 1u) {
        put_8(k, Run<typename K::Cell>::near(k.bx0 + first.base + u32(c)), at);
        return;
    }
    const PadRow second = split < 8u && split < left ? pad_row(k, row + 1u) : first;
    if (first.inside || second.inside) {
#pragma unroll
        for (u32 j = 0u; j < 8u; j++) {
            r.v[j] = j < left ? pad_cell(k, j < split ? first : second, j < split ? x + j : j - split) : k.gap_cell();
        }
    } else {
#pragma unroll
        for (u32 j = 0u; j < 8u; j++) {
            r.v[j] = k.gap_cell();
        }
    }
    if (left >= 8u) {
        put_8(k, r, at);
        return;
    }
#pragma unroll
    for (u32 j = 0u; j < 8u; j++) {
        if (j < left) {
            copy_1(k, r.v + j, at + j);
        }
    }
}

// A thread a result.
template <class K> DEV void pad_lines_1(const K& k, u32 t) {
    const auto& p = params<PadLinesParams>(k);
    const Divisor width{item(k, p.dims, 0u), item(k, p.factors, 0u), item(k, p.shifts, 0u)};
    const u32 row = divide(t, width);
    const typename K::Cell one = pad_cell(k, pad_row(k, row), t - row * width.size);
    copy_1(k, &one, t);
}
