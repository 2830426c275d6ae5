// Slices of x picked by indices along an axis: eight neighbours at a time, or one. `At` is the type of positions in x.
#pragma once
#include "../checks/index.cuh"
#include "../slice/copy.cuh"
#include "../slice/divisor.cuh"

struct GatherVectorsParams {
    u32 axis;
    u32 after;
    u32 after_factor;
    u32 after_shift;
    u32 picked;
    u32 picked_factor;
    u32 picked_shift;
    u32 before;
    u32 before_factor;
    u32 before_shift;
    u32 line;
    u32 line_factor;
    u32 line_shift;
};

// The slice along the axis that index number `at` means; false if it is out of range.
template <class K> DEV bool slice_of(const K& k, u32 at, typename K::At& slice) {
    const auto place = checked(k, 1u, at, k.x1(at), params<GatherVectorsParams>(k).axis);
    slice = typename K::At(place);
    return place >= 0;
}

// The position in x of vector `t` of the result, of `width` elements; false if its index is out of range.
template <class K> DEV bool picked(const K& k, u32 t, u32 width, typename K::At& from) {
    typedef typename K::At At;
    const auto& p = params<GatherVectorsParams>(k);
    const u32 q = divide(t, Divisor{p.after, p.after_factor, p.after_shift});
    const u32 slice = divide(q, Divisor{p.picked, p.picked_factor, p.picked_shift});
    const u32 batch = divide(slice, Divisor{p.before, p.before_factor, p.before_shift});
    At index;
    if (!slice_of(k, batch * p.picked + (q - slice * p.picked), index)) {
        return false;
    }
    from = (At(slice) * p.axis + index) * p.after * width + (t - q * p.after) * width;
    return true;
}

template <class K> DEV void gather_8(const K& k, u32 t) {
    typename K::At from;
    if (picked(k, t, 8u, from)) {
        copy_8(k, k.bx0 + from, t * 8u);
        return;
    }
    for (u32 i = 0u; i < 8u; i++) {
        k.emit0(t * 8u + i, typename K::Value(0));
    }
}

template <class K> DEV void gather_1(const K& k, u32 t) {
    typename K::At from;
    if (picked(k, t, 1u, from)) {
        copy_1(k, k.bx0 + from, t);
        return;
    }
    k.emit0(t, typename K::Value(0));
}

// Slices at the same place behind several neighbours in front of the axis: one index is read for all of them, and all are loaded before
// the first is stored. `K::LINES` places have one thread.
template <u32 WIDTH, class Some, class K, class Load, class Store> DEV void gather_lines(const K& k, u32 t, Load load, Store store) {
    typedef typename K::At At;
    const auto& p = params<GatherVectorsParams>(k);
    const u32 group = divide(t, Divisor{p.line, p.line_factor, p.line_shift});
    const u32 place = t - group * p.line;
    const u32 pick = divide(place, Divisor{p.after, p.after_factor, p.after_shift});
    At index;
    const bool inside = slice_of(k, pick, index);
    const u32 first = group * K::LINES;
    const At from = (At(first) * p.axis + index) * p.after * WIDTH + (place - pick * p.after) * WIDTH;
    Some found[K::LINES] = {};
#pragma unroll
    for (u32 i = 0u; i < K::LINES; i++) {
        if (inside && first + i < p.before) {
            found[i] = load(from + At(i) * p.axis * p.after * WIDTH);
        }
    }
#pragma unroll
    for (u32 i = 0u; i < K::LINES; i++) {
        if (first + i < p.before) {
            store(found[i], ((first + i) * p.line + place) * WIDTH);
        }
    }
}

template <class K> DEV void gather_lines_8(const K& k, u32 t) {
    typedef typename K::Cell Cell;
    gather_lines<8u, Run<Cell>>(
        k, t, [&](typename K::At from) { return Run<Cell>::of(k.bx0 + from, 1u); },
        [&](const Run<Cell>& r, u32 at) { put_8(k, r, at); });
}

template <class K> DEV void gather_lines_1(const K& k, u32 t) {
    typedef typename K::Cell Cell;
    gather_lines<1u, Cell>(
        k, t, [&](typename K::At from) { return k.bx0[from]; }, [&](const Cell& v, u32 at) { copy_1(k, &v, at); });
}
