// Operators whose output sizes depend on data: positions are counted and listed in scratch memory, the host reads the
// size, then a map writes the result.

// ---- starts
__shared__ u32 starts[1024];

// ---- list
// Lists the positions where `keep` holds. One workgroup; thread l looks at the l-th part. Words: how many.
GROUPS list 1024 {
    const auto n = m(0u);
    const auto part = (n + LANES - 1u) / LANES;
    const auto first = min(l * part, n);
    const auto last = min(first + part, n);
    u32 found = 0u;
    for (auto i = first; i < last; i++) {
        if (keep(i)) {
            found++;
        }
    }
    starts[l] = found;
    __syncthreads();
    u32 at = 0u;
    u32 total = 0u;
    for (u32 k = 0u; k < LANES; k++) {
        if (k == l) {
            at = total;
        }
        total += starts[k];
    }
    for (auto i = first; i < last; i++) {
        if (keep(i)) {
            scratch[at] = i;
            at++;
        }
    }
    if (l == 0u) {
        sizes[0] = total;
    }
}

// ---- nonzero
// Words: columns of the result, rank, strides, dimensions.
DEV i64 compute0(u32 at) const {
    const auto d = at / m(0u);
    const auto i = scratch[at % m(0u)];
    return i64(i32(i / m(2u + d) % m(2u + m(1u) + d)));
}

// ---- compress
// Words: elements after the axis, size of the axis in the result and in x.
DEV REG compute0(u32 at) const {
    const auto inner = m(0u);
    const auto kept = at / inner % m(1u);
    return x0((at / inner / m(1u) * m(2u) + scratch[kept]) * inner + at % inner);
}

// ---- unique
// Scratch: first occurrence of each different slice, number of each slice, order, rank; n words each. Words: slices,
// elements after the axis, slices of the outer dimensions.
DEV u32 element_at(u32 slice, u32 k) const {
    return (k / m(1u) * m(0u) + slice) * m(1u) + k % m(1u);
}

DEV bool equal_slices(u32 a, u32 b) const {
    for (u32 k = 0u; k < m(1u) * m(2u); k++) {
        if (!same(x0(element_at(a, k)), x0(element_at(b, k)))) {
            return false;
        }
    }
    return true;
}

DEV bool slice_before(u32 a, u32 b) const {
    for (u32 k = 0u; k < m(1u) * m(2u); k++) {
        const auto u = x0(element_at(a, k));
        const auto v = x0(element_at(b, k));
        if (before(u, v)) {
            return true;
        }
        if (before(v, u)) {
            return false;
        }
    }
    return false;
}

THREADS distinct {
    const auto n = m(0u);
    u32 found = 0u;
    for (u32 i = 0u; i < n; i++) {
        u32 k = 0u;
        while (k < found && !equal_slices(scratch[k], i)) {
            k++;
        }
        if (k == found) {
            scratch[k] = i;
            found++;
        }
        scratch[n + i] = k;
    }
    for (u32 i = 0u; i < found; i++) {
        auto k = i;
        SORT
        scratch[n * 2u + k] = i;
    }
    for (u32 r = 0u; r < found; r++) {
        scratch[n * 3u + scratch[n * 2u + r]] = r;
    }
    sizes[0] = found;
}

// ---- sort
        while (k > 0u && slice_before(scratch[i], scratch[scratch[n * 2u + k - 1u]])) {
            scratch[n * 2u + k] = scratch[n * 2u + k - 1u];
            k--;
        }

// ---- unique_maps
DEV REG compute0(u32 at) const {
    const auto n = m(0u);
    const auto count = m(3u);
    const auto r = at / m(1u) % count;
    const auto slice = scratch[scratch[n * 2u + r]];
    return x0((at / m(1u) / count * n + slice) * m(1u) + at % m(1u));
}

DEV i64 compute1(u32 at) const {
    return i64(i32(scratch[scratch[m(0u) * 2u + at]]));
}

DEV i64 compute2(u32 at) const {
    return i64(i32(scratch[m(0u) * 3u + scratch[m(0u) + at]]));
}

DEV i64 compute3(u32 at) const {
    const auto n = m(0u);
    const auto k = scratch[n * 2u + at];
    i32 count = 0;
    for (u32 i = 0u; i < n; i++) {
        count += select(0, 1, scratch[n + i] == k);
    }
    return i64(count);
}

// ---- nms
// Words: 0 batch, 1 classes, 2 boxes, 3 most picks of a class, 4 limit of candidates, 5 threshold of overlap, 6 that of
// scores. Scratch: picks of each class of each batch entry, counts, starts.
struct Rect {
    vec2<f32> low;
    vec2<f32> high;
};

DEV Rect rect(u32 at) const {
    const auto a = vec2<f32>(x0(at), x0(at + 1u));
    const auto b = vec2<f32>(x0(at + 2u), x0(at + 3u));
    CORNERS
}

DEV bool overlap(Rect p, Rect q) const {
    const auto size = min(p.high, q.high) - max(p.low, q.low);
    const auto a = (p.high.x - p.low.x) * (p.high.y - p.low.y);
    const auto b = (q.high.x - q.low.x) * (q.high.y - q.low.y);
    if (!(size.x > 0.0f && size.y > 0.0f && a > 0.0f && b > 0.0f)) {
        return false;
    }
    const auto both = size.x * size.y;
    return both / (a + b - both) > mf(5u);
}

THREADS pick {
    const auto n = m(2u);
    const auto most = m(3u);
    u32 picked = 0u;
    f32 score = 0.0f;
    u32 last = 0u;
    for (u32 taken = 0u; taken < m(4u) && picked < most; taken++) {
        // The next candidate in the order of scores, then of numbers.
        auto best = n;
        f32 best_score = 0.0f;
        for (u32 i = 0u; i < n; i++) {
            const auto s = x1(t * n + i);
            const auto later = taken == 0u || s < score || (s == score && i > last);
            if (!is_nan(s) && SCORE && later && (best == n || s > best_score)) {
                best = i;
                best_score = s;
            }
        }
        if (best == n) {
            break;
        }
        score = best_score;
        last = best;
        const auto r = rect(BOX);
        bool free = true;
        for (u32 k = 0u; k < picked; k++) {
            const auto other = scratch[t * most + k];
            free = free && !overlap(rect(OTHER), r);
        }
        if (free) {
            scratch[t * most + picked] = best;
            picked++;
        }
    }
    scratch[m(0u) * m(1u) * most + t] = picked;
}

THREADS count {
    const auto classes = m(0u) * m(1u);
    const auto counts = classes * m(3u);
    u32 total = 0u;
    for (u32 k = 0u; k < classes; k++) {
        scratch[counts + classes + k] = total;
        total += scratch[counts + k];
    }
    sizes[0] = total;
}

DEV i64 compute0(u32 at) const {
    const auto classes = m(0u) * m(1u);
    const auto begins = classes * m(3u) + classes;
    const auto row = at / 3u;
    auto k = classes - 1u;
    while (k > 0u && scratch[begins + k] > row) {
        k--;
    }
    switch (at % 3u) {
        case 0u: { return i64(i32(k / m(1u))); }
        case 1u: { return i64(i32(k % m(1u))); }
        default: { return i64(i32(scratch[k * m(3u) + row - scratch[begins + k]])); }
    }
}

// ---- assertion
// Words: how many. Tells how many are false.
GROUPS list 1024 {
    const auto n = m(0u);
    u32 found = 0u;
    for (auto i = l; i < n; i += LANES) {
        if (!x0(i)) {
            found++;
        }
    }
    starts[l] = found;
    __syncthreads();
    if (l == 0u) {
        u32 total = 0u;
        for (u32 k = 0u; k < LANES; k++) {
            total += starts[k];
        }
        sizes[0] = total;
    }
}
