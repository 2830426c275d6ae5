// Sorting by bitonic networks: a launch for each step, a thread for each pair. `before(row, a, b)` orders the sorted_count()
// numbers of a row, of which scratch[row * sorted_width() + place] has those in order; the width is a power of two, and what lies
// beyond the count comes last.

@compute @workgroup_size(64)
fn number_all(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    scratch[t] = t % sorted_width();
}

fn goes_before(row: u32, a: u32, b: u32) -> bool {
    if (a >= sorted_count() || b >= sorted_count()) {
        return a < b;
    }
    return before(row, a, b) || (!before(row, b, a) && a < b);
}

// Sorts runs of hi() numbers, upward and downward in turn, by pairs lo() apart.
@compute @workgroup_size(64)
fn sort_step(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let width = sorted_width();
    let row = t / (width / 2u);
    let p = t % (width / 2u);
    let i = p / lo() * lo() * 2u + p % lo();
    let at = row * width + i;
    let a = scratch[at];
    let b = scratch[at + lo()];
    let upward = (i & hi()) == 0u;
    if (goes_before(row, b, a) == upward) {
        scratch[at] = b;
        scratch[at + lo()] = a;
    }
}

// Stand-ins for what a generated module defines.

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

@group(0) @binding(1) var<storage, read_write> scratch: array<u32>;

fn sorted_count() -> u32 {
    return 1u;
}

fn sorted_width() -> u32 {
    return 1u;
}

fn before(row: u32, a: u32, b: u32) -> bool {
    return a < b;
}
