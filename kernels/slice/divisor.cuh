// Divisions by numbers that a launch knows.
#pragma once
#include "../prelude/launch.cuh"

// A divisor with a factor and a shift that stand for it; the shift is 32 where numbers may be too large for that.
struct Divisor {
    u32 size, factor, shift;
};

DEV u32 divide(u32 n, Divisor d) { return d.shift == 32u ? n / d.size : (__umulhi(n, d.factor) + n) >> d.shift; }

// The position by strides of number `t` of what dimensions from FIRST on count. Dimensions begin with the innermost one; the first six of
// `rank` are arrays of the parameters, so that no number of them has to be searched for.
template <u32 FIRST, class At, class P, class K> DEV At by_strides(const K& k, const P& p, u32 t) {
    At at = 0u;
    u32 rest = t;
#pragma unroll
    for (u32 d = FIRST; d < 6u; d++) {
        if (d < p.rank) {
            const Divisor size{p.sizes[d], p.factors[d], p.shifts[d]};
            const u32 q = divide(rest, size);
            at += At(rest - q * size.size) * p.strides[d];
            rest = q;
        }
    }
    for (u32 d = 0u; d < p.more_sizes.count; d++) {
        const u32 n = item(k, p.more_sizes, d);
        at += At(rest % n) * item(k, p.more_strides, d);
        rest = rest / n;
    }
    return at;
}
