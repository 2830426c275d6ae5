// Updates at the places that indices say: a thread that owns a part of the result makes updates lo() .. hi() in order. Inputs: x,
// which the result starts as, indices, updates.

struct ScatterElementsParams {
    axis: u32,
    size: u32,
    updates: u32,
    lines: List,
    index_strides: List,
    strides: List,
}

fn scatter_elements_params() -> ScatterElementsParams {
    return ScatterElementsParams(
        word(0u),
        word(1u),
        word(2u),
        List(word(3u), word(4u)),
        List(word(5u), word(6u)),
        List(word(7u), word(8u)),
    );
}

struct ScatterNdParams {
    tuples: u32,
    slice: u32,
    sizes: List,
    strides: List,
}

fn scatter_nd_params() -> ScatterNdParams {
    return ScatterNdParams(
        word(0u),
        word(1u),
        List(word(2u), word(3u)),
        List(word(4u), word(5u)),
    );
}

fn scatter_copy(at: u32) -> Value {
    return x0(at);
}

// A thread a line along the axis.
@compute @workgroup_size(64)
fn scatter_elements(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let p = scatter_elements_params();
    var rest = t;
    var index = 0u;
    var to = 0u;
    for (var d = p.lines.count; d > 0u; d--) {
        let n = item(p.lines, d - 1u);
        let c = rest % n;
        rest = rest / n;
        index += c * item(p.index_strides, d - 1u);
        to += c * item(p.strides, d - 1u);
    }
    let step = item(p.index_strides, p.axis);
    let stride = item(p.strides, p.axis);
    for (var u = lo(); u < hi(); u++) {
        let at = index + u * step;
        let i = from_end(x1(at), p.size);
        if (i >= 0) {
            let place = to + u32(i) * stride;
            emit0(place, combine(ry0(place), x2(at)));
        }
    }
}

// A thread an element of a slice.
@compute @workgroup_size(64)
fn scatter_nd(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let p = scatter_nd_params();
    let depth = p.sizes.count;
    for (var u = lo(); u < hi(); u++) {
        var place = t;
        var inside = true;
        for (var d = 0u; d < depth; d++) {
            let i = from_end(x1(u * depth + d), item(p.sizes, d));
            inside = inside && i >= 0;
            place += u32(max(i, 0)) * item(p.strides, d);
        }
        if (inside) {
            emit0(place, combine(ry0(place), x2(u * p.slice + t)));
        }
    }
}

// Stand-ins for what a generated module defines.

fn word(k: u32) -> u32 {
    return k;
}

fn lo() -> u32 {
    return 0u;
}

fn hi() -> u32 {
    return 1u;
}

fn grid() -> u32 {
    return 1u;
}

fn block_of(id: vec3<u32>, count: vec3<u32>) -> u32 {
    return id.x;
}

struct List {
    first: u32,
    count: u32,
}

fn item(list: List, i: u32) -> u32 {
    return list.first + i;
}

alias Value = f32;
alias Index = i32;

fn x0(at: u32) -> Value {
    return Value();
}

fn x1(at: u32) -> Index {
    return Index();
}

fn x2(at: u32) -> Value {
    return Value();
}

fn ry0(at: u32) -> Value {
    return Value();
}

fn emit0(at: u32, v: Value) {
}

fn combine(old: Value, update: Value) -> Value {
    return update;
}

fn from_end(v: Index, n: u32) -> i32 {
    return i32(v);
}
