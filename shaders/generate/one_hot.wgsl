// Lines with one value at an index and another one elsewhere. Inputs: indices, depth, the values off and on.

struct OneHotParams {
    depth: u32,
    inner: u32,
}

fn one_hot_params() -> OneHotParams {
    return OneHotParams(
        word(0u),
        word(1u),
    );
}

fn one_hot(at: u32) -> Value {
    let p = one_hot_params();
    let place = i32(at / p.inner % p.depth);
    var index = near0(at / p.inner / p.depth * p.inner + at % p.inner);
    if (index < 0) {
        index = index + i32(p.depth);
    }
    return x2(select(0u, 1u, index == place));
}

// Stand-ins for what a generated module defines.

alias Value = f32;

fn near0(at: u32) -> i32 {
    return 0;
}

fn x2(at: u32) -> Value {
    return 0.0;
}

fn word(k: u32) -> u32 {
    return k;
}
