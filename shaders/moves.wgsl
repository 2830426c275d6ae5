// Elements taken from elsewhere. REG is the type in registers, IDX that of indices, GAP what stands where nothing is.

// ---- wrap
// An index counted from the end if negative; -1 if out of range.
fn wrap(v: IDX, n: u32) -> i32 {
    var k = v;
    if (k < IDX(0)) {
        k = k + IDX(n);
    }
    if (k < IDX(0) || k >= IDX(n)) {
        return -1;
    }
    return i32(k);
}

// ---- scatter_copy
fn compute0(at: u32) -> REG {
    return x0(at);
}

// ---- scatter_elements
// One thread a line along the axis. Words: rank, axis + 1, size of the axis in x, its size in the indices, their
// dimensions with 1 for the axis, their strides, strides of x.
THREADS scatter {
    let rank = m(0u);
    var rest = t;
    var from_index = 0u;
    var to = 0u;
    for (var d = rank; d > 0u; d--) {
        let n = m(3u + d);
        let c = rest % n;
        rest = rest / n;
        from_index += c * m(3u + rank + d);
        to += c * m(3u + rank * 2u + d);
    }
    let step = m(3u + rank + m(1u));
    let stride = m(3u + rank * 2u + m(1u));
    for (var k = lo(); k < hi(); k++) {
        let src = from_index + k * step;
        let i = wrap(x1(src), m(2u));
        if (i >= 0) {
            let dst = to + u32(i) * stride;
            let old = ry0(dst);
            let new_value = x2(src);
            emit0(dst, COMBINE);
        }
    }
}

// ---- scatter_nd
// One thread an element of a slice. Words: tuples, length of a tuple, elements of a slice, sizes, strides.
THREADS scatter {
    let depth = m(1u);
    for (var k = lo(); k < hi(); k++) {
        var dst = t;
        var inside = true;
        for (var d = 0u; d < depth; d++) {
            let i = wrap(x1(k * depth + d), m(3u + d));
            inside = inside && i >= 0;
            dst += u32(max(i, 0)) * m(3u + depth + d);
        }
        if (inside) {
            let old = ry0(dst);
            let new_value = x2(k * m(2u) + t);
            emit0(dst, COMBINE);
        }
    }
}

