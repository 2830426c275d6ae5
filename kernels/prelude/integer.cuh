// Integer arithmetic as expressions define it. INT is i32 or i64, TAG i or l.

DEV INT TAG_abs(INT x) {
    return select(x, INT(0) - x, x < INT(0));
}

DEV INT TAG_sign(INT x) {
    return select(select(INT(0), INT(1), x > INT(0)), INT(-1), x < INT(0));
}

DEV INT TAG_div(INT a, INT b) {
    if (b == INT(0)) {
        return INT(0);
    }
    if (b == INT(-1)) {
        return INT(0) - a;
    }
    return a / b;
}

DEV INT TAG_rem(INT a, INT b) {
    if (b == INT(0) || b == INT(-1)) {
        return INT(0);
    }
    return a - (a / b) * b;
}

DEV INT TAG_floordiv(INT a, INT b) {
    const auto q = TAG_div(a, b);
    return select(q, q - INT(1), TAG_rem(a, b) != INT(0) && (a < INT(0)) != (b < INT(0)));
}

DEV INT TAG_mod(INT a, INT b) {
    const auto r = TAG_rem(a, b);
    return select(r, r + b, r != INT(0) && (r < INT(0)) != (b < INT(0)));
}

DEV INT TAG_pow(INT a, INT b) {
    if (b < INT(0)) {
        if (a == INT(1)) {
            return INT(1);
        }
        if (a == INT(-1)) {
            return select(INT(1), INT(-1), (b & INT(1)) != INT(0));
        }
        return INT(0);
    }
    auto r = INT(1);
    auto base = a;
    auto n = b;
    for (; n > INT(0); n = n >> 1) {
        if ((n & INT(1)) != INT(0)) {
            r = r * base;
        }
        base = base * base;
    }
    return r;
}

DEV INT TAG_min(INT a, INT b) {
    return select(b, a, a < b);
}

DEV INT TAG_max(INT a, INT b) {
    return select(b, a, a > b);
}

DEV INT TAG_shl(INT a, INT b, INT width) {
    if (b < INT(0) || b >= width) {
        return INT(0);
    }
    return a << u32(b);
}

DEV INT TAG_shr(INT a, INT b, INT width) {
    if (b < INT(0) || b >= width) {
        return select(INT(0), INT(-1), a < INT(0));
    }
    return a >> u32(b);
}
