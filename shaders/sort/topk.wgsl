// The first elements of each line along an axis in the order `precedes`, equal ones by position.

struct SortedTopkParams {
    count: u32,
    width: u32,
    inner: u32,
    kept: u32,
}

fn sorted_topk_params() -> SortedTopkParams {
    return SortedTopkParams(
        word(0u),
        word(1u),
        word(2u),
        word(3u),
    );
}

// Finds the rank of an element in its line.
@compute @workgroup_size(64)
fn rank(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let p = sorted_topk_params();
    let i = (t / p.inner) % p.count;
    let outer = t / p.inner / p.count;
    let base = outer * p.count * p.inner + t % p.inner;
    let v = x0(t);
    var place = 0u;
    for (var j = 0u; j < p.count; j++) {
        let u = x0(base + j * p.inner);
        if (precedes(u, v) || (j < i && !precedes(v, u))) {
            place++;
        }
    }
    if (place < p.kept) {
        let to = (outer * p.kept + place) * p.inner + t % p.inner;
        emit0(to, v);
        emit1(to, i64(i32(i)));
    }
}

fn sorted_count() -> u32 {
    return sorted_topk_params().count;
}

fn sorted_width() -> u32 {
    return sorted_topk_params().width;
}

fn element_at(row: u32, i: u32) -> u32 {
    let p = sorted_topk_params();
    return (row / p.inner * p.count + i) * p.inner + row % p.inner;
}

fn before(row: u32, a: u32, b: u32) -> bool {
    return precedes(x0(element_at(row, a)), x0(element_at(row, b)));
}

// Takes an element of the result from sorted lines.
@compute @workgroup_size(64)
fn take(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let p = sorted_topk_params();
    let row = t / (p.kept * p.inner) * p.inner + t % p.inner;
    let i = scratch[row * p.width + t / p.inner % p.kept];
    emit0(t, x0(element_at(row, i)));
    emit1(t, i64(i32(i)));
}

// Stand-ins for what a generated module defines.

fn word(k: u32) -> u32 {
    return k;
}

fn grid() -> u32 {
    return 1u;
}

fn block_of(id: vec3<u32>, count: vec3<u32>) -> u32 {
    return id.x;
}

@group(0) @binding(1) var<storage, read_write> scratch: array<u32>;

fn x0(at: u32) -> f32 {
    return 0.0;
}

fn emit0(at: u32, v: f32) {
}

fn emit1(at: u32, v: i64) {
}

fn precedes(a: f32, b: f32) -> bool {
    return a > b;
}
