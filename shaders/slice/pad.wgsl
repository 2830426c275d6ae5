// A part of x with more around it.

struct PadParams {
    dims: List,
    sizes: List,
    strides: List,
    before: List,
}

fn pad_params() -> PadParams {
    return PadParams(
        List(word(0u), word(1u)),
        List(word(2u), word(3u)),
        List(word(4u), word(5u)),
        List(word(6u), word(7u)),
    );
}

// Value outside of x, by `MODE`.
const CONSTANT: u32 = 0u;
const EDGE: u32 = 1u;
const WRAP: u32 = 2u;

// The element that stands at position i of an axis of n elements; -1 if there is none.
fn around(i: i32, n: i32) -> i32 {
    if (MODE == EDGE) {
        return clamp(i, 0, n - 1);
    }
    if (MODE == CONSTANT) {
        return select(i, -1, i < 0 || i >= n);
    }
    if (n <= 0) {
        return -1;
    }
    if (MODE == WRAP) {
        return ((i % n) + n) % n;
    }
    let period = 2 * max(n - 1, 1);
    let c = ((i % period) + period) % period;
    return select(period - c, c, c < n);
}

fn pad(at: u32) -> Value {
    let p = pad_params();
    var rest = at;
    var source = 0u;
    for (var d = p.dims.count; d > 0u; d--) {
        let n = item(p.dims, d - 1u);
        let c = around(i32(rest % n) - item_i32(p.before, d - 1u), i32(item(p.sizes, d - 1u)));
        rest = rest / n;
        if (c < 0) {
            return gap();
        }
        source += u32(c) * item(p.strides, d - 1u);
    }
    return x0(source);
}

// The run that begins with an element, which goes no further than x along the last axis.
fn pad_run(at: u32) -> Run {
    let p = pad_params();
    var run = Run(0u, 1u, 0u, 0u, 1u, 0u, 0u);
    var rest = at;
    for (var d = p.dims.count; d > 0u; d--) {
        let n = item(p.dims, d - 1u);
        let size = i32(item(p.sizes, d - 1u));
        let i = i32(rest % n) - item_i32(p.before, d - 1u);
        let c = around(i, size);
        rest = rest / n;
        if (c < 0) {
            run.both = 0u;
            return run;
        }
        run.start += u32(c) * item(p.strides, d - 1u);
        if (d == p.dims.count && i >= 0 && i < size) {
            run.step = item(p.strides, d - 1u);
            run.left = min(u32(size - i), n - u32(i + item_i32(p.before, d - 1u)));
            run.inner = run.left;
            run.both = run.left;
        }
    }
    return run;
}

// Stand-ins for what a generated module defines.

alias Value = f32;
const MODE: u32 = 3u;

fn gap() -> Value {
    return 0.0;
}

fn x0(at: u32) -> Value {
    return 0.0;
}

struct List {
    first: u32,
    count: u32,
}

fn item(list: List, i: u32) -> u32 {
    return list.first + i;
}

fn item_i32(list: List, i: u32) -> i32 {
    return i32(list.first + i);
}

fn word(k: u32) -> u32 {
    return k;
}

struct Run {
    start: u32,
    step: u32,
    left: u32,
    skip: u32,
    inner: u32,
    outer: u32,
    both: u32,
}
