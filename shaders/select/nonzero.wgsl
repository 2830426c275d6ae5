// Indices of listed elements: a row for each dimension, a column for each element.

struct NonzeroParams {
    columns: u32,
    strides: List,
    dims: List,
}

fn nonzero_params() -> NonzeroParams {
    return NonzeroParams(
        word(0u),
        List(word(1u), word(2u)),
        List(word(3u), word(4u)),
    );
}

fn nonzero(at: u32) -> i64 {
    let p = nonzero_params();
    let d = at / p.columns;
    let i = scratch[at % p.columns];
    return i64(i32(i / item(p.strides, d) % item(p.dims, d)));
}

// Stand-ins for what a generated module defines.

struct List {
    first: u32,
    count: u32,
}

fn word(k: u32) -> u32 {
    return k;
}

fn item(list: List, i: u32) -> u32 {
    return i;
}

@group(0) @binding(1) var<storage, read_write> scratch: array<u32>;
