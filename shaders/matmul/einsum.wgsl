// Sums of products under labels.

struct EinsumParams {
    terms: u32,
    dims: List,
    strides: List,
    inner: List,
    inner_strides: List,
}

fn einsum_params() -> EinsumParams {
    return EinsumParams(
        word(0u),
        List(word(1u), word(2u)),
        List(word(3u), word(4u)),
        List(word(5u), word(6u)),
        List(word(7u), word(8u)),
    );
}

// The sum of terms lo() .. hi(), added to what the launches before found.
fn einsum_sum(at: u32) -> Value {
    let p = einsum_params();
    var start: array<u32, INPUTS>;
    var rest = at;
    for (var d = p.dims.count; d > 0u; d--) {
        let n = item(p.dims, d - 1u);
        let c = rest % n;
        rest = rest / n;
        for (var i = 0u; i < INPUTS; i++) {
            start[i] += c * item(p.strides, p.dims.count * i + d - 1u);
        }
    }
    var sum = resume(at, ZERO);
    for (var t = lo(); t < hi(); t++) {
        var places = start;
        rest = t;
        for (var d = p.inner.count; d > 0u; d--) {
            let n = item(p.inner, d - 1u);
            let c = rest % n;
            rest = rest / n;
            for (var i = 0u; i < INPUTS; i++) {
                places[i] += c * item(p.inner_strides, p.inner.count * i + d - 1u);
            }
        }
        sum += product(places);
    }
    return sum;
}

fn einsum(at: u32) -> Value {
    return einsum_sum(at);
}

// Stand-ins for what a generated module defines.

alias Value = f32;
const ZERO: Value = 0.0;
const INPUTS: u32 = 2u;

fn product(places: array<u32, 2>) -> Value {
    return ZERO;
}

fn resume(at: u32, start: Value) -> Value {
    return start;
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

fn lo() -> u32 {
    return 0u;
}

fn hi() -> u32 {
    return 1u;
}
