// Results whose innermost dimension is not that of x: tiles of two dimensions by way of shared memory, where p is dense in x
// and q in the result.
#pragma once
#include "../slice/copy.cuh"
#include "../slice/divisor.cuh"

struct TransposeTilesParams {
    u32 offset;
    u32 size_p;
    u32 size_q;
    u32 stride_q;
    u32 own_stride_p;
    u32 tiles_p;
    u32 tiles_q;
    List sizes;
    List factors;
    List shifts;
    List strides;
    List own_strides;
};

template <class K> DEV void tiles(const K& k) {
    typedef typename K::Cell Cell;
    // Elements of a row of a tile, so that a column's are in different banks.
    constexpr u32 PITCH = sizeof(Cell) == 1u ? 68u : sizeof(Cell) == 2u ? 66u : 65u;
    __shared__ Cell tile[64u * PITCH];
    const auto& p = params<TransposeTilesParams>(k);
    const u32 q0 = blockIdx.x % p.tiles_q * 64u;
    const u32 p0 = blockIdx.x / p.tiles_q % p.tiles_p * 64u;
    u32 rest = blockIdx.x / p.tiles_q / p.tiles_p;
    u32 source = p.offset;
    u32 result = 0u;
    for (u32 d = 0u; d < p.sizes.count; d++) {
        const Divisor size{item(k, p.sizes, d), item(k, p.factors, d), item(k, p.shifts, d)};
        const u32 q = divide(rest, size);
        const u32 c = rest - q * size.size;
        source += c * item(k, p.strides, d);
        result += c * item(k, p.own_strides, d);
        rest = q;
    }
    const u32 x = threadIdx.x % 64u;
    const u32 y = threadIdx.x / 64u;
#pragma unroll
    for (u32 i = 0u; i < 16u; i++) {
        const u32 q = y + i * 4u;
        if (p0 + x < p.size_p && q0 + q < p.size_q) {
            tile[q * PITCH + x] = k.bx0[source + (q0 + q) * p.stride_q + p0 + x];
        }
    }
    __syncthreads();
#pragma unroll
    for (u32 i = 0u; i < 16u; i++) {
        const u32 down = y + i * 4u;
        if (p0 + down < p.size_p && q0 + x < p.size_q) {
            copy_1(k, tile + x * PITCH + down, result + (p0 + down) * p.own_stride_p + q0 + x);
        }
    }
}
