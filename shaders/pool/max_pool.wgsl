// Maxima of windows with their positions. A launch goes over taps lo() .. hi().

// The position of the greatest element in its plane, first of equals; -1 without elements.
fn greatest(at: u32) -> i32 {
    let w = windows();
    let start = window_start(w, unflatten(at % volume(w.output), w.output));
    let plane = at / volume(w.output) * volume(w.input);
    var best = resume(at, -1);
    var tap = tap_of(lo(), w.kernel);
    for (var q = lo(); q < hi(); q++) {
        let place = under(start + tap.k * w.dilation, w.input);
        if (place >= 0) {
            if (best < 0) {
                best = place;
            } else if (better(x0(plane + u32(place)), x0(plane + u32(best)))) {
                best = place;
            }
        }
        tap = next_tap(tap, w.kernel);
    }
    return best;
}

fn max_pool(at: u32) -> Value {
    let w = windows();
    let best = greatest(at);
    if (best < 0) {
        return first();
    }
    return x0(at / volume(w.output) * volume(w.input) + u32(best));
}

// The position counts columns first where `COLUMNS`.
fn max_pool_index(at: u32) -> i64 {
    let w = windows();
    let best = greatest(at);
    if (best < 0) {
        return -1li;
    }
    let p = unflatten(u32(best), w.input);
    let by_columns = u32((p.z * w.input.y + p.y) * w.input.x + p.x);
    return i64(i32(at / volume(w.output) * volume(w.input) + select(u32(best), by_columns, COLUMNS)));
}

// Stand-ins for what a generated module or the file of windows defines.

struct Windows {
    input: vec3<i32>,
    output: vec3<i32>,
    kernel: vec3<i32>,
    stride: vec3<i32>,
    dilation: vec3<i32>,
    begin: vec3<i32>,
    end: vec3<i32>,
}

fn windows() -> Windows {
    let none = vec3<i32>(1);
    return Windows(none, none, none, none, none, none, none);
}

fn volume(size: vec3<i32>) -> u32 {
    return u32(size.x);
}

fn unflatten(at: u32, size: vec3<i32>) -> vec3<i32> {
    return size;
}

struct Tap {
    k: vec3<i32>,
    channel: u32,
}

fn tap_of(q: u32, kernel: vec3<i32>) -> Tap {
    return Tap(kernel, q);
}

fn next_tap(t: Tap, kernel: vec3<i32>) -> Tap {
    return t;
}

fn window_start(w: Windows, o: vec3<i32>) -> vec3<i32> {
    return o;
}

fn under(p: vec3<i32>, size: vec3<i32>) -> i32 {
    return p.x;
}

alias Value = f32;
const COLUMNS: bool = false;

fn first() -> Value {
    return Value(0);
}

fn better(a: Value, b: Value) -> bool {
    return a > b;
}

fn x0(at: u32) -> Value {
    return Value(0);
}

fn resume(at: u32, start: i32) -> i32 {
    return start;
}

fn lo() -> u32 {
    return 0u;
}

fn hi() -> u32 {
    return 1u;
}
