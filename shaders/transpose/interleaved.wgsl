// Transposes whose rows are two or four elements, of as many rows of the input: a thread has four neighbours of each.

struct TransposeInterleavedParams {
    across: u32,
    down: u32,
    step: u32,
    dims: List,
    strides: List,
    out_strides: List,
}

fn transpose_interleaved_params() -> TransposeInterleavedParams {
    return TransposeInterleavedParams(
        word(0u),
        word(1u),
        word(2u),
        List(word(3u), word(4u)),
        List(word(5u), word(6u)),
        List(word(7u), word(8u)),
    );
}

@compute @workgroup_size(64)
fn transpose_interleaved(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let p = transpose_interleaved_params();
    let fours = (p.down + 3u) / 4u;
    let q = t % fours * 4u;
    let start = strided(p.dims, p.strides, t / fours) + q;
    let to = strided(p.dims, p.out_strides, t / fours) + q * p.across;
    if (q + 4u > p.down) {
        for (var i = 0u; i < (p.down - q) * p.across; i++) {
            emit0(to + i, x0(start + i / p.across + i % p.across * p.step));
        }
        return;
    }
    let a = fx0(start, 1u);
    let b = fx0(start + p.step, 1u);
    if (p.across == 2u) {
        emit_four0(to, vec4<Value>(a.x, b.x, a.y, b.y));
        emit_four0(to + 4u, vec4<Value>(a.z, b.z, a.w, b.w));
        return;
    }
    let c = fx0(start + 2u * p.step, 1u);
    let d = fx0(start + 3u * p.step, 1u);
    emit_four0(to, vec4<Value>(a.x, b.x, c.x, d.x));
    emit_four0(to + 4u, vec4<Value>(a.y, b.y, c.y, d.y));
    emit_four0(to + 8u, vec4<Value>(a.z, b.z, c.z, d.z));
    emit_four0(to + 12u, vec4<Value>(a.w, b.w, c.w, d.w));
}

// Stand-ins for what a generated module defines.

alias Value = f32;

struct List {
    first: u32,
    count: u32,
}

fn strided(dims: List, strides: List, at: u32) -> u32 {
    return at;
}

fn x0(at: u32) -> Value {
    return Value();
}

fn fx0(at: u32, step: u32) -> vec4<Value> {
    return vec4<Value>();
}

fn emit0(at: u32, v: Value) {
}

fn emit_four0(at: u32, v: vec4<Value>) {
}

fn word(k: u32) -> u32 {
    return k;
}

fn grid() -> u32 {
    return 1u;
}

fn block_of(id: vec3<u32>, count: vec3<u32>) -> u32 {
    return id.x;
}
