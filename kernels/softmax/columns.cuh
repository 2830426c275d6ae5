// Softmax along an axis that is not the last, or its logarithm (LOG): a thread has V neighbouring lines, of which it keeps CHUNKS
// elements in registers at a time. Lines that fit are read once.
#pragma once
#include "../prelude/storage.cuh"
#include "online.cuh"

struct SoftmaxColumnsParams {
    u32 count;
    u32 inner;
    u32 columns;
    u32 side;
    u32 wide;
    u32 high;
    u32 tiles;
};

// V neighbouring elements as they are stored.
template <class T, u32 V> struct Cells : Run<T> {
    DEV static Cells of(const T* p) { return Cells{Run<T>::of(p, 1u)}; }
};

template <class T> struct Cells<T, 1u> {
    T v[1];
    DEV static Cells of(const T* p) { return Cells{{*p}}; }
};

template <u32 V, class K> DEV void softmax_columns(const K& k) {
    typedef Cells<typename K::Cell, V> Vector;
    __shared__ f32 tops[V][K::LANES];
    __shared__ f32 sums[V][K::LANES];
    const auto& p = params<SoftmaxColumnsParams>(k);
    const u32 l = threadIdx.x;
    const u32 y = l / p.wide;
    const u32 x = l - y * p.wide;
    const u32 outer = blockIdx.x / p.side;
    const u32 column = (blockIdx.x - outer * p.side) * p.wide + x;
    const bool inside = y < p.high && column < p.columns;
    const u32 base = outer * p.count * p.inner + column * V;
    Vector cells[K::CHUNKS];
    ExpSum own[V];
#pragma unroll
    for (u32 j = 0u; j < V; j++) {
        own[j] = no_exp_sum();
    }
    const auto load = [&](u32 tile) {
#pragma unroll
        for (u32 c = 0u; c < K::CHUNKS; c++) {
            const u32 r = (tile * K::CHUNKS + c) * p.high + y;
            if (r < p.count) {
                cells[c] = Vector::of(k.bx0 + base + r * p.inner);
            }
        }
    };
    for (u32 tile = 0u; inside && tile < p.tiles; tile++) {
        load(tile);
#pragma unroll
        for (u32 j = 0u; j < V; j++) {
            f32 v[K::CHUNKS];
#pragma unroll
            for (u32 c = 0u; c < K::CHUNKS; c++) {
                const u32 r = (tile * K::CHUNKS + c) * p.high + y;
                v[c] = r < p.count ? k.wide(cells[c].v[j]) : cf(0xff800000u);
            }
            own[j] = with<K>(own[j], v);
        }
    }
#pragma unroll
    for (u32 j = 0u; j < V; j++) {
        tops[j][l] = own[j].top;
        sums[j][l] = own[j].sum;
    }
    __syncthreads();
    u32 h = 1u;
    while (h < p.high) {
        h *= 2u;
    }
    for (h /= 2u; h > 0u; h /= 2u) {
        if (y < h && y + h < p.high) {
            const u32 other = l + h * p.wide;
#pragma unroll
            for (u32 j = 0u; j < V; j++) {
                own[j] = merged<K>(own[j], ExpSum{tops[j][other], sums[j][other]});
                tops[j][l] = own[j].top;
                sums[j][l] = own[j].sum;
            }
        }
        __syncthreads();
    }
    if (!inside) {
        return;
    }
    f32 by[V];
#pragma unroll
    for (u32 j = 0u; j < V; j++) {
        own[j].top = tops[j][x];
        by[j] = divisor_of<K>(sums[j][x]);
    }
    for (u32 tile = 0u; tile < p.tiles; tile++) {
        if (p.tiles > 1u) {
            load(tile);
        }
#pragma unroll
        for (u32 c = 0u; c < K::CHUNKS; c++) {
            const u32 r = (tile * K::CHUNKS + c) * p.high + y;
            if (r < p.count) {
                f32 out[V];
#pragma unroll
                for (u32 j = 0u; j < V; j++) {
                    out[j] = softmaxed<K>(k.wide(cells[c].v[j]), own[j].top, by[j]);
                }
                if constexpr (V == 1u) {
                    k.emit0(base + r * p.inner, out[0]);
                } else {
                    k.emit0_any(base + r * p.inner, out);
                }
            }
        }
    }
}

template <class K> DEV void softmax_columns_8(const K& k) { softmax_columns<8u>(k); }
template <class K> DEV void softmax_columns_1(const K& k) { softmax_columns<1u>(k); }
