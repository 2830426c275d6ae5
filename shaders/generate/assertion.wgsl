// How many truth values are false, counted by one block: a size for the host.

var<workgroup> found_by: array<u32, 64>;

// Counts those of elements lo() .. hi(), beside those of the launches before.
@compute @workgroup_size(64)
fn count_false(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let group = block_of(id, blocks);
    if (group >= grid()) {
        return;
    }
    var found = 0u;
    for (var i = lo() + lane; i < hi(); i += 64u) {
        if (!x0(i)) {
            found++;
        }
    }
    found_by[lane] = found;
    workgroupBarrier();
    if (lane == 0u) {
        var total = 0u;
        if (lo() > 0u) {
            total = sizes[0];
        }
        for (var k = 0u; k < 64u; k++) {
            total += found_by[k];
        }
        sizes[0] = total;
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

@group(0) @binding(2) var<storage, read_write> sizes: array<u32>;

fn x0(at: u32) -> bool {
    return at == 0u;
}
