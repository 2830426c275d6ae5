// Updates of a cache of keys or values. Inputs: cache, update, and where it goes.

struct KvCacheParams {
    rows: u32,
    updates: u32,
    inside: u32,
    entry: u32,
    circular: u32,
}

fn kv_cache_params() -> KvCacheParams {
    return KvCacheParams(
        word(0u),
        word(1u),
        word(2u),
        word(3u),
        word(4u),
    );
}

// A thread an element of the update; of rows that meet, the last one is written.
@compute @workgroup_size(64)
fn update_rows(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let p = kv_cache_params();
    let low = t % p.inside;
    let row = t / p.inside % p.updates;
    let outer = t / p.inside / p.updates;
    let len = i32(p.rows);
    var to = start(t / p.entry, p.rows) + i32(row);
    if (p.circular != 0u) {
        // A later row of the same place wins.
        if (row + p.rows < p.updates) {
            return;
        }
        to = ((to % len) + len) % len;
    }
    if (to >= 0 && to < len) {
        emit0((outer * p.rows + u32(to)) * p.inside + low, x1(t));
    }
}

@compute @workgroup_size(64)
fn copy_cache(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t < grid()) {
        emit0(t, x0(t));
    }
}

// Stand-ins for what a generated module defines.

fn start(b: u32, rows: u32) -> i32 {
    return 0;
}

fn x0(at: u32) -> f32 {
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
