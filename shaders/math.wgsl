// Scalar functions of expressions, where WGSL's own are too loose or differ in special cases.

fn fsign(x: f32) -> f32 {
    let b = bitcast<u32>(x);
    if ((b & 0x7fffffffu) == 0u || is_nan(x)) {
        return x;
    }
    return bitcast<f32>((b & 0x80000000u) | 0x3f800000u);
}

fn with_sign(x: f32, s: f32) -> f32 {
    return bitcast<f32>((bitcast<u32>(x) & 0x7fffffffu) | (bitcast<u32>(s) & 0x80000000u));
}

fn ksqrt(x: f32) -> f32 {
    if (x < 0.0 || is_nan(x)) {
        return cf(0x7fc00000u);
    }
    return sqrt(x);
}

fn kmin(a: f32, b: f32) -> f32 {
    if (is_nan(a) || is_nan(b)) {
        return cf(0x7fc00000u);
    }
    return min(a, b);
}

fn kmax(a: f32, b: f32) -> f32 {
    if (is_nan(a) || is_nan(b)) {
        return cf(0x7fc00000u);
    }
    return max(a, b);
}

fn any_nan(a: f32, b: f32) -> bool {
    return is_nan(a) || is_nan(b);
}

// The place of a number among all numbers, as an integer; equal for both zeros. Devices may take subnormal numbers for zeros where they
// compare numbers themselves.
fn order_key(x: f32) -> i32 {
    let b = bitcast<i32>(x);
    return select(b, -(b & 0x7fffffff), b < 0);
}

fn feq(a: f32, b: f32) -> bool {
    return !any_nan(a, b) && order_key(a) == order_key(b);
}

fn flt(a: f32, b: f32) -> bool {
    return !any_nan(a, b) && order_key(a) < order_key(b);
}

fn fle(a: f32, b: f32) -> bool {
    return !any_nan(a, b) && order_key(a) <= order_key(b);
}

fn fnonzero(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) != 0u;
}

// Toward zero, saturating; NaN gives 0.
fn f_to_i32(x: f32) -> i32 {
    if (is_nan(x)) {
        return 0;
    }
    if (x >= 2147483648.0) {
        return 2147483647;
    }
    if (x <= -2147483648.0) {
        return bitcast<i32>(0x80000000u);
    }
    return i32(x);
}

fn f_to_i64(x: f32) -> i64 {
    if (is_nan(x)) {
        return 0li;
    }
    if (x >= 9223372036854775808.0) {
        return ci64(0x7fffffffu, 0xffffffffu);
    }
    if (x <= -9223372036854775808.0) {
        return ci64(0x80000000u, 0u);
    }
    return i64(x);
}

// 2^n for -126 <= n <= 127.
fn exp2i(n: i32) -> f32 {
    return bitcast<f32>(u32(n + 127) << 23u);
}

// x 2^n, for |n| < 252.
fn scale2(x: f32, n: i32) -> f32 {
    let a = n / 2;
    return x * exp2i(a) * exp2i(n - a);
}

// (e^r - 1) for |r| <= 0.35.
fn expm1_small(r: f32) -> f32 {
    let p = 0.0001984127 + r * 0.0000248016;
    let q = 0.5 + r * (0.16666667 + r * (0.041666668 + r * (0.008333334 + r * (0.0013888889 + r * p))));
    return r + r * r * q;
}

fn kexp(x: f32) -> f32 {
    if (is_nan(x)) {
        return x;
    }
    if (x > 88.72284) {
        return cf(0x7f800000u);
    }
    if (x < -104.0) {
        return 0.0;
    }
    let k = round(x * 1.4426950408889634);
    let r = (x - k * 0.693145751953125) - k * 1.42860677e-6;
    return scale2(1.0 + expm1_small(r), i32(k));
}

fn kexpm1(x: f32) -> f32 {
    if (is_nan(x) || !fnonzero(x)) {
        return x;
    }
    if (x < -17.4) {
        return -1.0;
    }
    if (x > 20.0) {
        return kexp(x) - 1.0;
    }
    if (abs(x) < 0.34) {
        return expm1_small(x);
    }
    let k = round(x * 1.4426950408889634);
    let r = (x - k * 0.693145751953125) - k * 1.42860677e-6;
    let s = exp2i(i32(k));
    return s * expm1_small(r) + (s - 1.0);
}

fn klog(x: f32) -> f32 {
    var u = bitcast<u32>(x);
    if ((u & 0x7fffffffu) == 0u) {
        return cf(0xff800000u);
    }
    if (u > 0x80000000u || is_nan(x)) {
        return cf(0x7fc00000u);
    }
    if (u == 0x7f800000u) {
        return x;
    }
    var e = -127;
    if (u < 0x00800000u) {
        let z = countLeadingZeros(u) - 8u;
        u = u << z;
        e = e - i32(z);
    }
    e = e + i32(u >> 23u);
    u = (u & 0x7fffffu) | 0x3f800000u;
    if (u > 0x3fb504f3u) {
        u = u - 0x800000u;
        e = e + 1;
    }
    let f = bitcast<f32>(u) - 1.0;
    let s = f / (2.0 + f);
    let z = s * s;
    let w = z * z;
    let t = z * (0.66666662693 + w * 0.28498786688) + w * (0.40000972152 + w * 0.24279078841);
    let h = 0.5 * f * f;
    let k = f32(e);
    return s * (h + t) + k * 9.0580006145e-6 - h + f + k * 0.69313812256;
}

// ln(1+x) = ln(u) + ln(1+d) with u near 1+x of few bits, so that d is exact.
fn klog1p(x: f32) -> f32 {
    if (is_nan(x) || x == cf(0x7f800000u)) {
        return x;
    }
    if (abs(x) < 0.001) {
        return x + x * x * (-0.5 + x * (0.33333334 - x * 0.25));
    }
    if (x <= -1.0) {
        return select(cf(0x7fc00000u), cf(0xff800000u), x == -1.0);
    }
    let u = bitcast<f32>(bitcast<u32>(1.0 + x) & 0xfffff000u);
    let d = ((1.0 - u) + x) / u;
    return klog(u) + (d + d * d * (-0.5 + d * 0.33333334));
}

fn ksinh(x: f32) -> f32 {
    let a = abs(x);
    if (is_nan(x) || a < 0.0002) {
        return x;
    }
    if (a > 20.0) {
        let h = kexp(0.5 * a);
        return with_sign((0.5 * h) * h, x);
    }
    let t = kexpm1(a);
    return with_sign(0.5 * (t + t / (t + 1.0)), x);
}

fn kcosh(x: f32) -> f32 {
    let a = abs(x);
    if (a > 20.0) {
        let h = kexp(0.5 * a);
        return (0.5 * h) * h;
    }
    let e = kexp(a);
    return 0.5 * e + 0.5 / e;
}

fn ktanh(x: f32) -> f32 {
    let a = abs(x);
    if (is_nan(x) || a < 0.0002) {
        return x;
    }
    if (a > 10.0) {
        return with_sign(1.0, x);
    }
    let t = kexpm1(2.0 * a);
    return with_sign(t / (t + 2.0), x);
}

fn kasinh(x: f32) -> f32 {
    let a = abs(x);
    if (is_nan(x) || is_inf(x) || a < 0.0002) {
        return x;
    }
    if (a > 4096.0) {
        return with_sign(klog(a) + 0.6931471805599453, x);
    }
    return with_sign(klog1p(a + a * a / (1.0 + sqrt(1.0 + a * a))), x);
}

fn kacosh(x: f32) -> f32 {
    if (is_nan(x) || x < 1.0) {
        return cf(0x7fc00000u);
    }
    if (x > 4096.0) {
        return klog(x) + 0.6931471805599453;
    }
    let t = x - 1.0;
    return klog1p(t + sqrt(2.0 * t + t * t));
}

fn katanh(x: f32) -> f32 {
    let a = abs(x);
    if (is_nan(x) || a > 1.0) {
        return cf(0x7fc00000u);
    }
    if (a == 1.0) {
        return with_sign(cf(0x7f800000u), x);
    }
    if (a < 0.0002) {
        return x;
    }
    return with_sign(0.5 * klog1p(2.0 * a / (1.0 - a)), x);
}

// 32 x 32 bits to (high, low).
fn umul64(a: u32, b: u32) -> vec2<u32> {
    let al = a & 0xffffu;
    let ah = a >> 16u;
    let bl = b & 0xffffu;
    let bh = b >> 16u;
    let mid = ah * bl + ((al * bl) >> 16u);
    let mid2 = al * bh + (mid & 0xffffu);
    return vec2<u32>(ah * bh + (mid >> 16u) + (mid2 >> 16u), a * b);
}

fn inverse_turn_word(k: u32) -> u32 {
    switch (k) {
        case 1u: { return 0x28be60dbu; }
        case 2u: { return 0x9391054au; }
        case 3u: { return 0x7f09d5f4u; }
        case 4u: { return 0x7d4d3770u; }
        case 5u: { return 0x36d8a566u; }
        case 6u: { return 0x4f10e410u; }
        case 7u: { return 0x7f9458eau; }
        default: { return 0u; }
    }
}

fn inverse_turn_bits(at: u32) -> u32 {
    let k = at >> 5u;
    let s = at & 31u;
    let high = inverse_turn_word(k);
    if (s == 0u) {
        return high;
    }
    return (high << s) | (inverse_turn_word(k + 1u) >> (32u - s));
}

struct Angle {
    r: f32,
    quadrant: u32,
}

// x = quadrant pi/2 + r with |r| <= pi/4, for |x| >= 64: x times 1/(2 pi), to 96 bits after the binary point.
fn reduce_large(x: f32) -> Angle {
    let b = bitcast<u32>(x);
    let m = (b & 0x7fffffu) | 0x800000u;
    let at = ((b >> 23u) & 255u) - 118u;
    let p2 = umul64(inverse_turn_bits(at + 64u), m);
    let p1 = umul64(inverse_turn_bits(at + 32u), m);
    let w1 = p1.y + p2.x;
    let carry = select(0u, 1u, w1 < p1.y);
    let w0 = inverse_turn_bits(at) * m + p1.x + carry;
    var h = (w0 << 2u) | (w1 >> 30u);
    var l = (w1 << 2u) | (p2.y >> 30u);
    var q = w0 >> 30u;
    var sign = 0u;
    if ((h & 0x80000000u) != 0u) {
        q = q + 1u;
        sign = 0x80000000u;
        l = ~l + 1u;
        h = ~h + select(0u, 1u, l == 0u);
    }
    var n = 0u;
    if (h == 0u) {
        h = l;
        l = 0u;
        n = 32u;
    }
    let z = min(countLeadingZeros(h), 31u);
    if (z > 0u) {
        h = (h << z) | (l >> (32u - z));
    }
    var r = f32(h) * exp2i(-32 - i32(n + z)) * 1.5707963267948966;
    r = bitcast<f32>(bitcast<u32>(r) ^ sign ^ (b & 0x80000000u));
    if ((b & 0x80000000u) != 0u) {
        q = 0u - q;
    }
    return Angle(r, q & 3u);
}

fn reduce_angle(x: f32) -> Angle {
    if (abs(x) >= 64.0) {
        return reduce_large(x);
    }
    let k = round(x * 0.6366197723675814);
    let r = ((x - k * 1.5703125) - k * 4.837512969970703125e-4) - k * 7.549789954891882e-8;
    return Angle(r, bitcast<u32>(i32(k)) & 3u);
}

fn sin_small(r: f32) -> f32 {
    let z = r * r;
    return r + r * z * (-1.6666654611e-1 + z * (8.3321608736e-3 - z * 1.9515295891e-4));
}

fn cos_small(r: f32) -> f32 {
    let z = r * r;
    return 1.0 - 0.5 * z + z * z * (4.166664568298827e-2 + z * (-1.388731625493765e-3 + z * 2.443315711809948e-5));
}

fn sin_quarter(a: Angle, turn: u32) -> f32 {
    let q = (a.quadrant + turn) & 3u;
    let v = select(sin_small(a.r), cos_small(a.r), (q & 1u) == 1u);
    return select(v, -v, q >= 2u);
}

fn not_finite(x: f32) -> bool {
    return is_nan(x) || is_inf(x);
}

fn ksin(x: f32) -> f32 {
    if (not_finite(x)) {
        return cf(0x7fc00000u);
    }
    if (abs(x) < 0.0002) {
        return x;
    }
    return sin_quarter(reduce_angle(x), 0u);
}

fn kcos(x: f32) -> f32 {
    if (not_finite(x)) {
        return cf(0x7fc00000u);
    }
    return sin_quarter(reduce_angle(x), 1u);
}

fn ktan(x: f32) -> f32 {
    if (not_finite(x)) {
        return cf(0x7fc00000u);
    }
    if (abs(x) < 0.0002) {
        return x;
    }
    let a = reduce_angle(x);
    let s = sin_small(a.r);
    let c = cos_small(a.r);
    return select(s / c, -(c / s), (a.quadrant & 1u) == 1u);
}

fn asin_ratio(z: f32) -> f32 {
    return z * (1.6666586697e-1 + z * (-4.2743422091e-2 - z * 8.6563630030e-3)) / (1.0 - z * 7.0662963390e-1);
}

fn kasin(x: f32) -> f32 {
    let a = abs(x);
    if (is_nan(x) || a > 1.0) {
        return cf(0x7fc00000u);
    }
    if (a < 0.5) {
        return x + x * asin_ratio(x * x);
    }
    let z = (1.0 - a) * 0.5;
    let s = sqrt(z);
    return with_sign(1.5707963267948966 - 2.0 * (s + s * asin_ratio(z)), x);
}

fn kacos(x: f32) -> f32 {
    let a = abs(x);
    if (is_nan(x) || a > 1.0) {
        return cf(0x7fc00000u);
    }
    if (a < 0.5) {
        return 1.5707962513 - (x - (7.5497894159e-8 - x * asin_ratio(x * x)));
    }
    let z = (1.0 - a) * 0.5;
    let s = sqrt(z);
    let w = 2.0 * (s + s * asin_ratio(z));
    return select(w, 3.1415926535897931 - w, x < 0.0);
}

fn katan(x: f32) -> f32 {
    if (is_nan(x) || !fnonzero(x)) {
        return x;
    }
    var a = abs(x);
    var base = 0.0;
    if (a > 2.414213562373095) {
        base = 1.5707963267948966;
        a = -1.0 / a;
    } else if (a > 0.4142135623730950) {
        base = 0.7853981633974483;
        a = (a - 1.0) / (a + 1.0);
    }
    let z = a * a;
    let p = 1.99777106478e-1 + z * (-1.38776856032e-1 + z * 8.05374449538e-2);
    return with_sign(base + (a + a * z * (-3.33329491539e-1 + z * p)), x);
}

fn kerf(x: f32) -> f32 {
    if (is_nan(x)) {
        return x;
    }
    let t = abs(x);
    let s = x * x;
    if (t > 4.0) {
        return with_sign(1.0, x);
    }
    if (t > 0.927734375) {
        var r = -1.72853470e-5 * t + 3.83197126e-4;
        let u = -3.88396438e-3 * t + 2.42546219e-2;
        r = r * s + u;
        r = r * t - 1.06777877e-1;
        r = r * t - 6.34846687e-1;
        r = r * t - 1.28717512e-1;
        r = r * t - t;
        return with_sign(1.0 - kexp(r), x);
    }
    var p = -5.96761703e-4;
    p = p * s + 4.99119423e-3;
    p = p * s - 2.67681349e-2;
    p = p * s + 1.12819925e-1;
    p = p * s - 3.76125336e-1;
    p = p * s + 1.28379166e-1;
    return p * x + x;
}

// Remainder of a / b with the sign of a, exact.
fn ffmod(a: f32, b: f32) -> f32 {
    let ub = bitcast<u32>(b) & 0x7fffffffu;
    let ua = bitcast<u32>(a) & 0x7fffffffu;
    let sign = bitcast<u32>(a) & 0x80000000u;
    if (ub == 0u || ub > 0x7f800000u || ua >= 0x7f800000u) {
        return cf(0x7fc00000u);
    }
    if (ua < ub) {
        return a;
    }
    var ea = i32(ua >> 23u);
    var ma = ua & 0x7fffffu;
    if (ea == 0) {
        ea = 1;
    } else {
        ma = ma | 0x800000u;
    }
    var eb = i32(ub >> 23u);
    var mb = ub & 0x7fffffu;
    if (eb == 0) {
        eb = 1;
    } else {
        mb = mb | 0x800000u;
    }
    // A subnormal divisor is shifted up, so that the quotient's bits come one at a time.
    let z = countLeadingZeros(mb) - 8u;
    mb = mb << z;
    eb = eb - i32(z);
    let y = countLeadingZeros(ma) - 8u;
    ma = ma << y;
    ea = ea - i32(y);
    for (; ea > eb; ea--) {
        if (ma >= mb) {
            ma = ma - mb;
        }
        ma = ma << 1u;
    }
    if (ma >= mb) {
        ma = ma - mb;
    }
    if (ma == 0u) {
        return bitcast<f32>(sign);
    }
    let n = countLeadingZeros(ma) - 8u;
    ma = ma << n;
    let e = eb - i32(n);
    if (e > 0) {
        return bitcast<f32>(sign | (u32(e) << 23u) | (ma & 0x7fffffu));
    }
    return bitcast<f32>(sign | (ma >> u32(1 - e)));
}

fn fmodulo(a: f32, b: f32) -> f32 {
    let r = ffmod(a, b);
    if (r == 0.0) {
        return cf(bitcast<u32>(b) & 0x80000000u);
    }
    return select(r, r + b, (r < 0.0) != (b < 0.0));
}

fn ffloordiv(a: f32, b: f32) -> f32 {
    let q = a / b;
    if (not_finite(q) || not_finite(b) || b == 0.0 || abs(q) > 8388608.0) {
        return floor(q);
    }
    let r = ffmod(a, b);
    let n = round((a - r) / b);
    return select(n, n - 1.0, r != 0.0 && (r < 0.0) != (b < 0.0));
}

fn high_bits(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u);
}

// 2^(h + l) for a small l.
fn exp2_sum(h: f32, l: f32) -> f32 {
    let s = h + l;
    if (s > 128.5) {
        return cf(0x7f800000u);
    }
    if (s < -151.0) {
        return 0.0;
    }
    let k = round(s);
    let r = ((h - k) + l) * 0.6931471805599453;
    return scale2(1.0 + expm1_small(r), i32(k));
}

// x^y for finite x > 0: y log2(x) with the logarithm in two parts.
fn pow_positive(x: f32, y: f32) -> f32 {
    var u = bitcast<u32>(x);
    var e = -127;
    if (u < 0x00800000u) {
        let z = countLeadingZeros(u) - 8u;
        u = u << z;
        e = e - i32(z);
    }
    e = e + i32(u >> 23u);
    u = (u & 0x7fffffu) | 0x3f800000u;
    if (u > 0x3fb504f3u) {
        u = u - 0x800000u;
        e = e + 1;
    }
    let f = bitcast<f32>(u) - 1.0;
    let d = 2.0 + f;
    let dh = high_bits(d);
    let dl = f - (dh - 2.0);
    let qh = high_bits(f / d);
    let ql = ((f - qh * dh) - qh * dl) / d;
    let q = qh + ql;
    let z = q * q;
    let tail = q * z * (0.66666667 + z * (0.4 + z * (0.28571429 + z * (0.22222222 + z * 0.1818))));
    // ln(m) = 2 qh + rest; 1/ln 2 = 1.4423828125 + 3.1222846e-4.
    let rest = 2.0 * ql + tail;
    let lh = high_bits(2.0 * qh * 1.4423828125 + rest * 1.4426950408889634);
    let main = 2.0 * qh * 1.4423828125;
    let ll = ((main - lh) + rest * 1.4426950408889634) + 2.0 * qh * 3.1222846e-4;
    let k = f32(e);
    let sh = high_bits(k + lh);
    let sl = ((k - sh) + lh) + ll;
    let yh = high_bits(y);
    let yl = y - yh;
    return exp2_sum(sh * yh, sh * yl + sl * y);
}

fn kpow(x: f32, y: f32) -> f32 {
    if (!fnonzero(y) || x == 1.0) {
        return 1.0;
    }
    if (is_nan(x) || is_nan(y)) {
        return cf(0x7fc00000u);
    }
    let a = abs(x);
    let whole = abs(y) >= 16777216.0 || floor(y) == y;
    let odd = whole && abs(y) < 16777216.0 && (i32(y) & 1) == 1;
    let negative = (bitcast<u32>(x) & 0x80000000u) != 0u;
    var r: f32;
    if (is_inf(y)) {
        if (a == 1.0) {
            return 1.0;
        }
        return select(0.0, cf(0x7f800000u), (a > 1.0) == (y > 0.0));
    }
    if (!fnonzero(x)) {
        r = select(cf(0x7f800000u), 0.0, y > 0.0);
    } else if (is_inf(x)) {
        r = select(0.0, cf(0x7f800000u), y > 0.0);
    } else if (negative && !whole) {
        return cf(0x7fc00000u);
    } else if (abs(y) > 2e9) {
        r = 1.0;
        if (a != 1.0) {
            r = select(0.0, cf(0x7f800000u), (a > 1.0) == (y > 0.0));
        }
    } else {
        r = pow_positive(a, y);
    }
    return select(r, -r, negative && odd);
}

fn nearest(x: f32) -> f32 {
    return round(x);
}

// Quotients of f16.
fn fquotient(a: f32, b: f32) -> f32 {
    return a / b;
}

// Devices may multiply by the reciprocal of b, which is zero for the greatest numbers.
fn kquotient(a: f32, b: f32) -> f32 {
    let by = select(1.0, 0.0625, abs(b) > 1e37);
    return (a * by) / (b * by);
}

// Stand-ins for what a generated module takes from storage.wgsl.

fn cf(bits: u32) -> f32 {
    return bitcast<f32>(bits);
}

fn ci64(high: u32, low: u32) -> i64 {
    return (i64(high) << 32u) | i64(low);
}

fn is_nan(x: f32) -> bool {
    return x != x;
}

fn is_inf(x: f32) -> bool {
    return abs(x) > 3.4028234e38;
}
