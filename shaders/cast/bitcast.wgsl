// Bits of elements as another type of at most 32 bits: a thread copies a word, the bits behind the last element as well.

@compute @workgroup_size(64)
fn copy_bits(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t < grid()) {
        put_word0(t, w0(t));
    }
}

// Stand-ins for what a generated module defines.

fn w0(at: u32) -> u32 {
    return 0u;
}

fn put_word0(at: u32, w: u32) {
}

fn grid() -> u32 {
    return 1u;
}

fn block_of(id: vec3<u32>, count: vec3<u32>) -> u32 {
    return id.x;
}
