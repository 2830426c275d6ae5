// Resizing of planes: a block has one row of the result in several planes at a time. It combines the rows of x that make it in shared
// memory, eight elements a thread. Then a thread makes eight results of each plane, whose taps along the row stay in registers: neighbours
// with RUNS, else as far apart as there are threads of a row.
#pragma once
#include "resize_lines.cuh"

struct ResizeRowsParams {
    f32 outside;
    u32 places;
    u32 combinations;
    u32 input;
    u32 output;
    u32 chunks;
    u32 planes;
    u32 slots;
    u32 held;
    u32 pitch;
    u32 rows;
    u32 plane_step;
    u32 result_step;
    u32 each;
    List dims;
    List strides;
    List counts;
    List starts;
    List table;
};

// Floats that a block keeps, and combinations of rows.
constexpr u32 RESIZE_FLOATS = 4096u;
constexpr u32 RESIZE_MOST = 64u;

// Place of column i of a row: neighbours of a thread are in different banks.
DEV u32 resize_column(u32 i) { return i + i / 32u; }

// Finds the rows that make row `row` of a plane and their weights, by a thread each; 0 where one is outside.
template <class K> DEV void find_rows(const K& k, u32 row, u32* sources, f32* weights, u32* inside) {
    const auto& p = params<ResizeRowsParams>(k);
    for (u32 c = threadIdx.x; c < p.combinations; c += K::LANES) {
        u32 rest = row;
        u32 which = c;
        u32 source = 0u;
        f32 weight = 1.0f;
        for (u32 d = 0u; d < p.dims.count; d++) {
            const u32 n = item(k, p.dims, d);
            const u32 taps = item(k, p.counts, d);
            const u32 tap = item(k, p.starts, d) + (rest % n * taps + which % taps) * 2u;
            rest = rest / n;
            which = which / taps;
            const u32 i = item(k, p.table, tap);
            if (i == RESIZE_OUTSIDE) {
                *inside = 0u;
            }
            source += i * item(k, p.strides, d);
            weight *= item_f32(k, p.table, tap + 1u);
        }
        sources[c] = source;
        weights[c] = weight;
    }
}

// Place of word i of a part of the table: those of a thread's neighbours are in different banks.
template <bool RUNS> DEV u32 resize_word(u32 i) { return RUNS ? i + i / 16u : i; }

template <bool RUNS, class K> DEV void resize_rows(const K& k) {
    constexpr u32 TAPS = K::TAPS;
    constexpr u32 V = 8u;
    // Holds parts of the table first, then lines.
    __shared__ f32 lines[RESIZE_FLOATS + RESIZE_FLOATS / 16u];
    __shared__ u32 sources[RESIZE_MOST];
    __shared__ f32 weights[RESIZE_MOST];
    __shared__ u32 inside;
    const auto& p = params<ResizeRowsParams>(k);
    const u32 group = blockIdx.x / p.rows;
    const u32 row = blockIdx.x - group * p.rows;
    if (threadIdx.x == 0u) {
        inside = 1u;
    }
    __syncthreads();
    find_rows(k, row, sources, weights, &inside);
    const u32 slot = threadIdx.x / p.chunks;
    const u32 first = (threadIdx.x - slot * p.chunks) * (RUNS ? V : 1u);
    const u32 step = RUNS ? 1u : p.chunks;
    u32 at[TAPS * V];
    f32 by[TAPS * V];
    bool beyond[V];
    u32* const part = reinterpret_cast<u32*>(lines);
#pragma unroll
    for (u32 tap = 0u; tap < TAPS; tap++) {
        for (u32 i = threadIdx.x; i < p.output * 2u; i += K::LANES) {
            part[resize_word<RUNS>(i)] = item(k, p.table, p.places + (i / 2u * TAPS + tap) * 2u + i % 2u);
        }
        __syncthreads();
#pragma unroll
        for (u32 j = 0u; j < V; j++) {
            const u32 place = ::min(first + j * step, p.output - 1u) * 2u;
            const u32 i = part[resize_word<RUNS>(place)];
            beyond[j] = (tap > 0u && beyond[j]) || i == RESIZE_OUTSIDE;
            at[tap * V + j] = i == RESIZE_OUTSIDE ? 0u : resize_column(i);
            by[tap * V + j] = cf(part[resize_word<RUNS>(place + 1u)]);
        }
        __syncthreads();
    }
    const u32 units = (p.input + 7u) / 8u;
    const u32 end = min(p.planes, (group + 1u) * p.each);
    for (u32 plane = group * p.each; plane < end; plane += p.held) {
        const u32 held = min(p.held, end - plane);
        for (u32 t = threadIdx.x; t < held * units && inside != 0u; t += K::LANES) {
            const u32 s = t / units;
            const u32 x = (t - s * units) * 8u;
            const u32 from = (plane + s) * p.plane_step + x;
            f32* const to = lines + s * p.pitch;
            if (x + 8u <= p.input) {
                f32 sums[8] = {};
                for (u32 c = 0u; c < p.combinations; c++) {
                    const f32 weight = weights[c];
                    if (weight != 0.0f) {
                        const auto r = Run<typename K::Cell>::of(k.bx0 + from + sources[c], 1u);
#pragma unroll
                        for (u32 j = 0u; j < 8u; j++) {
                            sums[j] = __fmaf_rn(weight, f32(k.wide(r.v[j])), sums[j]);
                        }
                    }
                }
#pragma unroll
                for (u32 j = 0u; j < 8u; j++) {
                    to[resize_column(x) + j] = sums[j];
                }
            } else {
                for (u32 i = 0u; x + i < p.input; i++) {
                    f32 sum = 0.0f;
                    for (u32 c = 0u; c < p.combinations; c++) {
                        if (weights[c] != 0.0f) {
                            sum = __fmaf_rn(weights[c], f32(k.x0(from + sources[c] + i)), sum);
                        }
                    }
                    to[resize_column(x) + i] = sum;
                }
            }
        }
        __syncthreads();
        for (u32 s = slot < p.slots ? slot : held; s < held; s += p.slots) {
            const f32* const line = lines + s * p.pitch;
            typename K::Value y[V];
#pragma unroll
            for (u32 j = 0u; j < V; j++) {
                f32 sum = 0.0f;
#pragma unroll
                for (u32 tap = 0u; tap < TAPS; tap++) {
                    const f32 b = by[tap * V + j];
                    sum = b != 0.0f ? __fmaf_rn(b, line[at[tap * V + j]], sum) : sum;
                }
                y[j] = k.stored(inside != 0u && !beyond[j] ? sum : p.outside);
            }
            const u32 to = (plane + s) * p.result_step + row * p.output + first;
            if constexpr (RUNS) {
                k.emit0_any(to, y);
            } else {
#pragma unroll
                for (u32 j = 0u; j < V; j++) {
                    if (first + j * step < p.output) {
                        k.emit0(to + j * step, y[j]);
                    }
                }
            }
        }
        __syncthreads();
    }
}

template <class K> DEV void resize_rows_8(const K& k) { resize_rows<true>(k); }
template <class K> DEV void resize_rows_1(const K& k) { resize_rows<false>(k); }
