// Sums of parts of a reduction, and what they give together. Hooks as in `reduce.cuh`; with SHIFTED a sum of exponentials has its
// greatest number beside it.
#pragma once
#include "../softmax/online.cuh"

struct ReduceMergeParams {
    u32 elements;
    u32 results;
    u32 heads;
    u32 tails;
    u32 parts;
    u32 part_step;
    u32 tail_step;
};

template <bool FIRST, class A, class B> struct Either {
    typedef A Type;
};
template <class A, class B> struct Either<false, A, B> {
    typedef B Type;
};

// A sum of a part.
template <class K> using Part = typename Either<K::SHIFTED, ExpSum, typename K::Sum>::Type;

template <class K> DEV Part<K> empty_part(const K& k) {
    if constexpr (K::SHIFTED) {
        return no_exp_sum();
    } else {
        return k.empty();
    }
}

template <class K> DEV Part<K> merged_parts(const K& k, Part<K> a, Part<K> b) {
    if constexpr (K::SHIFTED) {
        return merged<K>(a, b);
    } else {
        return k.merge(a, b);
    }
}

// A sum with further elements.
template <class K, class T, u32 N> DEV Part<K> with_elements(const K& k, Part<K> all, const T (&v)[N]) {
    if constexpr (K::SHIFTED) {
        f32 x[N];
#pragma unroll
        for (u32 i = 0u; i < N; i++) {
            x[i] = f32(v[i]);
        }
        return with<K>(all, x);
    } else {
        typedef typename K::Sum Sum;
#pragma unroll
        for (u32 i = 0u; i < N; i++) {
            all = k.step(all, Sum(v[i]), 0.0f);
        }
        return all;
    }
}

// The result for the sum of all elements.
template <class K> DEV typename K::Value result_of(const K& k, Part<K> all, u32 elements) {
    if constexpr (K::SHIFTED) {
        if (is_nan(all.top) || is_inf(all.top)) {
            return k.infinite(all.top);
        }
        return k.last(all.sum, elements, all.top);
    } else {
        return k.last(all, elements, 0.0f);
    }
}

template <class K> DEV Part<K> part_of_lane(Part<K> all, u32 s) {
    if constexpr (K::SHIFTED) {
        return ExpSum{__shfl_xor_sync(0xffffffffu, all.top, s), __shfl_xor_sync(0xffffffffu, all.sum, s)};
    } else {
        return __shfl_xor_sync(0xffffffffu, all, s);
    }
}

// Sums of neighbouring lanes of a warp, as many as a power of two.
template <class K> DEV Part<K> of_lanes(const K& k, Part<K> all, u32 lanes) {
    for (u32 s = lanes / 2u; s > 0u; s /= 2u) {
        all = merged_parts(k, all, part_of_lane<K>(all, s));
    }
    return all;
}

// The sum of all threads of a block, which its first thread gets.
template <class K> DEV Part<K> of_block(const K& k, Part<K> all) {
    __shared__ Part<K> of_each_warp[K::LANES / 32u];
    all = of_lanes(k, all, 32u);
    if (threadIdx.x % 32u == 0u) {
        of_each_warp[threadIdx.x / 32u] = all;
    }
    __syncthreads();
    for (u32 w = 1u; threadIdx.x == 0u && w < K::LANES / 32u; w++) {
        all = merged_parts(k, all, of_each_warp[w]);
    }
    return all;
}

// Part m of result t in scratch memory.
template <class K> DEV Part<K> stored_part(const K& k, u32 t, u32 m) {
    const auto& p = params<ReduceMergeParams>(k);
    const u32 outer = t / p.tails;
    const u32 tail = t - outer * p.tails;
    const u32 head = m / p.parts;
    const u32 at = (m - head * p.parts) * p.part_step + ((outer * p.heads + head) * p.tails + tail) * p.tail_step;
    return reinterpret_cast<const Part<K>*>(k.scratch)[at];
}

// A thread a result.
template <class K> DEV void merge_by_thread(const K& k, u32 t) {
    const auto& p = params<ReduceMergeParams>(k);
    Part<K> all = empty_part(k);
#pragma unroll 4
    for (u32 m = 0u; m < p.heads * p.parts; m++) {
        all = merged_parts(k, all, stored_part(k, t, m));
    }
    k.emit0(t, result_of(k, all, p.elements));
}

// A warp a result.
template <class K> DEV void merge_by_warp(const K& k) {
    const auto& p = params<ReduceMergeParams>(k);
    const u32 t = blockIdx.x * (K::LANES / 32u) + threadIdx.x / 32u;
    if (t >= p.results) {
        return;
    }
    Part<K> all = empty_part(k);
#pragma unroll 4
    for (u32 m = threadIdx.x % 32u; m < p.heads * p.parts; m += 32u) {
        all = merged_parts(k, all, stored_part(k, t, m));
    }
    all = of_lanes(k, all, 32u);
    if (threadIdx.x % 32u == 0u) {
        k.emit0(t, result_of(k, all, p.elements));
    }
}

// A block a result.
template <class K> DEV void merge_by_block(const K& k) {
    const auto& p = params<ReduceMergeParams>(k);
    Part<K> all = empty_part(k);
#pragma unroll 4
    for (u32 m = threadIdx.x; m < p.heads * p.parts; m += K::LANES) {
        all = merged_parts(k, all, stored_part(k, blockIdx.x, m));
    }
    all = of_block(k, all);
    if (threadIdx.x == 0u) {
        k.emit0(blockIdx.x, result_of(k, all, p.elements));
    }
}
