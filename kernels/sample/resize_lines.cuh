// Resizing with V neighbouring results of a thread, whose taps along the innermost resized axis stay in registers for several
// rows. All other axes form rows; a row combines taps along each of them, one of weight 1 where an axis is not resized.
#pragma once
#include "../prelude/launch.cuh"
#include "../slice/divisor.cuh"

struct ResizeLinesParams {
    f32 outside;
    u32 places;
    u32 taps;
    u32 chunks;
    u32 chunks_factor;
    u32 chunks_shift;
    u32 inner;
    u32 inner_factor;
    u32 inner_shift;
    u32 line;
    u32 result;
    u32 rows;
    u32 each;
    u32 parts;
    u32 combinations;
    List dims;
    List factors;
    List shifts;
    List strides;
    List counts;
    List starts;
    List table;
};

// Position that stands for a row outside of x.
constexpr u32 RESIZE_OUTSIDE = 0xffffffffu;

// The start of a combination's elements in x, and its weight; false if the row is outside of x.
template <class K> DEV bool row_of_taps(const K& k, u32 row, u32 which, u32& source, f32& weight) {
    const auto& p = params<ResizeLinesParams>(k);
    source = 0u;
    weight = 1.0f;
    u32 rest = row;
    for (u32 d = 0u; d < p.dims.count; d++) {
        const Divisor size{item(k, p.dims, d), item(k, p.factors, d), item(k, p.shifts, d)};
        const u32 q = divide(rest, size);
        const u32 o = rest - q * size.size;
        rest = q;
        const u32 taps = item(k, p.counts, d);
        u32 i = o;
        if (taps > 0u) {
            const u32 next = taps == 1u ? which : which / taps;
            const u32 tap = item(k, p.starts, d) + (o * taps + which - next * taps) * 2u;
            which = next;
            i = item(k, p.table, tap);
            weight *= item_f32(k, p.table, tap + 1u);
            if (i == RESIZE_OUTSIDE) {
                return false;
            }
        }
        source += i * item(k, p.strides, d);
    }
    return true;
}

// Adds what one combination of other axes' taps gives to sums of V neighbours along the line.
template <u32 V, u32 TAPS, class K>
DEV void add_line(const K& k, u32 source, f32 weight, const u32 (&at)[TAPS * V], const f32 (&by)[TAPS * V], f32 (&sums)[V]) {
#pragma unroll
    for (u32 j = 0u; j < V; j++) {
        f32 sum = 0.0f;
#pragma unroll
        for (u32 t = 0u; t < TAPS; t++) {
            const f32 x = f32(k.x0(source + at[t * V + j]));
            sum = by[t * V + j] != 0.0f ? __fmaf_rn(by[t * V + j], x, sum) : sum;
        }
        sums[j] = __fmaf_rn(weight, sum, sums[j]);
    }
}

// The line is innermost. A thread has V neighbours of `each` rows.
template <u32 V, class K> DEV void resize_line(const K& k, u32 t) {
    constexpr u32 TAPS = K::TAPS;
    const auto& p = params<ResizeLinesParams>(k);
    const Divisor chunks{p.chunks, p.chunks_factor, p.chunks_shift};
    const u32 group = divide(t, chunks);
    const u32 first = (t - group * p.chunks) * V;
    u32 at[TAPS * V];
    f32 by[TAPS * V];
    bool beyond[V];
#pragma unroll
    for (u32 j = 0u; j < V; j++) {
        beyond[j] = false;
#pragma unroll
        for (u32 tap = 0u; tap < TAPS; tap++) {
            const u32 place = p.places + ((first + j) * TAPS + tap) * 2u;
            const u32 i = item(k, p.table, place);
            beyond[j] = beyond[j] || i == RESIZE_OUTSIDE;
            at[tap * V + j] = i == RESIZE_OUTSIDE ? 0u : i;
            by[tap * V + j] = item_f32(k, p.table, place + 1u);
        }
    }
    const u32 end = min(p.rows, (group + 1u) * p.each);
    for (u32 row = group * p.each; row < end; row++) {
        f32 sums[V];
#pragma unroll
        for (u32 j = 0u; j < V; j++) {
            sums[j] = 0.0f;
        }
        bool inside = true;
        for (u32 c = 0u; c < p.combinations; c++) {
            u32 source;
            f32 weight;
            inside = row_of_taps(k, row, c, source, weight);
            if (!inside) {
                break;
            }
            if (weight != 0.0f) {
                add_line<V, TAPS>(k, source, weight, at, by, sums);
            }
        }
        typename K::Value y[V];
#pragma unroll
        for (u32 j = 0u; j < V; j++) {
            y[j] = k.stored(inside && !beyond[j] ? sums[j] : p.outside);
        }
        const u32 to = row * p.result + first;
        if constexpr (V == 1u) {
            k.emit0(to, y[0]);
        } else {
            k.emit0_any(to, y);
        }
    }
}

// Elements behind the line stay neighbours: a thread has V of them at one place of the line.
template <u32 V, class K> DEV void resize_inner(const K& k, u32 t) {
    const auto& p = params<ResizeLinesParams>(k);
    const Divisor inner{p.inner, p.inner_factor, p.inner_shift};
    const Divisor chunks{p.chunks, p.chunks_factor, p.chunks_shift};
    const u32 pixel = divide(t, inner);
    const u32 c = (t - pixel * p.inner) * V;
    const u32 row = divide(pixel, chunks);
    const u32 place = p.places + (pixel - row * p.chunks) * p.taps * 2u;
    f32 sums[V];
#pragma unroll
    for (u32 j = 0u; j < V; j++) {
        sums[j] = 0.0f;
    }
    bool inside = true;
    for (u32 w = 0u; w < p.combinations && inside; w++) {
        u32 source;
        f32 weight;
        inside = row_of_taps(k, row, w, source, weight);
        for (u32 tap = 0u; tap < p.taps && inside; tap++) {
            const u32 i = item(k, p.table, place + tap * 2u);
            inside = i != RESIZE_OUTSIDE;
            const f32 by = weight * item_f32(k, p.table, place + tap * 2u + 1u);
            if (inside && by != 0.0f) {
                const u32 from = source + i * p.line + c;
                if constexpr (V == 1u) {
                    sums[0] = __fmaf_rn(by, f32(k.x0(from)), sums[0]);
                } else {
                    const auto r = Run<typename K::Cell>::of(k.bx0 + from, 1u);
#pragma unroll
                    for (u32 j = 0u; j < V; j++) {
                        sums[j] = __fmaf_rn(by, f32(k.wide(r.v[j])), sums[j]);
                    }
                }
            }
        }
    }
    typename K::Value y[V];
#pragma unroll
    for (u32 j = 0u; j < V; j++) {
        y[j] = k.stored(inside ? sums[j] : p.outside);
    }
    if constexpr (V == 1u) {
        k.emit0(t, y[0]);
    } else {
        k.emit0_any(t * V, y);
    }
}

// Combinations of taps of a block's rows.
constexpr u32 RESIZE_SOURCES = 64u;

// The same by blocks, each of which finds the elements under some rows once and has a part of these rows.
template <u32 V, class K> DEV void resize_pixels(const K& k) {
    __shared__ u32 sources[RESIZE_SOURCES];
    __shared__ f32 weights[RESIZE_SOURCES];
    const auto& p = params<ResizeLinesParams>(k);
    const Divisor inner{p.inner, p.inner_factor, p.inner_shift};
    const Divisor chunks{p.chunks, p.chunks_factor, p.chunks_shift};
    const u32 group = blockIdx.x / p.parts;
    const u32 first = group * p.each;
    const u32 rows = min(p.each, p.rows - first);
    for (u32 i = threadIdx.x; i < rows * p.combinations; i += K::LANES) {
        u32 source;
        f32 weight;
        const bool inside = row_of_taps(k, first + i / p.combinations, i % p.combinations, source, weight);
        sources[i] = inside ? source : RESIZE_OUTSIDE;
        weights[i] = weight;
    }
    __syncthreads();
    const u32 total = rows * p.chunks * p.inner;
    const u32 start = first * p.chunks * p.inner;
    for (u32 t = (blockIdx.x - group * p.parts) * K::LANES + threadIdx.x; t < total; t += p.parts * K::LANES) {
        const u32 pixel = divide(t, inner);
        const u32 c = (t - pixel * p.inner) * V;
        const u32 row = divide(pixel, chunks);
        const u32 place = p.places + (pixel - row * p.chunks) * p.taps * 2u;
        f32 sums[V];
#pragma unroll
        for (u32 j = 0u; j < V; j++) {
            sums[j] = 0.0f;
        }
        bool inside = true;
        for (u32 tap = 0u; tap < p.taps; tap++) {
            const u32 i = item(k, p.table, place + tap * 2u);
            const f32 by = item_f32(k, p.table, place + tap * 2u + 1u);
            inside = inside && i != RESIZE_OUTSIDE;
            const u32 behind = (i == RESIZE_OUTSIDE ? 0u : i) * p.line + c;
            for (u32 w = 0u; w < p.combinations; w++) {
                const u32 source = sources[row * p.combinations + w];
                const f32 weight = weights[row * p.combinations + w] * by;
                inside = inside && source != RESIZE_OUTSIDE;
                if (inside && weight != 0.0f) {
                    const u32 from = source + behind;
                    if constexpr (V == 1u) {
                        sums[0] = __fmaf_rn(weight, f32(k.x0(from)), sums[0]);
                    } else {
                        const auto r = Run<typename K::Cell>::of(k.bx0 + from, 1u);
#pragma unroll
                        for (u32 j = 0u; j < V; j++) {
                            sums[j] = __fmaf_rn(weight, f32(k.wide(r.v[j])), sums[j]);
                        }
                    }
                }
            }
        }
        typename K::Value y[V];
#pragma unroll
        for (u32 j = 0u; j < V; j++) {
            y[j] = k.stored(inside ? sums[j] : p.outside);
        }
        if constexpr (V == 1u) {
            k.emit0(start + t, y[0]);
        } else {
            k.emit0_any((start + t) * V, y);
        }
    }
}

template <class K> DEV void resize_line_8(const K& k, u32 t) { resize_line<8u>(k, t); }
template <class K> DEV void resize_line_1(const K& k, u32 t) { resize_line<1u>(k, t); }
template <class K> DEV void resize_inner_8(const K& k, u32 t) { resize_inner<8u>(k, t); }
template <class K> DEV void resize_inner_1(const K& k, u32 t) { resize_inner<1u>(k, t); }
template <class K> DEV void resize_pixels_8(const K& k) { resize_pixels<8u>(k); }
template <class K> DEV void resize_pixels_1(const K& k) { resize_pixels<1u>(k); }
