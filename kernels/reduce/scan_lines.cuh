// Running sums and products of lines along an axis, several threads a line. Hooks: `step(sum, x)` adds an element, or the sum of
// later elements; START is the sum of nothing. With REVERSE lines are numbered from their ends. Every sum is made in an order that
// sizes alone decide.
#pragma once
#include "../prelude/launch.cuh"
#include "../prelude/storage.cuh"

struct ScanRowsParams {
    u32 count;
    u32 rows;
    u32 parts;
    u32 part;
};

struct ScanColumnsParams {
    u32 count;
    u32 inner;
    u32 wide;
    u32 wide_log2;
    u32 parts;
    u32 part;
    u32 side;
    u32 results;
    u32 given;
};

// The sum of the threads in front of this one, of T threads that are a warp or a block; `all` is the sum of all.
template <u32 T, class K> DEV typename K::Value sum_in_front(const K& k, typename K::Value own, typename K::Value& all) {
    typedef typename K::Value Value;
    const u32 lane = threadIdx.x % 32u;
    Value sum = own;
#pragma unroll
    for (u32 d = 1u; d < 32u; d *= 2u) {
        const Value other = __shfl_up_sync(0xffffffffu, sum, d);
        sum = lane >= d ? k.step(other, sum) : sum;
    }
    const Value left = __shfl_up_sync(0xffffffffu, sum, 1u);
    Value front = lane == 0u ? K::START : left;
    if constexpr (T == 32u) {
        all = __shfl_sync(0xffffffffu, sum, 31u);
    } else {
        __shared__ Value of_warps[T / 32u];
        __syncthreads();
        if (lane == 31u) {
            of_warps[threadIdx.x / 32u] = sum;
        }
        __syncthreads();
        Value warps = K::START;
        all = K::START;
        for (u32 w = 0u; w < T / 32u; w++) {
            warps = w == threadIdx.x / 32u ? all : warps;
            all = k.step(all, of_warps[w]);
        }
        front = k.step(warps, front);
    }
    return front;
}

// Elements first..first + 8 of a row, those from `end` on replaced by START.
template <class K> DEV void load_eight(const K& k, u32 base, u32 first, u32 end, typename K::Value (&v)[8]) {
    const u32 count = params<ScanRowsParams>(k).count;
    if (K::VECTORS && first < end && end - first >= 8u) {
        const auto run = Run<typename K::Cell>::of(k.bx0 + base + (K::REVERSE ? count - 8u - first : first), 1u);
#pragma unroll
        for (u32 e = 0u; e < 8u; e++) {
            v[e] = k.decoded(run.v[K::REVERSE ? 7u - e : e]);
        }
        return;
    }
#pragma unroll
    for (u32 e = 0u; e < 8u; e++) {
        const bool inside = first < end && e < end - first;
        v[e] = inside ? k.x0(base + (K::REVERSE ? count - 1u - first - e : first + e)) : K::START;
    }
}

template <class K> DEV void store_eight(const K& k, u32 base, u32 first, u32 end, const typename K::Value (&v)[8]) {
    const u32 count = params<ScanRowsParams>(k).count;
    if (first >= end) {
        return;
    }
    if (count % 8u == 0u && end - first >= 8u && first % 8u == 0u) {
        typename K::Value all[8];
#pragma unroll
        for (u32 e = 0u; e < 8u; e++) {
            all[e] = v[K::REVERSE ? 7u - e : e];
        }
        k.emit0_run(base + (K::REVERSE ? count - 8u - first : first), all);
        return;
    }
#pragma unroll
    for (u32 e = 0u; e < 8u; e++) {
        if (e < end - first) {
            k.emit0(base + (K::REVERSE ? count - 1u - first - e : first + e), v[e]);
        }
    }
}

// Scans elements from..end of a row by T threads; `sum` is that of the elements in front.
template <u32 T, class K> DEV void scan_range(const K& k, u32 base, u32 from, u32 end, typename K::Value sum) {
    typedef typename K::Value Value;
    const u32 t = threadIdx.x % T;
    for (u32 first = from; ; first += T * 8u) {
        Value v[8];
        load_eight(k, base, first + t * 8u, end, v);
        Value own = K::START;
#pragma unroll
        for (u32 e = 0u; e < 8u; e++) {
            own = k.step(own, v[e]);
        }
        Value all;
        Value s = k.step(sum, sum_in_front<T>(k, own, all));
#pragma unroll
        for (u32 e = 0u; e < 8u; e++) {
            const Value next = k.step(s, v[e]);
            v[e] = K::EXCLUSIVE ? s : next;
            s = next;
        }
        store_eight(k, base, first + t * 8u, end, v);
        sum = k.step(sum, all);
        if (end - first <= T * 8u) {
            return;
        }
    }
}

// A warp a row.
template <class K> DEV void scan_warps(const K& k) {
    const auto& p = params<ScanRowsParams>(k);
    const u32 row = blockIdx.x * 8u + threadIdx.x / 32u;
    if (row < p.rows) {
        scan_range<32u>(k, row * p.count, 0u, p.count, K::START);
    }
}

// The sum of a part of a row, by a block.
template <class K> DEV void sum_part(const K& k) {
    typedef typename K::Value Value;
    const auto& p = params<ScanRowsParams>(k);
    const u32 from = blockIdx.x % p.parts * p.part;
    const u32 end = from + ::min(p.part, p.count - from);
    Value own = K::START;
    for (u32 first = from; ; first += 2048u) {
        Value v[8];
        load_eight(k, blockIdx.x / p.parts * p.count, first + threadIdx.x * 8u, end, v);
#pragma unroll
        for (u32 e = 0u; e < 8u; e++) {
            own = k.step(own, v[e]);
        }
        if (end - first <= 2048u) {
            break;
        }
    }
    Value all;
    sum_in_front<256u>(k, own, all);
    if (threadIdx.x == 0u) {
        reinterpret_cast<Value*>(k.scratch)[blockIdx.x] = all;
    }
}

// A block a part of a row.
template <class K> DEV void scan_part(const K& k) {
    typedef typename K::Value Value;
    const auto& p = params<ScanRowsParams>(k);
    const u32 row = blockIdx.x / p.parts;
    const u32 part = blockIdx.x % p.parts;
    Value sum = K::START;
    if (part > 0u) {
        const Value* const sums = reinterpret_cast<const Value*>(k.scratch) + row * p.parts;
        Value own = K::START;
        for (u32 i = threadIdx.x; i < part; i += 256u) {
            own = k.step(own, sums[i]);
        }
        sum_in_front<256u>(k, own, sum);
    }
    const u32 from = part * p.part;
    scan_range<256u>(k, row * p.count, from, from + ::min(p.part, p.count - from), sum);
}

// V neighbouring elements of line number i of the lines that go on at `base`.
template <u32 V, class K> DEV void load_columns(const K& k, u32 base, u32 i, typename K::Value (&v)[V]) {
    const auto& p = params<ScanColumnsParams>(k);
    const u32 at = base + (K::REVERSE ? p.count - 1u - i : i) * p.inner;
    if constexpr (V == 8u && K::VECTORS) {
        const auto run = Run<typename K::Cell>::of(k.bx0 + at, 1u);
#pragma unroll
        for (u32 j = 0u; j < V; j++) {
            v[j] = k.decoded(run.v[j]);
        }
    } else {
#pragma unroll
        for (u32 j = 0u; j < V; j++) {
            v[j] = k.x0(at + j);
        }
    }
}

// A part of V neighbouring columns a thread and those below it: each has a share, whose sum the ones after it need. TOTAL: the sum of
// the part alone is stored.
template <u32 V, bool TOTAL, class K> DEV void columns_part(const K& k) {
    typedef typename K::Value Value;
    __shared__ Value sums[256u * V];
    const auto& p = params<ScanColumnsParams>(k);
    const u32 l = threadIdx.x;
    const u32 high = 256u >> p.wide_log2;
    const u32 x = l & (p.wide - 1u);
    const u32 y = l >> p.wide_log2;
    const u32 part = blockIdx.x / p.side % p.parts;
    const u32 outer = blockIdx.x / p.side / p.parts;
    const u32 c = (blockIdx.x % p.side * p.wide + x) * V;
    const u32 base = outer * p.count * p.inner + c;
    const u32 size = ::min(p.part, p.count - part * p.part);
    const u32 share = (size + high - 1u) / high;
    const u32 from = part * p.part + ::min(size, y * share);
    const u32 end = part * p.part + ::min(size, (y + 1u) * share);
    Value own[V];
#pragma unroll
    for (u32 j = 0u; j < V; j++) {
        own[j] = K::START;
    }
    if (c < p.inner) {
#pragma unroll 4
        for (u32 i = from; i < end; i++) {
            Value v[V];
            load_columns<V>(k, base, i, v);
#pragma unroll
            for (u32 j = 0u; j < V; j++) {
                own[j] = k.step(own[j], v[j]);
            }
        }
    }
#pragma unroll
    for (u32 j = 0u; j < V; j++) {
        sums[l * V + j] = own[j];
    }
    __syncthreads();
    if (c >= p.inner) {
        return;
    }
    Value* const totals = reinterpret_cast<Value*>(k.scratch) + part * p.results + outer * p.inner + c;
    if constexpr (TOTAL) {
        if (y == 0u) {
#pragma unroll
            for (u32 j = 0u; j < V; j++) {
                Value all = K::START;
                for (u32 h = 0u; h < high; h++) {
                    all = k.step(all, sums[(h * p.wide + x) * V + j]);
                }
                totals[j] = all;
            }
        }
        return;
    } else {
#pragma unroll
        for (u32 j = 0u; j < V; j++) {
            own[j] = p.given == 1u ? totals[j] : K::START;
            for (u32 h = 0u; h < y; h++) {
                own[j] = k.step(own[j], sums[(h * p.wide + x) * V + j]);
            }
        }
#pragma unroll 4
        for (u32 i = from; i < end; i++) {
            Value v[V];
            load_columns<V>(k, base, i, v);
#pragma unroll
            for (u32 j = 0u; j < V; j++) {
                const Value next = k.step(own[j], v[j]);
                v[j] = K::EXCLUSIVE ? own[j] : next;
                own[j] = next;
            }
            const u32 at = base + (K::REVERSE ? p.count - 1u - i : i) * p.inner;
            if constexpr (V == 8u) {
                k.emit0_run(at, v);
            } else {
                k.emit0(at, v[0]);
            }
        }
    }
}

template <class K> DEV void sum_columns_of_8(const K& k) { columns_part<8u, true>(k); }

template <class K> DEV void sum_columns_of_1(const K& k) { columns_part<1u, true>(k); }

template <class K> DEV void scan_columns_of_8(const K& k) { columns_part<8u, false>(k); }

template <class K> DEV void scan_columns_of_1(const K& k) { columns_part<1u, false>(k); }

// In the place of the sum of each part of column t that of the parts in front of it.
template <class K> DEV void scan_totals(const K& k, u32 t) {
    typedef typename K::Value Value;
    const auto& p = params<ScanColumnsParams>(k);
    Value* const totals = reinterpret_cast<Value*>(k.scratch) + t;
    Value sum = K::START;
    for (u32 i = 0u; i < p.parts; i++) {
        const Value own = totals[i * p.results];
        totals[i * p.results] = sum;
        sum = k.step(sum, own);
    }
}
