// Elements taken from elsewhere. REG is the type in registers, IDX that of indices, GAP what stands where nothing is, AT that
// of positions in x, PLACE its signed form.

// ---- affine
// Words: offset, rank, dimensions, strides.
DEV REG compute0(u32 at) const {
    const auto rank = m(1u);
    auto rest = at;
    auto src = m(0u);
    for (auto d = rank; d > 0u; d--) {
        const auto n = m(1u + d);
        src += (rest % n) * m(1u + rank + d);
        rest = rest / n;
    }
    return x0(src);
}

// ---- framed
// Words: rank, dimensions of the result, dimensions of x, strides of x, position of x in the result.
DEV REG compute0(u32 at) const {
    const auto rank = m(0u);
    auto rest = at;
    u32 src = 0u;
    for (auto d = rank; d > 0u; d--) {
        const auto n = m(d);
        const auto k = MODE(i32(rest % n) - mi(rank * 3u + d), mi(rank + d));
        rest = rest / n;
        if (k < 0) {
            return GAP;
        }
        src += u32(k) * m(rank * 2u + d);
    }
    return x0(src);
}

// ---- modes
DEV i32 at_constant(i32 i, i32 n) const {
    return select(i, -1, i < 0 || i >= n);
}

DEV i32 at_edge(i32 i, i32 n) const {
    return clamp(i, 0, n - 1);
}

DEV i32 at_wrap(i32 i, i32 n) const {
    if (n <= 0) {
        return -1;
    }
    return ((i % n) + n) % n;
}

DEV i32 at_reflect(i32 i, i32 n) const {
    if (n <= 0) {
        return -1;
    }
    const auto period = 2 * max(n - 1, 1);
    const auto k = ((i % period) + period) % period;
    return select(period - k, k, k < n);
}

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

// ---- far32
// Number k of those behind word `base`.
DEV u32 far(u32 base, u32 k) const { return m(base + k); }

// ---- far64
// Number k of those behind word `base`, of two words each.
DEV u64 far(u32 base, u32 k) const { return (u64(m(base + 2u * k + 1u)) << 32) | m(base + 2u * k); }

// ---- affine_far
// Words: rank, dimensions, offset and strides of two words each.
DEV REG compute0(u32 at) const {
    const auto rank = m(0u);
    auto rest = at;
    auto src = far(1u + rank, 0u);
    for (auto d = rank; d > 0u; d--) {
        const auto n = m(d);
        src += (rest % n) * far(1u + rank, d);
        rest = rest / n;
    }
    return x0(src);
}

// ---- trilu
// Words: rows, columns, diagonal.
DEV REG compute0(u32 at) const {
    const auto d = i32(at % m(1u)) - i32((at / m(1u)) % m(0u));
    if (d KEEPS mi(2u)) {
        return x0(at);
    }
    return GAP;
}

// ---- gather
// Words: size of the axis, elements after it, indices of one batch, slices before it in one batch.
DEV REG compute0(u32 at) const {
    const auto after = m(1u);
    const auto picked = m(2u);
    const auto before = m(3u);
    const auto k = at % after;
    const auto j = (at / after) % picked;
    const auto p = at / after / picked;
    const auto i = wrap(x1(p / before * picked + j), m(0u));
    if (i < 0) {
        return GAP;
    }
    return x0((AT(p) * m(0u) + AT(i)) * after + k);
}

// ---- gather_elements
// Words: rank, axis + 1, its size, dimensions of the indices, strides of x.
DEV REG compute0(u32 at) const {
    const auto rank = m(0u);
    const auto i = wrap(x1(at), m(2u));
    if (i < 0) {
        return GAP;
    }
    auto rest = at;
    AT src = 0u;
    for (auto d = rank; d > 0u; d--) {
        const auto n = m(2u + d);
        const auto c = select(rest % n, u32(i), d == m(1u));
        rest = rest / n;
        src += AT(c) * far(3u + rank, d - 1u);
    }
    return x0(src);
}

// ---- gather_nd
// Words: length of a tuple, elements of a slice, tuples of a batch, elements of a batch, sizes, strides.
DEV REG compute0(u32 at) const {
    const auto depth = m(0u);
    const auto tuple = at / m(1u);
    AT src = AT(tuple / m(2u)) * far(3u, 0u) + at % m(1u);
    for (u32 d = 0u; d < depth; d++) {
        const auto i = wrap(x1(tuple * depth + d), m(SIZES + d));
        if (i < 0) {
            return GAP;
        }
        src += AT(i) * far(SIZES + depth, d);
    }
    return x0(src);
}

// ---- reverse_sequence
// Words: stride and size of the batch axis, stride and size of the time axis.
DEV REG compute0(u32 at) const {
    const auto b = (at / m(0u)) % m(1u);
    const auto t = (at / m(2u)) % m(3u);
    const auto len = u32(clamp(near1(b), 0, mi(3u)));
    if (t < len) {
        return x0(at - t * m(2u) + (len - 1u - t) * m(2u));
    }
    return x0(at);
}

// ---- one_hot
// Words: depth, elements after the new axis.
DEV REG compute0(u32 at) const {
    const auto depth = m(0u);
    const auto inner = m(1u);
    const auto place = i32((at / inner) % depth);
    auto k = near0(at / inner / depth * inner + at % inner);
    if (k < 0) {
        k = k + i32(depth);
    }
    return x2(select(0u, 1u, k == place));
}

// ---- eye_like
// Words: columns, diagonal.
DEV REG compute0(u32 at) const {
    return bool_to_REG(i32(at % m(0u)) - i32(at / m(0u)) == mi(1u));
}

// ---- concat
// Words: elements of one slice of this input, of the result, and where this input starts in it.
THREADS concat {
    const auto run = m(0u);
    emit0(t / run * m(1u) + m(2u) + t % run, x0(t));
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

// ---- bits
// Words: cells of the result. A thread copies those of 32 bits.
template <class To, class From> static DEV void put_bits(To* to, From x) { *to = bitcast<To>(x); }

THREADS copy_bits {
    const u32 each = 4u / u32(sizeof(*by0));
    for (u32 i = t * each; i < t * each + each && i < m(0u); i++) {
        put_bits(by0 + i, bx0[i]);
    }
}

// ---- bits_wide
// Words: elements, each of 64 bits, for which there are two threads.
THREADS copy_bits {
    if (t < m(0u)) {
        emit0(t, x0(t));
    }
}
