// 1 at the first greatest element of a line, 0 elsewhere. NaN is the greatest. The first launches find the greatest element of
// each line, the last one tells which it is.

struct LineParams {
    count: u32,
    inner: u32,
}

fn line_params() -> LineParams {
    return LineParams(
        word(0u),
        word(1u),
    );
}

// The place of the greatest of elements lo() .. hi() of a line and those of the launches before.
fn hardmax_place(line: u32) -> i32 {
    let p = line_params();
    let base = line / p.inner * p.count * p.inner + line % p.inner;
    var best = resume(line, 0);
    for (var i = lo(); i < hi(); i++) {
        let b = x0(base + u32(best) * p.inner);
        let x = x0(base + i * p.inner);
        if (!is_nan(b) && (is_nan(x) || flt(b, x))) {
            best = i32(i);
        }
    }
    return best;
}

fn hardmax(at: u32) -> f32 {
    let p = line_params();
    let line = at / (p.count * p.inner) * p.inner + at % p.inner;
    return select(0.0, 1.0, i32(at / p.inner % p.count) == kept(line));
}

// Stand-ins for what a generated module defines.

fn word(k: u32) -> u32 {
    return k;
}

fn lo() -> u32 {
    return 0u;
}

fn hi() -> u32 {
    return 1u;
}

fn x0(at: u32) -> f32 {
    return 0.0;
}

fn is_nan(x: f32) -> bool {
    return x != x;
}

fn resume(at: u32, start: i32) -> i32 {
    return start;
}

fn kept(at: u32) -> i32 {
    return 0;
}

fn flt(a: f32, b: f32) -> bool {
    return a < b;
}
