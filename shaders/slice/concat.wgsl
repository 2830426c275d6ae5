// One input of a concatenation, of hi() elements: a thread eight neighbours.

struct ConcatParams {
    own: u32,
    whole: u32,
    start: u32,
}

fn concat_params() -> ConcatParams {
    return ConcatParams(
        word(0u),
        word(1u),
        word(2u),
    );
}

@compute @workgroup_size(64)
fn concat(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let p = concat_params();
    let first = t * 8u;
    if (first + 8u <= hi() && first % p.own + 8u <= p.own) {
        let to = concat_place(p, first);
        let a = fx0(first, 1u);
        let b = fx0(first + 4u, 1u);
        emit_four0(to, a);
        emit_four0(to + 4u, b);
        return;
    }
    for (var at = first; at < min(first + 8u, hi()); at++) {
        emit0(concat_place(p, at), x0(at));
    }
}

fn concat_place(p: ConcatParams, at: u32) -> u32 {
    return at / p.own * p.whole + p.start + at % p.own;
}

// Stand-ins for what a generated module defines.

fn x0(at: u32) -> f32 {
    return 0.0;
}

fn emit0(at: u32, v: f32) {
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

fn fx0(at: u32, step: u32) -> vec4<f32> {
    return vec4<f32>();
}

fn emit_four0(at: u32, v: vec4<f32>) {
}

fn hi() -> u32 {
    return 1u;
}
