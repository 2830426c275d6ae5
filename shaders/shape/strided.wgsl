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
