// The position of the greatest or least element of lines along an axis, several threads a line. Hooks: `better(a, b)` orders
// elements, `replaces(best, x)` tells whether the later element x takes the place of the best one so far; LAST takes the last of
// equals.
#pragma once
#include "../slice/walk.cuh"

struct ArgRowsParams {
    u32 count;
    u32 rows;
    u32 parts;
    u32 part;
};

struct ArgColumnsParams {
    u32 count;
    u32 inner;
    u32 wide;
    u32 wide_log2;
    u32 parts;
    u32 part;
    u32 side;
    u32 results;
};

// An element with its position.
template <class K> struct Best {
    typename K::Given value;
    u32 at;
};

// The better one of two, in any order of positions.
template <class K> DEV Best<K> better_of(const K& k, Best<K> a, Best<K> b) {
    const bool first = k.better(a.value, b.value);
    const bool second = k.better(b.value, a.value);
    const bool before = K::LAST ? a.at > b.at : a.at < b.at;
    return first || (!second && before) ? a : b;
}

// The best element that thread t of T finds in elements from..from + count of a row, none of which is in another part.
template <u32 T, class K> DEV Best<K> row_best(const K& k, u32 base, u32 from, u32 count, u32 t) {
    Best<K> best{k.x0(base + from), from};
    const auto consider = [&](typename K::Given v, u32 at) {
        if (k.replaces(best.value, v)) {
            best = Best<K>{v, from + at};
        }
    };
    if constexpr (K::VECTORS) {
        walk<T>(k.bx0 + base + from, count, t, [&](typename K::Cell cell, u32 at) { consider(k.decoded(cell), at); });
    } else {
        for (u64 at = t; at < count; at += T) {
            consider(k.x0(base + from + u32(at)), u32(at));
        }
    }
    return best;
}

// The best one of N neighbouring lanes.
template <u32 N = 32u, class K> DEV Best<K> best_of_warp(const K& k, Best<K> best) {
#pragma unroll
    for (u32 s = N / 2u; s > 0u; s /= 2u) {
        const Best<K> other{__shfl_xor_sync(0xffffffffu, best.value, s), __shfl_xor_sync(0xffffffffu, best.at, s)};
        best = better_of(k, best, other);
    }
    return best;
}

// N neighbouring lanes a row.
template <u32 N, class K> DEV void argreduce_lanes(const K& k) {
    const auto& p = params<ArgRowsParams>(k);
    const u32 l = threadIdx.x % N;
    const u32 row = blockIdx.x * (256u / N) + threadIdx.x / N;
    // Lanes without a row help others to exchange what they found.
    const u32 own = ::min(row, p.rows - 1u);
    const auto best = best_of_warp<N>(k, row_best<N>(k, own * p.count, 0u, p.count, l));
    if (l == 0u && row < p.rows) {
        k.emit0(row, i64(best.at));
    }
}

template <class K> DEV void argreduce_quads(const K& k) { argreduce_lanes<4u>(k); }

template <class K> DEV void argreduce_warps(const K& k) { argreduce_lanes<32u>(k); }

// A block a part of a row.
template <class K> DEV void argreduce_blocks(const K& k) {
    __shared__ typename K::Given values[8];
    __shared__ u32 places[8];
    const auto& p = params<ArgRowsParams>(k);
    const u32 l = threadIdx.x;
    const u32 row = blockIdx.x / p.parts;
    const u32 from = blockIdx.x % p.parts * p.part;
    auto best = best_of_warp(k, row_best<256u>(k, row * p.count, from, ::min(p.part, p.count - from), l));
    if (l % 32u == 0u) {
        values[l / 32u] = best.value;
        places[l / 32u] = best.at;
    }
    __syncthreads();
    if (l > 0u) {
        return;
    }
    for (u32 w = 1u; w < 8u; w++) {
        best = better_of(k, best, Best<K>{values[w], places[w]});
    }
    if (p.parts > 1u) {
        reinterpret_cast<Best<K>*>(k.scratch)[blockIdx.x] = best;
    } else {
        k.emit0(row, i64(best.at));
    }
}

// A warp the parts of a row.
template <class K> DEV void argreduce_parts(const K& k) {
    const auto& p = params<ArgRowsParams>(k);
    const u32 row = blockIdx.x * 8u + threadIdx.x / 32u;
    if (row >= p.rows) {
        return;
    }
    const auto* const found = reinterpret_cast<const Best<K>*>(k.scratch) + row * p.parts;
    Best<K> best = found[0];
    for (u32 i = threadIdx.x % 32u; i < p.parts; i += 32u) {
        best = better_of(k, best, found[i]);
    }
    best = best_of_warp(k, best);
    if (threadIdx.x % 32u == 0u) {
        k.emit0(row, i64(best.at));
    }
}

// Compares V neighbouring elements in row r, from `at` on, with the best ones above.
template <u32 V, class K> DEV void consider_columns(const K& k, u32 at, u32 r, Best<K> (&best)[V]) {
    if constexpr (V == 8u && K::VECTORS) {
        const auto run = Run<typename K::Cell>::of(k.bx0 + at, 1u);
#pragma unroll
        for (u32 j = 0u; j < V; j++) {
            const auto v = k.decoded(run.v[j]);
            best[j] = k.replaces(best[j].value, v) ? Best<K>{v, r} : best[j];
        }
    } else {
#pragma unroll
        for (u32 j = 0u; j < V; j++) {
            const auto v = k.x0(at + j);
            best[j] = k.replaces(best[j].value, v) ? Best<K>{v, r} : best[j];
        }
    }
}

// V neighbouring columns a thread, `wide` threads side by side, the others of a block below each other.
template <u32 V, class K> DEV void arg_columns(const K& k) {
    __shared__ typename K::Given values[256u * V];
    __shared__ u32 places[256u * V];
    const auto& p = params<ArgColumnsParams>(k);
    const u32 l = threadIdx.x;
    const u32 high = 256u >> p.wide_log2;
    const u32 x = l & (p.wide - 1u);
    const u32 y = l >> p.wide_log2;
    const u32 part = blockIdx.x / p.side % p.parts;
    const u32 outer = blockIdx.x / p.side / p.parts;
    const u32 c = (blockIdx.x % p.side * p.wide + x) * V;
    const u32 from = part * p.part;
    Best<K> best[V];
    if (c < p.inner) {
        const u32 base = outer * p.count * p.inner + c;
#pragma unroll
        for (u32 j = 0u; j < V; j++) {
            best[j] = Best<K>{k.x0(base + from * p.inner + j), from};
        }
        const u32 end = from + ::min(p.part, p.count - from);
#pragma unroll 4
        for (u32 r = from + y; r < end; r += high) {
            consider_columns<V>(k, base + r * p.inner, r, best);
        }
    }
#pragma unroll
    for (u32 j = 0u; j < V; j++) {
        values[l * V + j] = best[j].value;
        places[l * V + j] = best[j].at;
    }
    __syncthreads();
    for (u32 h = high / 2u; h > 0u; h /= 2u) {
        if (y < h && c < p.inner) {
#pragma unroll
            for (u32 j = 0u; j < V; j++) {
                const u32 own = l * V + j;
                const u32 other = (l + h * p.wide) * V + j;
                const auto both = better_of(k, Best<K>{values[own], places[own]}, Best<K>{values[other], places[other]});
                values[own] = both.value;
                places[own] = both.at;
            }
        }
        __syncthreads();
    }
    if (y > 0u || c >= p.inner) {
        return;
    }
#pragma unroll
    for (u32 j = 0u; j < V; j++) {
        const u32 at = outer * p.inner + c + j;
        if (p.parts > 1u) {
            reinterpret_cast<Best<K>*>(k.scratch)[part * p.results + at] = Best<K>{values[l * V + j], places[l * V + j]};
        } else {
            k.emit0(at, i64(places[l * V + j]));
        }
    }
}

template <class K> DEV void arg_columns_of_8(const K& k) { arg_columns<8u>(k); }

template <class K> DEV void arg_columns_of_1(const K& k) { arg_columns<1u>(k); }

// Whole columns, V neighbouring ones a thread.
template <u32 V, class K> DEV void whole_columns(const K& k, u32 t) {
    const auto& p = params<ArgColumnsParams>(k);
    const u32 side = p.inner / V;
    const u32 outer = t / side;
    const u32 c = t % side * V;
    const u32 base = outer * p.count * p.inner + c;
    Best<K> best[V];
#pragma unroll
    for (u32 j = 0u; j < V; j++) {
        best[j] = Best<K>{k.x0(base + j), 0u};
    }
#pragma unroll 4
    for (u32 r = 1u; r < p.count; r++) {
        consider_columns<V>(k, base + r * p.inner, r, best);
    }
    i64 places[V];
#pragma unroll
    for (u32 j = 0u; j < V; j++) {
        places[j] = i64(best[j].at);
    }
    if constexpr (V == 8u) {
        k.emit0_run(outer * p.inner + c, places);
    } else {
        k.emit0(outer * p.inner + c, places[0]);
    }
}

template <class K> DEV void whole_columns_of_8(const K& k, u32 t) { whole_columns<8u>(k, t); }

template <class K> DEV void whole_columns_of_1(const K& k, u32 t) { whole_columns<1u>(k, t); }

// The best one of the parts of a column.
template <class K> DEV void arg_column_parts(const K& k, u32 t) {
    const auto& p = params<ArgColumnsParams>(k);
    const auto* const found = reinterpret_cast<const Best<K>*>(k.scratch) + t;
    Best<K> best = found[0];
    for (u32 i = 1u; i < p.parts; i++) {
        best = better_of(k, best, found[i * p.results]);
    }
    k.emit0(t, i64(best.at));
}
