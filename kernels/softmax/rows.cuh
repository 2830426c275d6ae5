// Softmax of rows along the last axes, or its logarithm (LOG), whole rows in registers.
#pragma once
#include "../norm/row.cuh"

struct SoftmaxRowParams {
    u32 count;
    u32 rows;
};

template <class K> DEV void softmax_rows(const K& k) {
    const auto& p = params<SoftmaxRowParams>(k);
    Row<K> r(k, p.count, p.rows);
    r.load(cf(0xff800000u));
    f32 top = cf(0xff800000u);
#pragma unroll
    for (u32 c = 0u; c < K::CHUNKS; c++) {
#pragma unroll
        for (u32 j = 0u; j < K::V; j++) {
            top = kmax(top, r.v[c][j]);
        }
    }
    top = row_max<K>(0u, top);
    f32 sum = 0.0f;
#pragma unroll
    for (u32 c = 0u; c < K::CHUNKS; c++) {
        if (r.chunk(c) < r.n) {
#pragma unroll
            for (u32 j = 0u; j < K::V; j++) {
                r.v[c][j] = r.v[c][j] - top;
                const f32 e = kexp(r.v[c][j]);
                sum += e;
                if constexpr (!K::LOG) {
                    r.v[c][j] = e;
                }
            }
        }
    }
    sum = row_sum<K>(1u, sum);
    const f32 below = K::LOG ? klog(sum) : 0.0f;
#pragma unroll
    for (u32 c = 0u; c < K::CHUNKS; c++) {
        const u32 i = r.chunk(c);
        if (i < r.n) {
            f32 y[K::V];
#pragma unroll
            for (u32 j = 0u; j < K::V; j++) {
                y[j] = K::LOG ? r.v[c][j] - below : r.v[c][j] / sum;
            }
            r.store(i, y);
        }
    }
}
