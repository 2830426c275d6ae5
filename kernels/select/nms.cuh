// Non-maximum suppression: a block a class of a batch entry picks its best candidate again and again, and leaves out those that
// overlap it. Scratch memory has the picks of each class, then their count and the number of those of the classes in front, then a
// bit for each candidate that is out, then the order of the picks of a batch entry BY_SCORE.
#pragma once
#include "../sort/select.cuh"

struct PickParams {
    u32 batch;
    u32 classes;
    u32 boxes;
    u32 most;
    u32 limit;
    u32 words;
    u32 place_bits;
    f32 overlap;
    f32 score;
};

struct Rect {
    vec2<f32> low;
    vec2<f32> high;
};

// Box i of a class.
template <class K> DEV Rect box(const K& k, const PickParams& p, u32 row, u32 i) {
    const u32 entry = row / p.classes * p.boxes + i;
    const u32 at = (K::BOXES_OF_CLASSES ? entry * p.classes + row % p.classes : entry) * 4u;
    const auto a = vec2<f32>(k.x0(at), k.x0(at + 1u));
    const auto b = vec2<f32>(k.x0(at + 2u), k.x0(at + 3u));
    if constexpr (K::CENTER_BOX) {
        return Rect{a - b / 2.0f, a + b / 2.0f};
    } else {
        return Rect{flip(min(a, b)), flip(max(a, b))};
    }
}

// Whether the intersection over union exceeds the limit.
DEV bool overlap(const PickParams& p, Rect r, Rect s) {
    const auto size = min(r.high, s.high) - max(r.low, s.low);
    const f32 a = (r.high.x - r.low.x) * (r.high.y - r.low.y);
    const f32 b = (s.high.x - s.low.x) * (s.high.y - s.low.y);
    if (!(size.x > 0.0f && size.y > 0.0f && a > 0.0f && b > 0.0f)) {
        return false;
    }
    const f32 both = size.x * size.y;
    return both / (a + b - both) > p.overlap;
}

// Keys of scores, the greatest first.
DEV u32 score_key(f32 score) { return ~float_key<32u, 0x7f800000u>(__float_as_uint(score)); }

// The scores of a class that take part.
template <class K> struct Candidates {
    const K& k;
    const PickParams& p;
    u32 row;
    DEV u32 count() const { return p.boxes; }
    DEV f32 score(u32 i) const { return k.x1(row * p.boxes + i); }
    DEV bool has(u32 i) const {
        const f32 s = score(i);
        return !is_nan(s) && (!K::LEAST_SCORE || s > p.score);
    }
    template <u32 T, class Visit> DEV void each(Visit visit) const {
        for (u32 i = threadIdx.x; i < p.boxes; i += T) {
            if (has(i)) {
                visit(score_key(score(i)), i);
            }
        }
    }
};

template <class K> DEV u32* pick_counts(const K& k, const PickParams& p) { return k.scratch + p.batch * p.classes * p.most; }
template <class K> DEV u32* pick_starts(const K& k, const PickParams& p) { return pick_counts(k, p) + p.batch * p.classes; }
template <class K> DEV u32* out_bits(const K& k, const PickParams& p) { return pick_starts(k, p) + p.batch * p.classes; }
template <class K> DEV u32* pick_order(const K& k, const PickParams& p) { return out_bits(k, p) + p.batch * p.classes * p.words; }

// The least of the numbers of a block of T threads.
template <u32 T> DEV u64 least_of_block(u64 own) {
    __shared__ u64 of_warps[T / 32u];
#pragma unroll
    for (u32 d = 16u; d > 0u; d /= 2u) {
        own = ::min(own, __shfl_xor_sync(0xffffffffu, own, d));
    }
    __syncthreads();
    if (threadIdx.x % 32u == 0u) {
        of_warps[threadIdx.x / 32u] = own;
    }
    __syncthreads();
    u64 least = of_warps[0];
#pragma unroll
    for (u32 w = 1u; w < T / 32u; w++) {
        least = ::min(least, of_warps[w]);
    }
    return least;
}

// Thread l has candidates l, l + T, l + 2 T, ..: a bit each of every T-th word.
template <u32 T, class K> DEV void pick_from_class(const K& k) {
    __shared__ u32 takers;
    const auto& p = params<PickParams>(k);
    const u32 row = blockIdx.x;
    const u32 l = threadIdx.x;
    const Candidates<K> all{k, p, row};
    u32* const out = out_bits(k, p) + row * p.words + l;
    Cut<u32> cut;
    if (p.limit < p.boxes) {
        if (l == 0u) {
            takers = 0u;
        }
        __syncthreads();
        all.template each<T>([&](u32, u32) { atomicAdd(&takers, 1u); });
        __syncthreads();
        if (takers > p.limit) {
            cut = find_cut<T>(k, all, p.limit, p.limit, p.place_bits);
        }
    }
    for (u32 w = 0u; w * T < p.words; w++) {
        u32 bits = 0u;
        for (u32 b = 0u; b < 32u; b++) {
            const u32 i = (w * 32u + b) * T + l;
            const bool in = i < p.boxes && all.has(i) && cut.has(score_key(all.score(i)), i);
            bits |= in ? 0u : 1u << b;
        }
        out[w * T] = bits;
    }
    u32 picked = 0u;
    u32 last = 0u;
    Rect last_box{vec2<f32>(0.0f, 0.0f), vec2<f32>(0.0f, 0.0f)};
    while (picked < p.most) {
        u64 best = ~0ull;
        for (u32 w = 0u; w * T < p.words; w++) {
            const u32 before = out[w * T];
            u32 bits = before;
            for (u32 left = ~before; left != 0u; left &= left - 1u) {
                const u32 b = u32(__ffs(i32(left))) - 1u;
                const u32 i = (w * 32u + b) * T + l;
                if (picked > 0u && (i == last || overlap(p, last_box, box(k, p, row, i)))) {
                    bits |= 1u << b;
                } else {
                    best = ::min(best, slot<u64>(score_key(all.score(i)), i));
                }
            }
            if (bits != before) {
                out[w * T] = bits;
            }
        }
        best = least_of_block<T>(best);
        if (best == ~0ull) {
            break;
        }
        last = place_of(best);
        last_box = box(k, p, row, last);
        if (l == 0u) {
            k.scratch[row * p.most + picked] = last;
        }
        picked++;
    }
    if (l == 0u) {
        pick_counts(k, p)[row] = picked;
    }
}

template <class K> DEV void pick_boxes(const K& k) { pick_from_class<1024u>(k); }

template <class K> DEV void pick_few_boxes(const K& k) { pick_from_class<256u>(k); }

// Numbers the picks: those of a class start after those of the classes in front.
template <class K> DEV void count_picks(const K& k) {
    const auto& p = params<PickParams>(k);
    const u32 rows = p.batch * p.classes;
    u32 front = 0u;
    for (u32 first = 0u; first < rows; first += 256u) {
        __shared__ u32 all;
        const u32 row = first + threadIdx.x;
        const u32 own = row < rows ? pick_counts(k, p)[row] : 0u;
        const u32 start = front + sum_in_front<256u>(own);
        if (row < rows) {
            pick_starts(k, p)[row] = start;
        }
        if (threadIdx.x == 255u) {
            all = start + own;
        }
        __syncthreads();
        front = all;
    }
    if (threadIdx.x == 0u) {
        k.sizes[0] = front;
    }
}

// A thread a pick: its rank among those of its batch entry.
template <class K> DEV void order_picks(const K& k, u32 t) {
    const auto& p = params<PickParams>(k);
    const u32 row = t / p.most;
    const u32 n = t % p.most;
    const u32* const counts = pick_counts(k, p);
    if (n >= counts[row]) {
        return;
    }
    const u32 first = row / p.classes * p.classes;
    const auto slot_of_pick = [&](u32 c, u32 i) {
        return slot<u64>(score_key(k.x1(c * p.boxes + k.scratch[c * p.most + i])), (c - first) * p.most + i);
    };
    const u64 own = slot_of_pick(row, n);
    u32 rank = 0u;
    for (u32 c = first; c < first + p.classes; c++) {
        for (u32 i = 0u; i < counts[c]; i++) {
            // Picks of a class fall in their scores.
            if (!before(slot_of_pick(c, i), own)) {
                break;
            }
            rank++;
        }
    }
    pick_order(k, p)[pick_starts(k, p)[first] + rank] = t;
}

// Batch entry, class and box of each pick.
template <class K> DEV i64 nms(const K& k, u32 at) {
    const auto& p = params<PickParams>(k);
    const u32 number = at / 3u;
    u32 row = 0u;
    u32 pick = 0u;
    if constexpr (K::BY_SCORE) {
        pick = pick_order(k, p)[number];
        row = pick / p.most;
    } else {
        // The last class that starts at this pick or before.
        u32 end = p.batch * p.classes;
        const u32* const starts = pick_starts(k, p);
        while (end - row > 1u) {
            const u32 middle = (row + end) / 2u;
            if (starts[middle] > number) {
                end = middle;
            } else {
                row = middle;
            }
        }
        pick = row * p.most + number - starts[row];
    }
    switch (at % 3u) {
        case 0u: return i64(row / p.classes);
        case 1u: return i64(row % p.classes);
        default: return i64(k.scratch[pick]);
    }
}
