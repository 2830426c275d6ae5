// Elements by affine index arithmetic: that at c of the result is that at offset + sum of c * stride of the input.

struct StridedParams {
    offset: u32,
    far_offset: u32,
    dims: List,
    strides: List,
    far_strides: List,
}

fn strided_params() -> StridedParams {
    return StridedParams(
        word(0u),
        word(1u),
        List(word(2u), word(3u)),
        List(word(4u), word(5u)),
        List(word(6u), word(7u)),
    );
}

fn strided_copy(at: u32) -> Value {
    let p = strided_params();
    return x0(p.offset + strided(p.dims, p.strides, at));
}

// The run that begins with an element.
fn strided_copy_run(at: u32) -> Run {
    let p = strided_params();
    let rank = p.dims.count;
    var run = Run(p.offset, 0u, 1u, 0u, 1u, 0u, 1u);
    var rest = at;
    for (var d = rank; d > 0u; d--) {
        let n = item(p.dims, d - 1u);
        let c = rest % n;
        let s = item(p.strides, d - 1u);
        rest = rest / n;
        run.start += c * s;
        if (d == rank) {
            run.step = s;
            run.left = n - c;
            run.skip = c;
            run.inner = n;
            run.both = n - c;
        } else if (d + 1u == rank) {
            run.outer = s;
            run.both += (n - 1u - c) * run.inner;
        }
    }
    return run;
}

// Stand-ins for what a generated module defines.

alias Value = f32;

fn x0(at: u32) -> Value {
    return 0.0;
}

struct List {
    first: u32,
    count: u32,
}

fn strided(dims: List, strides: List, at: u32) -> u32 {
    return at;
}

fn word(k: u32) -> u32 {
    return k;
}

fn item(list: List, i: u32) -> u32 {
    return list.first + i;
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
