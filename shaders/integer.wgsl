// Integer arithmetic as expressions define it, of i32 (names with i_) and of i64 (names with l_).

fn i_abs(x: i32) -> i32 {
    return select(x, i32(0) - x, x < i32(0));
}

fn i_sign(x: i32) -> i32 {
    return select(select(i32(0), i32(1), x > i32(0)), i32(-1), x < i32(0));
}

fn i_div(a: i32, b: i32) -> i32 {
    if (b == i32(0)) {
        return i32(0);
    }
    if (b == i32(-1)) {
        return i32(0) - a;
    }
    return a / b;
}

fn i_rem(a: i32, b: i32) -> i32 {
    if (b == i32(0) || b == i32(-1)) {
        return i32(0);
    }
    return a - (a / b) * b;
}

fn i_floordiv(a: i32, b: i32) -> i32 {
    let q = i_div(a, b);
    return select(q, q - i32(1), i_rem(a, b) != i32(0) && (a < i32(0)) != (b < i32(0)));
}

fn i_mod(a: i32, b: i32) -> i32 {
    let r = i_rem(a, b);
    return select(r, r + b, r != i32(0) && (r < i32(0)) != (b < i32(0)));
}

fn i_pow(a: i32, b: i32) -> i32 {
    if (b < i32(0)) {
        if (a == i32(1)) {
            return i32(1);
        }
        if (a == i32(-1)) {
            return select(i32(1), i32(-1), (b & i32(1)) != i32(0));
        }
        return i32(0);
    }
    var r = i32(1);
    var base = a;
    var n = b;
    for (; n > i32(0); n = n >> 1u) {
        if ((n & i32(1)) != i32(0)) {
            r = r * base;
        }
        base = base * base;
    }
    return r;
}

fn i_min(a: i32, b: i32) -> i32 {
    return select(b, a, a < b);
}

fn i_max(a: i32, b: i32) -> i32 {
    return select(b, a, a > b);
}

fn i_shl(a: i32, b: i32, width: i32) -> i32 {
    if (b < i32(0) || b >= width) {
        return i32(0);
    }
    return a << u32(b);
}

fn i_shr(a: i32, b: i32, width: i32) -> i32 {
    if (b < i32(0) || b >= width) {
        return select(i32(0), i32(-1), a < i32(0));
    }
    return a >> u32(b);
}

fn l_abs(x: i64) -> i64 {
    return select(x, i64(0) - x, x < i64(0));
}

fn l_sign(x: i64) -> i64 {
    return select(select(i64(0), i64(1), x > i64(0)), i64(-1), x < i64(0));
}

fn l_div(a: i64, b: i64) -> i64 {
    if (b == i64(0)) {
        return i64(0);
    }
    if (b == i64(-1)) {
        return i64(0) - a;
    }
    return a / b;
}

fn l_rem(a: i64, b: i64) -> i64 {
    if (b == i64(0) || b == i64(-1)) {
        return i64(0);
    }
    return a - (a / b) * b;
}

fn l_floordiv(a: i64, b: i64) -> i64 {
    let q = l_div(a, b);
    return select(q, q - i64(1), l_rem(a, b) != i64(0) && (a < i64(0)) != (b < i64(0)));
}

fn l_mod(a: i64, b: i64) -> i64 {
    let r = l_rem(a, b);
    return select(r, r + b, r != i64(0) && (r < i64(0)) != (b < i64(0)));
}

fn l_pow(a: i64, b: i64) -> i64 {
    if (b < i64(0)) {
        if (a == i64(1)) {
            return i64(1);
        }
        if (a == i64(-1)) {
            return select(i64(1), i64(-1), (b & i64(1)) != i64(0));
        }
        return i64(0);
    }
    var r = i64(1);
    var base = a;
    var n = b;
    for (; n > i64(0); n = n >> 1u) {
        if ((n & i64(1)) != i64(0)) {
            r = r * base;
        }
        base = base * base;
    }
    return r;
}

fn l_min(a: i64, b: i64) -> i64 {
    return select(b, a, a < b);
}

fn l_max(a: i64, b: i64) -> i64 {
    return select(b, a, a > b);
}

fn l_shl(a: i64, b: i64, width: i64) -> i64 {
    if (b < i64(0) || b >= width) {
        return i64(0);
    }
    return a << u32(b);
}

fn l_shr(a: i64, b: i64, width: i64) -> i64 {
    if (b < i64(0) || b >= width) {
        return select(i64(0), i64(-1), a < i64(0));
    }
    return a >> u32(b);
}
