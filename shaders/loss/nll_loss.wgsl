// Negative log-likelihood losses. Inputs: logarithms of probabilities, targets, weights of classes (HAS_WEIGHTS).

struct NllLossParams {
    classes: u32,
    inner: u32,
    targets: u32,
    ignores: u32,
    ignored: i32,
}

fn nll_loss_params() -> NllLossParams {
    return NllLossParams(
        word(0u),
        word(1u),
        word(2u),
        word(3u),
        bitcast<i32>(word(4u)),
    );
}

// The class of target t; the number of classes if it is ignored or is none.
fn class_of(t: u32) -> u32 {
    let p = nll_loss_params();
    let c = near1(t);
    let known = c >= 0 && u32(c) < p.classes && !(p.ignores != 0u && c == p.ignored);
    return select(p.classes, u32(c), known);
}

fn weight_of(c: u32) -> f32 {
    if (HAS_WEIGHTS) {
        return x2(c);
    }
    return 1.0;
}

fn nll_loss(t: u32) -> f32 {
    let p = nll_loss_params();
    let c = class_of(t);
    if (c == p.classes) {
        return 0.0;
    }
    return -weight_of(c) * x0((t / p.inner * p.classes + c) * p.inner + t % p.inner);
}

var<workgroup> lane_sums: array<vec2<f32>, 64>;

// The losses of all targets: their sum, or their mean by weight. One workgroup sums targets lo() .. hi(). Scratch: sum, its lost
// digits and weights of every thread so far.
@compute @workgroup_size(64)
fn nll_loss_all(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let block = block_of(id, blocks);
    if (block >= grid()) {
        return;
    }
    let p = nll_loss_params();
    // Kahan's summation: the sum is as long as the batch.
    var sum = 0.0;
    var rest = 0.0;
    var weights = 0.0;
    if (lo() > 0u) {
        sum = bitcast<f32>(scratch[lane * 3u]);
        rest = bitcast<f32>(scratch[lane * 3u + 1u]);
        weights = bitcast<f32>(scratch[lane * 3u + 2u]);
    }
    for (var t = lo() + lane; t < hi(); t += 64u) {
        let y = nll_loss(t) - rest;
        let s = sum + y;
        rest = (s - sum) - y;
        sum = s;
        let c = class_of(t);
        if (c < p.classes) {
            weights += weight_of(c);
        }
    }
    if (hi() < p.targets) {
        scratch[lane * 3u] = bitcast<u32>(sum);
        scratch[lane * 3u + 1u] = bitcast<u32>(rest);
        scratch[lane * 3u + 2u] = bitcast<u32>(weights);
        return;
    }
    lane_sums[lane] = vec2<f32>(sum - rest, weights);
    workgroupBarrier();
    if (lane == 0u) {
        var both = vec2<f32>(0.0, 0.0);
        for (var k = 0u; k < 64u; k++) {
            both += lane_sums[k];
        }
        emit0(0u, total(both.x, both.y));
    }
}

// Stand-ins for what a generated module defines.

fn word(k: u32) -> u32 {
    return k;
}

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

fn x0(at: u32) -> f32 {
    return 0.0;
}

fn x2(at: u32) -> f32 {
    return 0.0;
}

fn near1(at: u32) -> i32 {
    return 0;
}

fn emit0(at: u32, v: f32) {
}

const HAS_WEIGHTS: bool = true;

fn total(sum: f32, weights: f32) -> f32 {
    return sum / weights;
}
