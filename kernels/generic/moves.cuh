// Elements taken from elsewhere. REG is the type in registers, IDX that of indices, GAP what stands where nothing is, AT that
// of positions in x, PLACE its signed form.

// ---- wrap
// An index counted from the end if negative; -1 if out of range.
DEV PLACE wrap(IDX v, u32 n) const {
    auto k = v;
    if (k < IDX(0)) {
        k = k + IDX(n);
    }
    if (k < IDX(0) || k >= IDX(n)) {
        return -1;
    }
    return PLACE(k);
}

// ---- scatter_copy
DEV REG compute0(u32 at) const {
    return x0(at);
}

// ---- scatter_elements
// One thread a line along the axis. Words: rank, axis + 1, size of the axis in x, its size in the indices, their
// dimensions with 1 for the axis, their strides, strides of x.
THREADS scatter {
    const auto rank = m(0u);
    auto rest = t;
    u32 from_index = 0u;
    u32 to = 0u;
    for (auto d = rank; d > 0u; d--) {
        const auto n = m(3u + d);
        const auto c = rest % n;
        rest = rest / n;
        from_index += c * m(3u + rank + d);
        to += c * m(3u + rank * 2u + d);
    }
    const auto step = m(3u + rank + m(1u));
    const auto stride = m(3u + rank * 2u + m(1u));
    for (u32 k = 0u; k < m(3u); k++) {
        const auto src = from_index + k * step;
        const auto i = wrap(x1(src), m(2u));
        if (i >= 0) {
            const auto dst = to + u32(i) * stride;
            const auto old = ry0(dst);
            const auto new_value = x2(src);
            emit0(dst, COMBINE);
        }
    }
}

// ---- scatter_nd
// One thread an element of a slice. Words: tuples, length of a tuple, elements of a slice, sizes, strides.
THREADS scatter {
    const auto depth = m(1u);
    for (u32 k = 0u; k < m(0u); k++) {
        auto dst = t;
        bool inside = true;
        for (u32 d = 0u; d < depth; d++) {
            const auto i = wrap(x1(k * depth + d), m(3u + d));
            inside = inside && i >= 0;
            dst += u32(max(i, 0)) * m(3u + depth + d);
        }
        if (inside) {
            const auto old = ry0(dst);
            const auto new_value = x2(k * m(2u) + t);
            emit0(dst, COMBINE);
        }
    }
}

