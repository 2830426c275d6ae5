// A list in scratch memory of the numbers i < lo() that a kernel keeps, in order: threads count in runs of hi() numbers, one block
// adds the counts up, threads write. The list is at list_at(), the counts at counts_at().

@compute @workgroup_size(64)
fn count_runs(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    var found = 0u;
    for (var i = t * hi(); i < min((t + 1u) * hi(), lo()); i++) {
        if (is_kept(i)) {
            found++;
        }
    }
    scratch[counts_at() + t] = found;
}

var<workgroup> starts: array<u32, 64>;

// Replaces the counts by where each run starts. The total is a size for the host.
@compute @workgroup_size(64)
fn add_up(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let group = block_of(id, blocks);
    if (group >= grid()) {
        return;
    }
    let runs = (lo() + hi() - 1u) / max(hi(), 1u);
    let part = (runs + 63u) / 64u;
    let first = min(lane * part, runs);
    let last = min(first + part, runs);
    var found = 0u;
    for (var i = first; i < last; i++) {
        found += scratch[counts_at() + i];
    }
    starts[lane] = found;
    workgroupBarrier();
    var at = 0u;
    var total = 0u;
    for (var k = 0u; k < 64u; k++) {
        if (k == lane) {
            at = total;
        }
        total += starts[k];
    }
    for (var i = first; i < last; i++) {
        let own = scratch[counts_at() + i];
        scratch[counts_at() + i] = at;
        at += own;
    }
    if (lane == 0u) {
        sizes[0] = total;
    }
}

@compute @workgroup_size(64)
fn write_list(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    var at = list_at() + scratch[counts_at() + t];
    for (var i = t * hi(); i < min((t + 1u) * hi(), lo()); i++) {
        if (is_kept(i)) {
            scratch[at] = i;
            at++;
        }
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

@group(0) @binding(2) var<storage, read_write> sizes: array<u32>;

fn is_kept(i: u32) -> bool {
    return i == 0u;
}

fn list_at() -> u32 {
    return 0u;
}

fn counts_at() -> u32 {
    return 1u;
}
