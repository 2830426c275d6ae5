// Integer arithmetic as expressions define it. INT is i32 or i64, TAG i or l.

fn TAG_abs(x: INT) -> INT {
    return select(x, INT(0) - x, x < INT(0));
}

fn TAG_sign(x: INT) -> INT {
    return select(select(INT(0), INT(1), x > INT(0)), INT(-1), x < INT(0));
}

fn TAG_div(a: INT, b: INT) -> INT {
    if (b == INT(0)) {
        return INT(0);
    }
    if (b == INT(-1)) {
        return INT(0) - a;
    }
    return a / b;
}

fn TAG_rem(a: INT, b: INT) -> INT {
    if (b == INT(0) || b == INT(-1)) {
        return INT(0);
    }
    return a - (a / b) * b;
}

fn TAG_floordiv(a: INT, b: INT) -> INT {
    let q = TAG_div(a, b);
    return select(q, q - INT(1), TAG_rem(a, b) != INT(0) && (a < INT(0)) != (b < INT(0)));
}

fn TAG_mod(a: INT, b: INT) -> INT {
    let r = TAG_rem(a, b);
    return select(r, r + b, r != INT(0) && (r < INT(0)) != (b < INT(0)));
}

fn TAG_pow(a: INT, b: INT) -> INT {
    if (b < INT(0)) {
        if (a == INT(1)) {
            return INT(1);
        }
        if (a == INT(-1)) {
            return select(INT(1), INT(-1), (b & INT(1)) != INT(0));
        }
        return INT(0);
    }
    var r = INT(1);
    var base = a;
    var n = b;
    for (; n > INT(0); n = n >> 1u) {
        if ((n & INT(1)) != INT(0)) {
            r = r * base;
        }
        base = base * base;
    }
    return r;
}

fn TAG_min(a: INT, b: INT) -> INT {
    return select(b, a, a < b);
}

fn TAG_max(a: INT, b: INT) -> INT {
    return select(b, a, a > b);
}

fn TAG_shl(a: INT, b: INT, width: INT) -> INT {
    if (b < INT(0) || b >= width) {
        return INT(0);
    }
    return a << u32(b);
}

fn TAG_shr(a: INT, b: INT, width: INT) -> INT {
    if (b < INT(0) || b >= width) {
        return select(INT(0), INT(-1), a < INT(0));
    }
    return a >> u32(b);
}
