// Operators on rows: lines along one axis. A row's elements are `inner` apart.

// ---- tree
// Sums and maxima over the threads of a block, known to all of them.
__shared__ f32 of_warps[32];

DEV f32 tree_sum(u32 l, f32 v) const {
    for (u32 s = 16u; s > 0u; s /= 2u) {
        v += __shfl_xor_sync(0xffffffffu, v, s);
    }
    if (l % 32u == 0u) {
        of_warps[l / 32u] = v;
    }
    __syncthreads();
    f32 all = 0.0f;
    for (u32 w = 0u; w < LANES / 32u; w++) {
        all += of_warps[w];
    }
    __syncthreads();
    return all;
}

DEV f32 tree_max(u32 l, f32 v) const {
    for (u32 s = 16u; s > 0u; s /= 2u) {
        v = kmax(v, __shfl_xor_sync(0xffffffffu, v, s));
    }
    if (l % 32u == 0u) {
        of_warps[l / 32u] = v;
    }
    __syncthreads();
    f32 all = of_warps[0];
    for (u32 w = 1u; w < LANES / 32u; w++) {
        all = kmax(all, of_warps[w]);
    }
    __syncthreads();
    return all;
}

// ---- softmax
// Words: elements of a row, inner.
GROUPS rows 256 {
    const auto n = m(0u);
    const auto inner = m(1u);
    const auto base = group / inner * n * inner + group % inner;
    f32 top = cf(0xff800000u);
    for (auto i = l; i < n; i += LANES) {
        top = kmax(top, x0(base + i * inner));
    }
    top = tree_max(l, top);
    f32 sum = 0.0f;
    for (auto i = l; i < n; i += LANES) {
        sum += kexp(x0(base + i * inner) - top);
    }
    sum = tree_sum(l, sum);
    for (auto i = l; i < n; i += LANES) {
        const auto at = base + i * inner;
        emit0(at, RESULT);
    }
}

// ---- hardmax
// Words: elements of a row, inner.
THREADS rows {
    const auto n = m(0u);
    const auto inner = m(1u);
    const auto base = t / inner * n * inner + t % inner;
    u32 best = 0u;
    for (u32 i = 1u; i < n; i++) {
        const auto b = x0(base + best * inner);
        const auto x = x0(base + i * inner);
        if (!is_nan(b) && (is_nan(x) || x > b)) {
            best = i;
        }
    }
    for (u32 i = 0u; i < n; i++) {
        emit0(base + i * inner, select(0.0f, 1.0f, i == best));
    }
}

// ---- lp_norm
// Words: elements of a row, inner.
GROUPS rows 256 {
    const auto n = m(0u);
    const auto inner = m(1u);
    const auto base = group / inner * n * inner + group % inner;
    f32 sum = 0.0f;
    for (auto i = l; i < n; i += LANES) {
        const auto v = x0(base + i * inner);
        sum += TERM;
    }
    const auto norm = NORM(tree_sum(l, sum));
    for (auto i = l; i < n; i += LANES) {
        emit0(base + i * inner, norm == 0.0f ? 0.0f : x0(base + i * inner) / norm);
    }
}

// ---- spread
// Words from `from_word` on: rank, dimensions, strides of scale, strides of bias.
DEV u32 spread(u32 from_word, u32 which, u32 index) const {
    const auto rank = m(from_word);
    auto rest = index;
    u32 at = 0u;
    for (auto d = rank; d > 0u; d--) {
        const auto n = m(from_word + d);
        at += (rest % n) * m(from_word + rank * which + d);
        rest = rest / n;
    }
    return at;
}

// ---- layer_norm
// Words: elements of a row, epsilon, then those of `spread`.
GROUPS rows 256 {
    const auto n = m(0u);
    const auto base = group * n;
    f32 sum = 0.0f;
    for (auto i = l; i < n; i += LANES) {
        sum += x0(base + i);
    }
    const auto mean = tree_sum(l, sum) / f32(n);
    f32 squares = 0.0f;
    for (auto i = l; i < n; i += LANES) {
        const auto d = x0(base + i) - mean;
        squares += d * d;
    }
    const auto inverse = 1.0f / sqrt(tree_sum(l, squares) / f32(n) + mf(1u));
    for (auto i = l; i < n; i += LANES) {
        const auto at = base + i;
        auto y = (x0(at) - mean) * inverse;
        AFFINE
        emit0(at, y);
    }
    STATISTICS
}

// ---- rms_norm
// Words: elements of a row, epsilon, then those of `spread`.
GROUPS rows 256 {
    const auto n = m(0u);
    const auto base = group * n;
    f32 sum = 0.0f;
    for (auto i = l; i < n; i += LANES) {
        const auto v = x0(base + i);
        sum += v * v;
    }
    const auto norm = sqrt(tree_sum(l, sum) / f32(n) + mf(1u));
    for (auto i = l; i < n; i += LANES) {
        const auto at = base + i;
        auto y = x0(at) / norm;
        AFFINE
        emit0(at, y);
    }
}

// ---- group_linear
// Element i of a group, and the channel of an element.
DEV u32 element(u32 group, u32 i) const {
    return group * m(0u) + i;
}

DEV u32 channel(u32 at) const {
    return (at / m(2u)) % m(3u);
}

// ---- group_channels_last
DEV u32 element(u32 group, u32 i) const {
    const auto width = m(0u) / m(2u);
    const auto groups = m(3u) / width;
    return (group / groups * m(2u) + i / width) * m(3u) + group % groups * width + i % width;
}

DEV u32 channel(u32 at) const {
    return at % m(3u);
}

// ---- group_norm
// The places are those of `group_linear` or `group_channels_last`.
// Words: elements of a group, epsilon, elements of a channel, channels.
GROUPS rows 256 {
    const auto n = m(0u);
    f32 sum = 0.0f;
    for (auto i = l; i < n; i += LANES) {
        sum += x0(element(group, i));
    }
    const auto mean = tree_sum(l, sum) / f32(n);
    f32 squares = 0.0f;
    for (auto i = l; i < n; i += LANES) {
        const auto d = x0(element(group, i)) - mean;
        squares += d * d;
    }
    const auto norm = sqrt(tree_sum(l, squares) / f32(n) + mf(1u));
    for (auto i = l; i < n; i += LANES) {
        const auto at = element(group, i);
        const auto c = channel(at);
        emit0(at, (x0(at) - mean) / norm * x1(c) + x2(c));
    }
}

// ---- topk
// One thread an element: its rank in its row. Words: elements of a row, inner, k.
THREADS rows {
    const auto n = m(0u);
    const auto inner = m(1u);
    const auto i = (t / inner) % n;
    const auto outer = t / inner / n;
    const auto base = outer * n * inner + t % inner;
    const auto v = x0(t);
    u32 rank = 0u;
    for (u32 j = 0u; j < n; j++) {
        const auto u = x0(base + j * inner);
        if (before(u, v) || (j < i && !before(v, u))) {
            rank++;
        }
    }
    if (rank < m(2u)) {
        const auto to = (outer * m(2u) + rank) * inner + t % inner;
        emit0(to, v);
        emit1(to, i64(i32(i)));
    }
}

// ---- ragged_softmax
// Words: elements of a row.
GROUPS rows 256 {
    const auto n = m(0u);
    const auto base = group * n;
    const auto bound = u32(clamp(i32(clamp(x1(group), LOW, HIGH)), 0, i32(n)));
    f32 top = cf(0xff800000u);
    for (auto i = l; i < bound; i += LANES) {
        top = kmax(top, x0(base + i));
    }
    top = tree_max(l, top);
    f32 sum = 0.0f;
    for (auto i = l; i < bound; i += LANES) {
        sum += kexp(x0(base + i) - top);
    }
    sum = tree_sum(l, sum);
    for (auto i = l; i < n; i += LANES) {
        emit0(base + i, select(0.0f, kexp(x0(base + i) - top) / sum, i < bound));
    }
}

// ---- det
// Words: rows.
THREADS determinants {
    const auto n = m(0u);
    const auto base = t * n * n;
    for (u32 i = 0u; i < n * n; i++) {
        scratch[base + i] = bitcast<u32>(x0(base + i));
    }
    f32 det = 1.0f;
    for (u32 k = 0u; k < n; k++) {
        auto pivot = k;
        for (auto i = k + 1u; i < n; i++) {
            if (abs(bitcast<f32>(scratch[base + i * n + k])) > abs(bitcast<f32>(scratch[base + pivot * n + k]))) {
                pivot = i;
            }
        }
        if (pivot != k) {
            for (u32 j = 0u; j < n; j++) {
                const auto v = scratch[base + k * n + j];
                scratch[base + k * n + j] = scratch[base + pivot * n + j];
                scratch[base + pivot * n + j] = v;
            }
            det = -det;
        }
        const auto p = bitcast<f32>(scratch[base + k * n + k]);
        det = det * p;
        if (p == 0.0f) {
            continue;
        }
        for (auto i = k + 1u; i < n; i++) {
            const auto f = bitcast<f32>(scratch[base + i * n + k]) / p;
            for (auto j = k; j < n; j++) {
                const auto v = bitcast<f32>(scratch[base + i * n + j]) - f * bitcast<f32>(scratch[base + k * n + j]);
                scratch[base + i * n + j] = bitcast<u32>(v);
            }
        }
    }
    emit0(t, det);
}
