// Elements that indices pick: slices along an axis, single elements along an axis, slices by tuples of indices.
#pragma once
#include "position.cuh"

struct GatherParams {
    u32 size;
    u32 after;
    u32 picked;
    u32 before;
};

template <class K> DEV typename K::Value gather(const K& k, u32 at) {
    typedef Position<K::FAR> Type;
    const auto& p = params<GatherParams>(k);
    const u32 low = at % p.after;
    const u32 pick = at / p.after % p.picked;
    const u32 slice = at / p.after / p.picked;
    const auto i = from_end<typename Type::Signed>(k.x1(slice / p.before * p.picked + pick), p.size);
    if (i < 0) {
        return K::GAP;
    }
    return k.x0((typename Type::Unsigned(slice) * p.size + typename Type::Unsigned(i)) * p.after + low);
}

struct GatherElementsParams {
    u32 axis;
    u32 size;
    List dims;
    List strides;
    List far_strides;
};

template <class K> DEV typename K::Value gather_elements(const K& k, u32 at) {
    typedef Position<K::FAR> Type;
    const auto& p = params<GatherElementsParams>(k);
    const auto i = from_end<typename Type::Signed>(k.x1(at), p.size);
    if (i < 0) {
        return K::GAP;
    }
    u32 rest = at;
    typename Type::Unsigned from = 0u;
    for (u32 d = p.dims.count; d > 0u; d--) {
        const u32 n = item(k, p.dims, d - 1u);
        const u32 c = d - 1u == p.axis ? u32(i) : rest % n;
        rest = rest / n;
        from += typename Type::Unsigned(c) * far_item(k, p.strides, p.far_strides, d - 1u);
    }
    return k.x0(from);
}

struct GatherNdParams {
    u32 slice;
    u32 tuples;
    u32 batch;
    u32 far_batch;
    List sizes;
    List strides;
    List far_strides;
};

template <class K> DEV typename K::Value gather_nd(const K& k, u32 at) {
    typedef Position<K::FAR> Type;
    const auto& p = params<GatherNdParams>(k);
    const u32 tuple = at / p.slice;
    auto from = typename Type::Unsigned(tuple / p.tuples) * far<K>(p.batch, p.far_batch) + at % p.slice;
    for (u32 d = 0u; d < p.sizes.count; d++) {
        const auto i = from_end<typename Type::Signed>(k.x1(tuple * p.sizes.count + d), item(k, p.sizes, d));
        if (i < 0) {
            return K::GAP;
        }
        from += typename Type::Unsigned(i) * far_item(k, p.strides, p.far_strides, d);
    }
    return k.x0(from);
}
