// Linear attention. Inputs: queries, keys, values; a past state, decays and betas are functions of the generated module.

struct LinearAttentionParams {
    steps: u32,
    q_heads: u32,
    kv_heads: u32,
    rows: u32,
    columns: u32,
    scale: f32,
    decays: u32,
    beta_heads: u32,
    warps: u32,
}

fn linear_attention_params() -> LinearAttentionParams {
    return LinearAttentionParams(
        word(0u),
        word(1u),
        word(2u),
        word(3u),
        word(4u),
        bitcast<f32>(word(5u)),
        word(6u),
        word(7u),
        word(8u),
    );
}

// One thread a column of a state, which lies in scratch memory as the states do. Steps lo() .. hi().
@compute @workgroup_size(64)
fn columns(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let p = linear_attention_params();
    let rows = p.rows;
    let stride = p.columns;
    let j = t % stride;
    let state = t / stride;
    let h = state % p.kv_heads;
    let b = state / p.kv_heads;
    let column = state * rows * stride + j;
    let group = p.q_heads / p.kv_heads;
    if (lo() == 0u) {
        for (var i = 0u; i < rows; i++) {
            scratch[column + i * stride] = bitcast<u32>(past_state(column + i * stride));
        }
    }
    for (var s = lo(); s < hi(); s++) {
        let step = b * p.steps + s;
        let head = step * p.kv_heads + h;
        let key = head * rows;
        let decays = head * p.decays;
        var write = x2(head * stride + j);
        var held = 0.0;
        if (GATED || DELTA) {
            for (var i = 0u; i < rows; i++) {
                var x = bitcast<f32>(scratch[column + i * stride]);
                if (GATED) {
                    x = x * decay(decays + select(0u, i, p.decays != 1u));
                    scratch[column + i * stride] = bitcast<u32>(x);
                }
                held += x * x1(key + i);
            }
        }
        if (DELTA) {
            write = beta(select(step, head, p.beta_heads == 1u)) * (write - held);
        }
        for (var i = 0u; i < rows; i++) {
            let at = column + i * stride;
            scratch[at] = bitcast<u32>(bitcast<f32>(scratch[at]) + x1(key + i) * write);
        }
        for (var g = 0u; g < group; g++) {
            let own = step * p.q_heads + h * group + g;
            var sum = 0.0;
            for (var i = 0u; i < rows; i++) {
                sum += x0(own * rows + i) * bitcast<f32>(scratch[column + i * stride]);
            }
            emit0(own * stride + j, sum * p.scale);
        }
    }
    if (hi() < p.steps) {
        return;
    }
    for (var i = 0u; i < rows; i++) {
        let at = column + i * stride;
        emit1(at, bitcast<f32>(scratch[at]));
    }
}

// Stand-ins for what a generated module defines.

@group(0) @binding(1) var<storage, read_write> scratch: array<u32>;
const GATED: bool = false;
const DELTA: bool = false;

fn past_state(at: u32) -> f32 {
    return 0.0;
}

fn decay(at: u32) -> f32 {
    return 1.0;
}

fn beta(at: u32) -> f32 {
    return 1.0;
}

fn x0(at: u32) -> f32 {
    return 0.0;
}

fn x1(at: u32) -> f32 {
    return 0.0;
}

fn x2(at: u32) -> f32 {
    return 0.0;
}

fn emit0(at: u32, v: f32) {
}

fn emit1(at: u32, v: f32) {
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

fn lo() -> u32 {
    return 0u;
}

fn hi() -> u32 {
    return 1u;
}
