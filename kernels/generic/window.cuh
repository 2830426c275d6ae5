// Sliding windows over up to three spatial dimensions; fewer are led by dimensions of 1. Words 7d..7d+6 for dimension
// d: input, output, kernel, stride, dilation, padding before, padding after. For the transposed ones `input` is the
// result and `output` the operand. Others follow from word 21 on. ACC is the type of sums.

DEV i32 w_in(u32 d) const {
    return mi(d * 7u);
}

DEV i32 w_out(u32 d) const {
    return mi(d * 7u + 1u);
}

DEV i32 w_kernel(u32 d) const {
    return mi(d * 7u + 2u);
}

// The position under tap k of window o.
DEV i32 w_at(u32 d, i32 o, i32 k) const {
    return o * mi(d * 7u + 3u) + k * mi(d * 7u + 4u) - mi(d * 7u + 5u);
}

// The operand element that reaches result element p through tap k; -1 if none does.
DEV i32 w_from(u32 d, i32 p, i32 k) const {
    const auto q = p + mi(d * 7u + 5u) - k * mi(d * 7u + 4u);
    const auto s = mi(d * 7u + 3u);
    if (q < 0 || q % s != 0 || q / s >= w_out(d)) {
        return -1;
    }
    return q / s;
}

DEV bool inside(i32 i, i32 n) const {
    return i >= 0 && i < n;
}

// Three coordinates in a box of these sizes.
DEV vec3<i32> unflatten(u32 at, i32 b, i32 c) const {
    const auto x = i32(at % u32(c));
    const auto rest = at / u32(c);
    return vec3<i32>(i32(rest / u32(b)), i32(rest % u32(b)), x);
}

DEV u32 out_volume() const {
    return u32(w_out(0u) * w_out(1u) * w_out(2u));
}

DEV u32 in_volume() const {
    return u32(w_in(0u) * w_in(1u) * w_in(2u));
}

DEV u32 taps() const {
    return u32(w_kernel(0u) * w_kernel(1u) * w_kernel(2u));
}
