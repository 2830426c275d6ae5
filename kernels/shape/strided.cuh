// Elements by affine index arithmetic: that at c of the result is that at offset + sum of c * stride of the input.
#pragma once
#include "../gather/position.cuh"

struct StridedParams {
    u32 offset;
    u32 far_offset;
    List dims;
    List strides;
    List far_strides;
};

template <class K> DEV typename K::Value strided_copy(const K& k, u32 at) {
    const auto& p = params<StridedParams>(k);
    auto from = far<K>(p.offset, p.far_offset);
    u32 rest = at;
    for (u32 d = p.dims.count; d > 0u; d--) {
        const u32 n = item(k, p.dims, d - 1u);
        from += (rest % n) * far_item(k, p.strides, p.far_strides, d - 1u);
        rest = rest / n;
    }
    return k.x0(from);
}
