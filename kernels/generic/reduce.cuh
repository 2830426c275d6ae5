// Reductions. Words: number of kept dimensions, these, their strides; the same for the reduced ones; how many
// elements one result has. ACC is the type of the sum.

DEV u32 outer_offset(u32 at) const {
    const auto rank = m(0u);
    auto rest = at;
    u32 src = 0u;
    for (auto d = rank; d > 0u; d--) {
        const auto n = m(d);
        src += (rest % n) * m(rank + d);
        rest = rest / n;
    }
    return src;
}

DEV u32 inner_offset(u32 at) const {
    const auto base = 1u + m(0u) * 2u;
    const auto rank = m(base);
    auto rest = at;
    u32 src = 0u;
    for (auto d = rank; d > 0u; d--) {
        const auto n = m(base + d);
        src += (rest % n) * m(base + rank + d);
        rest = rest / n;
    }
    return src;
}

DEV u32 reduced_count() const {
    const auto base = 1u + m(0u) * 2u;
    return m(base + 1u + m(base) * 2u);
}

// ---- serial
DEV REG compute0(u32 at) const {
    const auto base = outer_offset(at);
    const auto n = reduced_count();
    f32 top = 0.0f;
    SHIFT
    ACC acc = START;
    for (u32 k = 0u; k < n; k++) {
        const auto v = ACC(x0(base + inner_offset(k)));
        acc = STEP;
    }
    return LAST;
}

// ---- shift
    top = cf(0xff800000u);
    for (u32 k = 0u; k < n; k++) {
        top = kmax(top, f32(x0(base + inner_offset(k))));
    }
    if (is_nan(top) || is_inf(top)) {
        return INFINITE;
    }

// ---- group
__shared__ ACC partial[256];

GROUPS rows 256 {
    const auto base = outer_offset(group);
    const auto n = reduced_count();
    const auto top = 0.0f;
    ACC acc = START;
    for (auto k = l; k < n; k += LANES) {
        const auto v = ACC(x0(base + inner_offset(k)));
        acc = STEP;
    }
    partial[l] = acc;
    __syncthreads();
    for (u32 s = LANES / 2u; s > 0u; s = s / 2u) {
        if (l < s) {
            acc = partial[l];
            const auto v = partial[l + s];
            partial[l] = MERGE;
        }
        __syncthreads();
    }
    if (l == 0u) {
        acc = partial[0];
        emit0(group, LAST);
    }
}
