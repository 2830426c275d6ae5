// Integer arithmetic as expressions define it: templates, and functions of i32 (names with i_) and of i64 (names with l_).
#pragma once
#include "types.cuh"

template <class T> DEV T integer_abs(T x) {
    return select(x, T(0) - x, x < T(0));
}

template <class T> DEV T integer_sign(T x) {
    return select(select(T(0), T(1), x > T(0)), T(-1), x < T(0));
}

template <class T> DEV T integer_div(T a, T b) {
    if (b == T(0)) {
        return T(0);
    }
    if (b == T(-1)) {
        return T(0) - a;
    }
    return a / b;
}

template <class T> DEV T integer_rem(T a, T b) {
    if (b == T(0) || b == T(-1)) {
        return T(0);
    }
    return a - (a / b) * b;
}

template <class T> DEV T integer_floordiv(T a, T b) {
    const auto q = integer_div(a, b);
    return select(q, q - T(1), integer_rem(a, b) != T(0) && (a < T(0)) != (b < T(0)));
}

template <class T> DEV T integer_mod(T a, T b) {
    const auto r = integer_rem(a, b);
    return select(r, r + b, r != T(0) && (r < T(0)) != (b < T(0)));
}

template <class T> DEV T integer_pow(T a, T b) {
    if (b < T(0)) {
        if (a == T(1)) {
            return T(1);
        }
        if (a == T(-1)) {
            return select(T(1), T(-1), (b & T(1)) != T(0));
        }
        return T(0);
    }
    auto r = T(1);
    auto base = a;
    auto n = b;
    for (; n > T(0); n = n >> 1) {
        if ((n & T(1)) != T(0)) {
            r = r * base;
        }
        base = base * base;
    }
    return r;
}

template <class T> DEV T integer_min(T a, T b) {
    return select(b, a, a < b);
}

template <class T> DEV T integer_max(T a, T b) {
    return select(b, a, a > b);
}

template <class T> DEV T integer_shl(T a, T b, T width) {
    if (b < T(0) || b >= width) {
        return T(0);
    }
    return a << u32(b);
}

template <class T> DEV T integer_shr(T a, T b, T width) {
    if (b < T(0) || b >= width) {
        return select(T(0), T(-1), a < T(0));
    }
    return a >> u32(b);
}

DEV i32 i_abs(i32 x) { return integer_abs<i32>(x); }
DEV i32 i_sign(i32 x) { return integer_sign<i32>(x); }
DEV i32 i_div(i32 a, i32 b) { return integer_div<i32>(a, b); }
DEV i32 i_rem(i32 a, i32 b) { return integer_rem<i32>(a, b); }
DEV i32 i_floordiv(i32 a, i32 b) { return integer_floordiv<i32>(a, b); }
DEV i32 i_mod(i32 a, i32 b) { return integer_mod<i32>(a, b); }
DEV i32 i_pow(i32 a, i32 b) { return integer_pow<i32>(a, b); }
DEV i32 i_min(i32 a, i32 b) { return integer_min<i32>(a, b); }
DEV i32 i_max(i32 a, i32 b) { return integer_max<i32>(a, b); }
DEV i32 i_shl(i32 a, i32 b, i32 width) { return integer_shl<i32>(a, b, width); }
DEV i32 i_shr(i32 a, i32 b, i32 width) { return integer_shr<i32>(a, b, width); }
DEV i64 l_abs(i64 x) { return integer_abs<i64>(x); }
DEV i64 l_sign(i64 x) { return integer_sign<i64>(x); }
DEV i64 l_div(i64 a, i64 b) { return integer_div<i64>(a, b); }
DEV i64 l_rem(i64 a, i64 b) { return integer_rem<i64>(a, b); }
DEV i64 l_floordiv(i64 a, i64 b) { return integer_floordiv<i64>(a, b); }
DEV i64 l_mod(i64 a, i64 b) { return integer_mod<i64>(a, b); }
DEV i64 l_pow(i64 a, i64 b) { return integer_pow<i64>(a, b); }
DEV i64 l_min(i64 a, i64 b) { return integer_min<i64>(a, b); }
DEV i64 l_max(i64 a, i64 b) { return integer_max<i64>(a, b); }
DEV i64 l_shl(i64 a, i64 b, i64 width) { return integer_shl<i64>(a, b, width); }
DEV i64 l_shr(i64 a, i64 b, i64 width) { return integer_shr<i64>(a, b, width); }
