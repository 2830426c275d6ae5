// Reductions over any axes. Hooks: `empty()` is the sum of nothing, `step(sum, element, top)` adds an element, `merge(sum, other)`
// adds another sum, `last(sum, n, top)` is the result. With SHIFTED, `top` is the greatest element.
#pragma once
#include "../prelude/launch.cuh"
#include "../prelude/math.cuh"

struct ReduceParams {
    u32 elements;
    List dims;
    List strides;
    List kept_dims;
    List kept_strides;
    u32 tops;
};

// A thread a result.
template <class K> DEV typename K::Value reduce(const K& k, u32 at) {
    typedef typename K::Sum Sum;
    const auto& p = params<ReduceParams>(k);
    const u32 base = strided(k, p.kept_dims, p.kept_strides, at);
    f32 top = 0.0f;
    if constexpr (K::SHIFTED) {
        top = cf(0xff800000u);
        for (u32 i = 0u; i < p.elements; i++) {
            top = kmax(top, f32(k.x0(base + strided(k, p.dims, p.strides, i))));
        }
        if (is_nan(top) || is_inf(top)) {
            return k.infinite(top);
        }
    }
    Sum acc = k.empty();
    for (u32 i = 0u; i < p.elements; i++) {
        acc = k.step(acc, Sum(k.x0(base + strided(k, p.dims, p.strides, i))), top);
    }
    return k.last(acc, p.elements, top);
}

// A block a result.
template <class K> DEV void reduce_group(const K& k) {
    typedef typename K::Sum Sum;
    __shared__ Sum partial[K::LANES];
    const auto& p = params<ReduceParams>(k);
    const u32 l = threadIdx.x;
    const u32 base = strided(k, p.kept_dims, p.kept_strides, blockIdx.x);
    Sum acc = k.empty();
    for (u32 i = l; i < p.elements; i += K::LANES) {
        acc = k.step(acc, Sum(k.x0(base + strided(k, p.dims, p.strides, i))), 0.0f);
    }
    partial[l] = acc;
    __syncthreads();
    for (u32 s = K::LANES / 2u; s > 0u; s = s / 2u) {
        if (l < s) {
            partial[l] = k.merge(partial[l], partial[l + s]);
        }
        __syncthreads();
    }
    if (l == 0u) {
        k.emit0(blockIdx.x, k.last(partial[0], p.elements, 0.0f));
    }
}
