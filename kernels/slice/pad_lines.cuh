// A part of x with more around it, eight neighbours of the result a thread: they lie in two rows at most. Divisions are by numbers that
// the launch knows; the first dimension of the lists is the innermost.
#pragma once
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

// The element that stands at position i of an axis of n elements; -1 if there is none. Most are elements of x.
template <class K> DEV i32 element_around(i32 i, i32 n) { return i >= 0 && i < n ? i : around<K>(i, n); }

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

template <class K> DEV typename K::Value pad_value(const K& k, PadRow row, u32 x) {
    const auto& p = params<PadLinesParams>(k);
    const i32 c = element_around<K>(i32(x) - item_i32(k, p.before, 0u), item_i32(k, p.sizes, 0u));
    if (!row.inside || c < 0) {
        return k.gap();
    }
    return k.x0(row.base + u32(c) * item(k, p.strides, 0u));
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
    const PadRow second = split < 8u && split < left ? pad_row(k, row + 1u) : first;
    typename K::Value v[8];
#pragma unroll
    for (u32 j = 0u; j < 8u; j++) {
        v[j] = j < left ? pad_value(k, j < split ? first : second, j < split ? x + j : j - split) : typename K::Value(0);
    }
    if (left >= 8u) {
        k.emit0_any(at, v);
    } else {
#pragma unroll
        for (u32 j = 0u; j < 8u; j++) {
            if (j < left) {
                k.emit0(at + j, v[j]);
            }
        }
    }
}

// A thread a result.
template <class K> DEV void pad_lines_1(const K& k, u32 t) {
    const auto& p = params<PadLinesParams>(k);
    const Divisor width{item(k, p.dims, 0u), item(k, p.factors, 0u), item(k, p.shifts, 0u)};
    const u32 row = divide(t, width);
    k.emit0(t, pad_value(k, pad_row(k, row), t - row * width.size));
}
