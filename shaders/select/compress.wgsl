// Listed slices along an axis.

struct CompressParams {
    inner: u32,
    kept: u32,
    whole: u32,
}

fn compress_params() -> CompressParams {
    return CompressParams(
        word(0u),
        word(1u),
        word(2u),
    );
}

fn compress(at: u32) -> Value {
    let p = compress_params();
    let slice = scratch[at / p.inner % p.kept];
    return x0((at / p.inner / p.kept * p.whole + slice) * p.inner + at % p.inner);
}

// Stand-ins for what a generated module defines.

fn word(k: u32) -> u32 {
    return k;
}

@group(0) @binding(1) var<storage, read_write> scratch: array<u32>;

alias Value = f32;

fn x0(at: u32) -> Value {
    return 0.0;
}
