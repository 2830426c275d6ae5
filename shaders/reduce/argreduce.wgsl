// The position of the greatest or least element along an axis.

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

// The position among elements lo() .. hi() and those of the launches before.
fn argreduce_part(at: u32) -> i32 {
    let p = line_params();
    let base = at / p.inner * p.count * p.inner + at % p.inner;
    var best = resume(at, 0);
    for (var i = lo(); i < hi(); i++) {
        if (replaces(x0(base + u32(best) * p.inner), x0(base + i * p.inner))) {
            best = i32(i);
        }
    }
    return best;
}

fn argreduce(at: u32) -> i64 {
    return i64(argreduce_part(at));
}

// Stand-ins for what a generated module defines.

fn replaces(best: f32, x: f32) -> bool {
    return x > best;
}

fn x0(at: u32) -> f32 {
    return 0.0;
}

fn resume(at: u32, start: i32) -> i32 {
    return start;
}

fn word(k: u32) -> u32 {
    return k;
}

fn lo() -> u32 {
    return 0u;
}

fn hi() -> u32 {
    return 1u;
}
