// Elements that indices pick: slices along an axis, single elements along an axis, slices by tuples of indices.

// The position along an axis of n elements that an index means: from the end if it is negative, -1 if it is out of range.
fn from_end(v: Index, n: u32) -> i32 {
    var k = v;
    if (k < Index(0)) {
        k = k + Index(n);
    }
    if (k < Index(0) || k >= Index(n)) {
        return -1;
    }
    return i32(k);
}

struct GatherParams {
    size: u32,
    after: u32,
    picked: u32,
    before: u32,
}

fn gather_params() -> GatherParams {
    return GatherParams(
        word(0u),
        word(1u),
        word(2u),
        word(3u),
    );
}

fn gather(at: u32) -> Value {
    let p = gather_params();
    let low = at % p.after;
    let pick = at / p.after % p.picked;
    let slice = at / p.after / p.picked;
    let i = from_end(x1(slice / p.before * p.picked + pick), p.size);
    if (i < 0) {
        return GAP;
    }
    return x0((slice * p.size + u32(i)) * p.after + low);
}

// The run that begins with an element: the rest of its slice.
fn gather_run(at: u32) -> Run {
    let p = gather_params();
    let low = at % p.after;
    let pick = at / p.after % p.picked;
    let slice = at / p.after / p.picked;
    let i = from_end(x1(slice / p.before * p.picked + pick), p.size);
    let left = select(p.after - low, 0u, i < 0);
    return Run((slice * p.size + u32(i)) * p.after + low, 1u, left, 0u, p.after, 0u, left);
}

struct GatherElementsParams {
    axis: u32,
    size: u32,
    dims: List,
    strides: List,
    far_strides: List,
}

fn gather_elements_params() -> GatherElementsParams {
    return GatherElementsParams(
        word(0u),
        word(1u),
        List(word(2u), word(3u)),
        List(word(4u), word(5u)),
        List(word(6u), word(7u)),
    );
}

fn gather_elements(at: u32) -> Value {
    let p = gather_elements_params();
    let i = from_end(x1(at), p.size);
    if (i < 0) {
        return GAP;
    }
    var rest = at;
    var source = 0u;
    for (var d = p.dims.count; d > 0u; d--) {
        let n = item(p.dims, d - 1u);
        let c = select(rest % n, u32(i), d - 1u == p.axis);
        rest = rest / n;
        source += c * item(p.strides, d - 1u);
    }
    return x0(source);
}

struct GatherNdParams {
    slice: u32,
    tuples: u32,
    batch: u32,
    far_batch: u32,
    sizes: List,
    strides: List,
    far_strides: List,
}

fn gather_nd_params() -> GatherNdParams {
    return GatherNdParams(
        word(0u),
        word(1u),
        word(2u),
        word(3u),
        List(word(4u), word(5u)),
        List(word(6u), word(7u)),
        List(word(8u), word(9u)),
    );
}

fn gather_nd(at: u32) -> Value {
    let p = gather_nd_params();
    let tuple = at / p.slice;
    var source = tuple / p.tuples * p.batch + at % p.slice;
    for (var d = 0u; d < p.sizes.count; d++) {
        let i = from_end(x1(tuple * p.sizes.count + d), item(p.sizes, d));
        if (i < 0) {
            return GAP;
        }
        source += u32(i) * item(p.strides, d);
    }
    return x0(source);
}

// The run that begins with an element: the rest of its slice.
fn gather_nd_run(at: u32) -> Run {
    let p = gather_nd_params();
    let tuple = at / p.slice;
    var run = Run(tuple / p.tuples * p.batch + at % p.slice, 1u, p.slice - at % p.slice, 0u, p.slice, 0u, 0u);
    for (var d = 0u; d < p.sizes.count; d++) {
        let i = from_end(x1(tuple * p.sizes.count + d), item(p.sizes, d));
        if (i < 0) {
            return run;
        }
        run.start += u32(i) * item(p.strides, d);
    }
    run.both = run.left;
    return run;
}

// Stand-ins for what a generated module defines.

alias Value = f32;
alias Index = i32;
const GAP: Value = 0.0;

fn x0(at: u32) -> Value {
    return GAP;
}

fn x1(at: u32) -> Index {
    return Index(0);
}

struct List {
    first: u32,
    count: u32,
}

fn item(list: List, i: u32) -> u32 {
    return list.first + i;
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
