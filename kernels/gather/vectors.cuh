// Slices of x picked by indices along an axis: eight neighbours at a time, or one. `At` is the type of positions in x.
#pragma once
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
};

// The position in x of vector `t` of the result, of `width` elements; false if its index is out of range.
template <class K> DEV bool picked(const K& k, u32 t, u32 width, typename K::At& from) {
    typedef typename K::At At;
    const auto& p = params<GatherVectorsParams>(k);
    const u32 q = divide(t, Divisor{p.after, p.after_factor, p.after_shift});
    const u32 slice = divide(q, Divisor{p.picked, p.picked_factor, p.picked_shift});
    const u32 batch = divide(slice, Divisor{p.before, p.before_factor, p.before_shift});
    const auto v = k.x1(batch * p.picked + (q - slice * p.picked));
    typedef decltype(k.x1(0u)) Index;
    const Index index = v < Index(0) ? v + Index(p.axis) : v;
    if (index < Index(0) || index >= Index(p.axis)) {
        return false;
    }
    from = (At(slice) * p.axis + At(index)) * p.after * width + (t - q * p.after) * width;
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
