// Elements from elsewhere, eight neighbours at a time where these stay neighbours. CELL is the type in memory.

// n / d, where words `at`.. have d, a factor, and a shift (32 if n may be too large for that).
DEV u32 divide(u32 n, u32 at) const {
    const u32 shift = m(at + 2u);
    return shift == 32u ? n / m(at) : (__umulhi(n, m(at + 1u)) + n) >> shift;
}

// ---- affine
// The result's dimensions from word 1 on, the innermost first: rank, then size, factor, shift and the source's stride.
DEV u32 source(u32 t) const {
    u32 at = m(0u);
    u32 rest = t;
    const u32 rank = m(1u);
    for (u32 d = 0u; d < rank; d++) {
        const u32 q = divide(rest, 2u + d * 4u);
        at += (rest - q * m(2u + d * 4u)) * m(5u + d * 4u);
        rest = q;
    }
    return at;
}

THREADS by_8 {
    const u32 from = source(t);
    const u32 at = t * 8u;
    PUT_8
}

THREADS by_1 {
    const u32 from = source(t);
    const u32 at = t;
    PUT_1
}

// ---- transposed
// Tiles of two dimensions: p lies densely in the source, q in the result. Words: offset, sizes of p and q, q's stride in the
// source, p's in the result, tiles of p and q, rank of the rest, then size, factor, shift and both strides of these.
__shared__ CELL tile[64 * PITCH];

GROUPS transposed 256 {
    const u32 ps = m(1u);
    const u32 qs = m(2u);
    const u32 q0 = group % m(6u) * 64u;
    const u32 p0 = group / m(6u) % m(5u) * 64u;
    u32 rest = group / m(6u) / m(5u);
    u32 source = m(0u);
    u32 result = 0u;
    const u32 rank = m(7u);
    for (u32 d = 0u; d < rank; d++) {
        const u32 q = divide(rest, 8u + d * 5u);
        const u32 c = rest - q * m(8u + d * 5u);
        source += c * m(11u + d * 5u);
        result += c * m(12u + d * 5u);
        rest = q;
    }
    const u32 x = l % 64u;
    const u32 y = l / 64u;
#pragma unroll
    for (u32 k = 0u; k < 16u; k++) {
        const u32 q = y + k * 4u;
        if (p0 + x < ps && q0 + q < qs) {
            tile[q * PITCH + x] = bx0[source + (q0 + q) * m(3u) + p0 + x];
        }
    }
    __syncthreads();
#pragma unroll
    for (u32 k = 0u; k < 16u; k++) {
        const u32 p = y + k * 4u;
        if (p0 + p < ps && q0 + x < qs) {
            const u32 at = result + (p0 + p) * m(4u) + q0 + x;
            const CELL* cells = tile + x * PITCH + p;
            PUT_CELL
        }
    }
}

// ---- gather
// Words: size of the axis; elements after it, indices of a batch, slices before it in a batch, each to divide by.
DEV AT picked(u32 t, u32 width, bool& inside) const {
    const u32 q = divide(t, 1u);
    const u32 k = (t - q * m(1u)) * width;
    const u32 p = divide(q, 4u);
    const u32 i = q - p * m(4u);
    const PLACE index = wrap(x1(divide(p, 7u) * m(4u) + i), m(0u));
    inside = index >= 0;
    return (AT(p) * m(0u) + AT(index)) * m(1u) * width + k;
}

THREADS by_8 {
    bool inside;
    const AT from = picked(t, 8u, inside);
    const u32 at = t * 8u;
    if (!inside) {
        for (u32 i = 0u; i < 8u; i++) {
            emit0(at + i, GAP);
        }
        return;
    }
    PUT_8
}

THREADS by_1 {
    bool inside;
    const AT from = picked(t, 1u, inside);
    const u32 at = t;
    if (!inside) {
        emit0(at, GAP);
        return;
    }
    PUT_1
}

// ---- concat
// Words: elements of the result's slice; of each input: its first block, its threads, where it starts in a slice, and the
// threads of its slice, to divide by.
template <u32 V> DEV void joined(u32 group, u32 l) const {
    u32 k = 0u;
    while (k + 1u < INPUTS && group >= m(1u + (k + 1u) * 6u)) {
        k++;
    }
    const u32 w = 1u + k * 6u;
    const u32 t = (group - m(w)) * 256u + l;
    if (t >= m(w + 1u)) {
        return;
    }
    const u32 q = divide(t, w + 3u);
    const u32 at = q * m(0u) + m(w + 2u) + (t - q * m(w + 3u)) * V;
    const u32 from = t * V;
    BRANCHES
}

GROUPS by_8 256 {
    joined<8u>(group, l);
}

GROUPS by_1 256 {
    joined<1u>(group, l);
}
