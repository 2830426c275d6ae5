// Elements taken from elsewhere. REG is the type in registers, IDX that of indices, GAP what stands where nothing is.

// ---- affine
// Words: offset, rank, dimensions, strides.
fn compute0(at: u32) -> REG {
    let rank = m(1u);
    var rest = at;
    var src = m(0u);
    for (var d = rank; d > 0u; d--) {
        let n = m(1u + d);
        src += (rest % n) * m(1u + rank + d);
        rest = rest / n;
    }
    return x0(src);
}

// ---- framed
// Words: rank, dimensions of the result, dimensions of x, strides of x, position of x in the result.
fn compute0(at: u32) -> REG {
    let rank = m(0u);
    var rest = at;
    var src = 0u;
    for (var d = rank; d > 0u; d--) {
        let n = m(d);
        let k = MODE(i32(rest % n) - mi(rank * 3u + d), mi(rank + d));
        rest = rest / n;
        if (k < 0) {
            return GAP;
        }
        src += u32(k) * m(rank * 2u + d);
    }
    return x0(src);
}

// ---- modes
fn at_constant(i: i32, n: i32) -> i32 {
    return select(i, -1, i < 0 || i >= n);
}

fn at_edge(i: i32, n: i32) -> i32 {
    return clamp(i, 0, n - 1);
}

fn at_wrap(i: i32, n: i32) -> i32 {
    if (n <= 0) {
        return -1;
    }
    return ((i % n) + n) % n;
}

fn at_reflect(i: i32, n: i32) -> i32 {
    if (n <= 0) {
        return -1;
    }
    let period = 2 * max(n - 1, 1);
    let k = ((i % period) + period) % period;
    return select(period - k, k, k < n);
}

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

// ---- trilu
// Words: rows, columns, diagonal.
fn compute0(at: u32) -> REG {
    let d = i32(at % m(1u)) - i32((at / m(1u)) % m(0u));
    if (d KEEPS mi(2u)) {
        return x0(at);
    }
    return GAP;
}

// ---- gather
// Words: size of the axis, elements after it, indices of one batch, slices before it in one batch.
fn compute0(at: u32) -> REG {
    let after = m(1u);
    let picked = m(2u);
    let before = m(3u);
    let k = at % after;
    let j = (at / after) % picked;
    let p = at / after / picked;
    let i = wrap(x1(p / before * picked + j), m(0u));
    if (i < 0) {
        return GAP;
    }
    return x0((p * m(0u) + u32(i)) * after + k);
}

// ---- gather_elements
// Words: rank, axis + 1, its size, dimensions of the indices, strides of x.
fn compute0(at: u32) -> REG {
    let rank = m(0u);
    let i = wrap(x1(at), m(2u));
    if (i < 0) {
        return GAP;
    }
    var rest = at;
    var src = 0u;
    for (var d = rank; d > 0u; d--) {
        let n = m(2u + d);
        let c = select(rest % n, u32(i), d == m(1u));
        rest = rest / n;
        src += c * m(2u + rank + d);
    }
    return x0(src);
}

// ---- gather_nd
// Words: length of a tuple, elements of a slice, tuples of a batch, elements of a batch, sizes, strides.
fn compute0(at: u32) -> REG {
    let depth = m(0u);
    let tuple = at / m(1u);
    var src = tuple / m(2u) * m(3u) + at % m(1u);
    for (var d = 0u; d < depth; d++) {
        let i = wrap(x1(tuple * depth + d), m(4u + d));
        if (i < 0) {
            return GAP;
        }
        src += u32(i) * m(4u + depth + d);
    }
    return x0(src);
}

// ---- reverse_sequence
// Words: stride and size of the batch axis, stride and size of the time axis.
fn compute0(at: u32) -> REG {
    let b = (at / m(0u)) % m(1u);
    let t = (at / m(2u)) % m(3u);
    let len = u32(clamp(near1(b), 0, mi(3u)));
    if (t < len) {
        return x0(at - t * m(2u) + (len - 1u - t) * m(2u));
    }
    return x0(at);
}

// ---- one_hot
// Words: depth, elements after the new axis.
fn compute0(at: u32) -> REG {
    let depth = m(0u);
    let inner = m(1u);
    let place = i32((at / inner) % depth);
    var k = near0(at / inner / depth * inner + at % inner);
    if (k < 0) {
        k = k + i32(depth);
    }
    return x2(select(0u, 1u, k == place));
}

// ---- eye_like
// Words: columns, diagonal.
fn compute0(at: u32) -> REG {
    return bool_to_REG(i32(at % m(0u)) - i32(at / m(0u)) == mi(1u));
}

// ---- concat
// Words: elements of one slice of this input, of the result, and where this input starts in it.
THREADS concat {
    let run = m(0u);
    emit0(t / run * m(1u) + m(2u) + t % run, x0(t));
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

// ---- bits
// A thread copies a word, the bits behind the last element as well.
THREADS copy_bits {
    put_word0(t, w0(t));
}

// ---- bits_wide
// Words: elements, each of 64 bits, for which there are two threads.
THREADS copy_bits {
    if (t < m(0u)) {
        emit0(t, x0(t));
    }
}
