// A part of a result in place: a thread an element. Inputs: the values of the others, if there are any, and the part.

struct InsertSliceParams {
    run: u32,
    pitch: u32,
    offset: u32,
}

fn insert_slice_params() -> InsertSliceParams {
    return InsertSliceParams(
        word(0u),
        word(1u),
        word(2u),
    );
}

@compute @workgroup_size(64)
fn insert_part(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let p = insert_slice_params();
    emit0(t / p.run * p.pitch + t % p.run + p.offset, x1(t));
}

// The elements around the part.
@compute @workgroup_size(64)
fn copy_rest(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let p = insert_slice_params();
    let at = t % p.pitch;
    if (at < p.offset || at - p.offset >= p.run) {
        emit0(t, rest(t));
    }
}

// Stand-ins for what a generated module defines.

fn rest(at: u32) -> f32 {
    return 0.0;
}

fn x1(at: u32) -> f32 {
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
