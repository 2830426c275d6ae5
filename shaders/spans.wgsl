// Sums that take several launches: each goes on where the one in front of it ended, and keeps its numbers in scratch memory.

@compute @workgroup_size(64)
fn keep_part_of_sum(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t < grid()) {
        keep(t, part_of_sum(t));
    }
}

// Stand-ins for what a generated module defines.

fn part_of_sum(at: u32) -> f32 {
    return 0.0;
}

fn keep(at: u32, v: f32) {
}

fn grid() -> u32 {
    return 1u;
}

fn block_of(id: vec3<u32>, count: vec3<u32>) -> u32 {
    return id.x;
}
