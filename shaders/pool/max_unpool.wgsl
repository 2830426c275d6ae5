// Elements put where the maxima were that a pooling took.

struct MaxUnpoolParams {
    plane: u32,
    pooled: List,
    pooled_strides: List,
    dims: List,
    strides: List,
}

fn max_unpool_params() -> MaxUnpoolParams {
    return MaxUnpoolParams(
        word(0u),
        List(word(1u), word(2u)),
        List(word(3u), word(4u)),
        List(word(5u), word(6u)),
        List(word(7u), word(8u)),
    );
}

fn zeros(at: u32) -> Value {
    return ZERO;
}

// A thread a plane of x: elements lo() .. hi().
@compute @workgroup_size(64)
fn max_unpool(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let p = max_unpool_params();
    for (var i = lo(); i < hi(); i++) {
        let source = t * p.plane + i;
        let index = x1(source);
        var ok = index >= 0li && index <= 2147483647li;
        var rest = u32(i32(index));
        var to = 0u;
        for (var d = 0u; d < p.pooled.count; d++) {
            let stride = max(item(p.pooled_strides, d), 1u);
            let c = rest / stride;
            rest = rest % stride;
            ok = ok && c < item(p.pooled, d) && c < item(p.dims, d);
            to += c * item(p.strides, d);
        }
        if (ok) {
            emit0(to, x0(source));
        }
    }
}

// Stand-ins for what a generated module defines.

alias Value = f32;
const ZERO: Value = 0.0;

fn x0(at: u32) -> Value {
    return ZERO;
}

fn x1(at: u32) -> i64 {
    return 0li;
}

fn emit0(at: u32, v: Value) {
}

struct List {
    first: u32,
    count: u32,
}

fn item(list: List, i: u32) -> u32 {
    return list.first + i;
}

fn grid() -> u32 {
    return 1u;
}

fn block_of(id: vec3<u32>, count: vec3<u32>) -> u32 {
    return id.x;
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
