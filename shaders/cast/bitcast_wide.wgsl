// Bits of elements as another type of 64 bits: there are two threads for an element, the first half of them copies.

struct BitcastParams {
    cells: u32,
}

fn bitcast_params() -> BitcastParams {
    return BitcastParams(
        word(0u),
    );
}

@compute @workgroup_size(64)
fn copy_wide(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t < min(grid(), bitcast_params().cells)) {
        emit0(t, x0(t));
    }
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
