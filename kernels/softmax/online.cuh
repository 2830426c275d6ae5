// Sums of exponentials of differences from the greatest number so far. NEAR: results are rounded to 16 bits.
#pragma once
#include "../prelude/launch.cuh"
#include "../prelude/math.cuh"

struct ExpSum {
    f32 top, sum;
};

DEV ExpSum no_exp_sum() { return ExpSum{cf(0xff800000u), 0.0f}; }

template <class K> DEV f32 power(f32 x) {
    if constexpr (K::NEAR) {
        return kexp_near(x);
    } else {
        return kexp(x);
    }
}

// Factor of a sum whose greatest number becomes `top`.
template <class K> DEV f32 lowered(f32 old, f32 top) { return old == top ? 1.0f : power<K>(old - top); }

template <class K> DEV ExpSum merged(ExpSum a, ExpSum b) {
    const f32 top = kmax(a.top, b.top);
    return ExpSum{top, a.sum * lowered<K>(a.top, top) + b.sum * lowered<K>(b.top, top)};
}

// With further numbers. Where all are -inf the sum stays 0.
template <class K, u32 N> DEV ExpSum with(ExpSum a, const f32 (&v)[N]) {
    f32 top = a.top;
#pragma unroll
    for (u32 i = 0u; i < N; i++) {
        top = kmax(top, v[i]);
    }
    f32 sum = a.sum * lowered<K>(a.top, top);
    const f32 from = top == cf(0xff800000u) ? 0.0f : top;
#pragma unroll
    for (u32 i = 0u; i < N; i++) {
        sum = sum + power<K>(v[i] - from);
    }
    return ExpSum{top, sum};
}

// The sum of a block, known to all its threads.
template <class K> DEV ExpSum block_exp_sum(ExpSum a) {
    __shared__ ExpSum of_each_warp[K::LANES / 32u];
#pragma unroll
    for (u32 s = 16u; s > 0u; s /= 2u) {
        ExpSum other;
        other.top = __shfl_xor_sync(0xffffffffu, a.top, s);
        other.sum = __shfl_xor_sync(0xffffffffu, a.sum, s);
        a = merged<K>(a, other);
    }
    if (threadIdx.x % 32u == 0u) {
        of_each_warp[threadIdx.x / 32u] = a;
    }
    __syncthreads();
    ExpSum all = of_each_warp[0];
    for (u32 w = 1u; w < K::LANES / 32u; w++) {
        all = merged<K>(all, of_each_warp[w]);
    }
    __syncthreads();
    return all;
}

// The result for a number, of the greatest one, and the reciprocal (LOG: the logarithm) of the sum.
template <class K> DEV f32 softmaxed(f32 x, f32 top, f32 by) {
    if constexpr (K::LOG) {
        return (x - top) - by;
    } else {
        return power<K>(x - top) * by;
    }
}

template <class K> DEV f32 divisor_of(f32 sum) { return K::LOG ? klog(sum) : 1.0f / sum; }
