// Tensors of loops: cut along an axis into slots, one for each iteration, or stacked from slots.

struct RearrangeParams {
    bits: u32,
    stacks: u32,
    rows: u32,
    length: u32,
    inner: u32,
    slot: u32,
    filled: u32,
    reverse: u32,
}

fn rearrange_params() -> RearrangeParams {
    return RearrangeParams(
        word(0u),
        word(1u),
        word(2u),
        word(3u),
        word(4u),
        word(5u),
        word(6u),
        word(7u),
    );
}

@group(0) @binding(1) var<storage, read_write> source: array<u32>;

@group(0) @binding(2) var<storage, read_write> result: array<u32>;

fn unit_at(p: RearrangeParams, at: u32) -> u32 {
    let each = 32u / p.bits;
    let cell = source[at / each];
    if (p.bits == 32u) {
        return cell;
    }
    return (cell >> (at % each * p.bits)) & ((1u << p.bits) - 1u);
}

// Unit `at` of a tensor that slots are stacked to.
fn stacked(p: RearrangeParams, at: u32) -> u32 {
    let row = at / (p.length * p.inner);
    let place = at / p.inner % p.length;
    if (row >= p.rows || place >= p.filled) {
        return 0u;
    }
    let slot = select(place, p.filled - 1u - place, p.reverse != 0u);
    return unit_at(p, slot * p.slot + row * p.inner + at % p.inner);
}

// Unit `at` of the slots that a tensor is cut into.
fn cut(p: RearrangeParams, at: u32) -> u32 {
    let slot = at / p.slot;
    let within = at % p.slot;
    let row = within / p.inner;
    if (row >= p.rows || slot >= p.length) {
        return 0u;
    }
    return unit_at(p, (row * p.length + slot) * p.inner + within % p.inner);
}

@compute @workgroup_size(64)
fn rearrange(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let p = rearrange_params();
    let each = 32u / p.bits;
    var cell = 0u;
    for (var i = 0u; i < each; i++) {
        let at = t * each + i;
        var unit = 0u;
        if (p.stacks != 0u) {
            unit = stacked(p, at);
        } else {
            unit = cut(p, at);
        }
        cell |= unit << (i * p.bits);
    }
    result[t] = cell;
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
