// Means and sums of squared deviations of parts of a row, merged without cancellation.
#pragma once
#include "../prelude/launch.cuh"
#include "../prelude/math.cuh"

struct Moments {
    // Number of elements, their mean, the sum of squared deviations from it.
    f32 n, mean, squares;
};

DEV Moments no_moments() { return Moments{0.0f, 0.0f, 0.0f}; }

// The share of `n` elements among these and `before` others.
DEV f32 share(f32 before, f32 n) { return n > 0.0f ? n / (before + n) : 0.0f; }

// Adds `n` elements to `before` others, of whose number they are this share.
DEV void add_moments(f32 before, f32& mean, f32& squares, f32 share, f32 other_mean, f32 other_squares) {
    const f32 d = other_mean - mean;
    mean = __fmaf_rn(d, share, mean);
    squares = squares + __fmaf_rn(d * (before * share), d, other_squares);
}

DEV Moments merged(Moments a, Moments b) {
    add_moments(a.n, a.mean, a.squares, share(a.n, b.n), b.mean, b.squares);
    a.n = a.n + b.n;
    return a;
}

template <u32 N> DEV Moments moments(const f32 (&v)[N]) {
    f32 sum = 0.0f;
#pragma unroll
    for (u32 i = 0u; i < N; i++) {
        sum = sum + v[i];
    }
    Moments m = {f32(N), sum * (1.0f / f32(N)), 0.0f};
#pragma unroll
    for (u32 i = 0u; i < N; i++) {
        const f32 d = v[i] - m.mean;
        m.squares = __fmaf_rn(d, d, m.squares);
    }
    return m;
}

// V elements from `at` on.
template <u32 V, class K> DEV void load_vector(const K& k, u32 at, f32* v) {
    if constexpr (V == 1u) {
        v[0] = k.x0(at);
    } else {
        const auto r = Run<typename K::Cell>::of(k.bx0 + at, 1u);
#pragma unroll
        for (u32 j = 0u; j < V; j++) {
            v[j] = k.wide(r.v[j]);
        }
    }
}

// Moments of the elements `from`..`to` that this thread of a block reads; both are multiples of V.
template <u32 V, class K> DEV Moments thread_moments(const K& k, u32 from, u32 to) {
    constexpr u32 U = V == 1u ? 8u : 4u;
    constexpr u32 STEP = K::LANES * V;
    Moments all = no_moments();
    const u32 own = threadIdx.x * V;
    u32 left = to - from > own ? to - from - own : 0u;
    u32 at = from + own;
    for (; left > (U - 1u) * STEP; left -= min(left, U * STEP), at += U * STEP) {
        f32 v[U * V];
#pragma unroll
        for (u32 u = 0u; u < U; u++) {
            load_vector<V>(k, at + u * STEP, &v[u * V]);
        }
        all = merged(all, moments(v));
    }
    for (; left > 0u; left -= min(left, STEP), at += STEP) {
        f32 v[V];
        load_vector<V>(k, at, v);
        all = merged(all, moments(v));
    }
    return all;
}

// Moments of all threads of a warp together; each thread gets them.
DEV Moments warp_moments(Moments m) {
#pragma unroll
    for (u32 s = 16u; s > 0u; s /= 2u) {
        Moments other;
        other.n = __shfl_xor_sync(0xffffffffu, m.n, s);
        other.mean = __shfl_xor_sync(0xffffffffu, m.mean, s);
        other.squares = __shfl_xor_sync(0xffffffffu, m.squares, s);
        m = merged(m, other);
    }
    return m;
}

// Moments of all threads of a block together; each thread gets them.
template <class K> DEV Moments block_moments(const K&, Moments m) {
    __shared__ Moments of_each_warp[K::LANES / 32u];
    m = warp_moments(m);
    if (threadIdx.x % 32u == 0u) {
        of_each_warp[threadIdx.x / 32u] = m;
    }
    __syncthreads();
    Moments all = of_each_warp[0];
    for (u32 w = 1u; w < K::LANES / 32u; w++) {
        all = merged(all, of_each_warp[w]);
    }
    __syncthreads();
    return all;
}
