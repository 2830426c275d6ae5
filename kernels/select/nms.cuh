// Non-maximum suppression: a thread a class of a batch entry. Scratch memory has the picks of each class, then how many there are
// of each, then where those of each start in the result.
#pragma once
#include "../prelude/launch.cuh"

struct NmsParams {
    u32 batch;
    u32 classes;
    u32 boxes;
    u32 most;
    u32 limit;
    f32 overlap;
    f32 score;
};

struct Rect {
    vec2<f32> low;
    vec2<f32> high;
};

// Box i of a class.
template <class K> DEV Rect box(const K& k, const NmsParams& p, u32 row, u32 i) {
    const u32 entry = row / p.classes * p.boxes + i;
    const u32 at = (K::BOXES_OF_CLASSES ? entry * p.classes + row % p.classes : entry) * 4u;
    const auto a = vec2<f32>(k.x0(at), k.x0(at + 1u));
    const auto b = vec2<f32>(k.x0(at + 2u), k.x0(at + 3u));
    if constexpr (K::CENTER_BOX) {
        return Rect(a - b / 2.0f, a + b / 2.0f);
    } else {
        return Rect(flip(min(a, b)), flip(max(a, b)));
    }
}

// Whether the intersection over union exceeds the limit.
DEV bool overlap(const NmsParams& p, Rect r, Rect s) {
    const auto size = min(r.high, s.high) - max(r.low, s.low);
    const f32 a = (r.high.x - r.low.x) * (r.high.y - r.low.y);
    const f32 b = (s.high.x - s.low.x) * (s.high.y - s.low.y);
    if (!(size.x > 0.0f && size.y > 0.0f && a > 0.0f && b > 0.0f)) {
        return false;
    }
    const f32 both = size.x * size.y;
    return both / (a + b - both) > p.overlap;
}

template <class K> DEV void pick_boxes(const K& k, u32 t) {
    const auto& p = params<NmsParams>(k);
    const u32 n = p.boxes;
    const u32 most = p.most;
    u32 picked = 0u;
    f32 score = 0.0f;
    u32 last = 0u;
    for (u32 taken = 0u; taken < p.limit && picked < most; taken++) {
        // The next candidate in the order of scores, then of numbers.
        u32 best = n;
        f32 best_score = 0.0f;
        for (u32 i = 0u; i < n; i++) {
            const f32 s = k.x1(t * n + i);
            const bool later = taken == 0u || s < score || (s == score && i > last);
            if (!is_nan(s) && (!K::LEAST_SCORE || s > p.score) && later && (best == n || s > best_score)) {
                best = i;
                best_score = s;
            }
        }
        if (best == n) {
            break;
        }
        score = best_score;
        last = best;
        const auto r = box(k, p, t, best);
        bool free = true;
        for (u32 j = 0u; j < picked; j++) {
            free = free && !overlap(p, box(k, p, t, k.scratch[t * most + j]), r);
        }
        if (free) {
            k.scratch[t * most + picked] = best;
            picked++;
        }
    }
    k.scratch[p.batch * p.classes * most + t] = picked;
}

// Where the picks of each class start, by one thread.
template <class K> DEV void count_picks(const K& k, u32) {
    const auto& p = params<NmsParams>(k);
    const u32 classes = p.batch * p.classes;
    const u32 counts = classes * p.most;
    u32 total = 0u;
    for (u32 c = 0u; c < classes; c++) {
        k.scratch[counts + classes + c] = total;
        total += k.scratch[counts + c];
    }
    k.sizes[0] = total;
}

// Batch entry, class and box of each pick.
template <class K> DEV i64 nms(const K& k, u32 at) {
    const auto& p = params<NmsParams>(k);
    const u32 classes = p.batch * p.classes;
    const u32 starts = classes * p.most + classes;
    const u32 row = at / 3u;
    u32 c = classes - 1u;
    while (c > 0u && k.scratch[starts + c] > row) {
        c--;
    }
    switch (at % 3u) {
        case 0u: return i64(i32(c / p.classes));
        case 1u: return i64(i32(c % p.classes));
        default: return i64(i32(k.scratch[c * p.most + row - k.scratch[starts + c]]));
    }
}
