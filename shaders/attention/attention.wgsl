// Attention: scores, softmax and weighted sum, one pass each, with the weights in scratch memory.

struct AttentionParams {
    size: u32,
    v_size: u32,
    keys: u32,
    queries: u32,
    q_heads: u32,
    kv_heads: u32,
    batch: u32,
    past: u32,
    flat: u32,
    causal: u32,
    scale: f32,
    cap: f32,
    mask_keys: u32,
    mask_offset: u32,
    mask_batch: u32,
    mask_head: u32,
    mask_query: u32,
    mask_key: u32,
    q_offset: u32,
    q_batch: u32,
    q_head: u32,
    q_position: u32,
    k_offset: u32,
    k_batch: u32,
    k_head: u32,
    k_position: u32,
    v_offset: u32,
    v_batch: u32,
    v_head: u32,
    v_position: u32,
    past_k_offset: u32,
    past_k_batch: u32,
    past_k_head: u32,
    past_k_position: u32,
    past_v_offset: u32,
    past_v_batch: u32,
    past_v_head: u32,
    past_v_position: u32,
}

fn attention_params() -> AttentionParams {
    return AttentionParams(
        word(0u),
        word(1u),
        word(2u),
        word(3u),
        word(4u),
        word(5u),
        word(6u),
        word(7u),
        word(8u),
        word(9u),
        bitcast<f32>(word(10u)),
        bitcast<f32>(word(11u)),
        word(12u),
        word(13u),
        word(14u),
        word(15u),
        word(16u),
        word(17u),
        word(18u),
        word(19u),
        word(20u),
        word(21u),
        word(22u),
        word(23u),
        word(24u),
        word(25u),
        word(26u),
        word(27u),
        word(28u),
        word(29u),
        word(30u),
        word(31u),
        word(32u),
        word(33u),
        word(34u),
        word(35u),
        word(36u),
        word(37u),
    );
}

// Component d of position s of head h: heads before positions, or behind them in flat inputs.
fn place(p: AttentionParams, b: u32, h: u32, s: u32, d: u32, heads: u32, len: u32, size: u32) -> u32 {
    let flat = ((b * len + s) * heads + h) * size + d;
    return select(((b * heads + h) * len + s) * size + d, flat, p.flat != 0u);
}

fn key(p: AttentionParams, b: u32, h: u32, j: u32, d: u32) -> f32 {
    if (HAS_PAST) {
        if (j < p.past) {
            return x4(((b * p.kv_heads + h) * p.past + j) * p.size + d);
        }
    }
    return x1(place(p, b, h, j - p.past, d, p.kv_heads, p.keys - p.past, p.size));
}

fn value(p: AttentionParams, b: u32, h: u32, j: u32, d: u32) -> f32 {
    if (HAS_PAST) {
        if (j < p.past) {
            return x5(((b * p.kv_heads + h) * p.past + j) * p.v_size + d);
        }
    }
    return x2(place(p, b, h, j - p.past, d, p.kv_heads, p.keys - p.past, p.v_size));
}

fn product(p: AttentionParams, b: u32, h: u32, i: u32, j: u32) -> f32 {
    var sum = 0.0;
    let kv = h * p.kv_heads / p.q_heads;
    for (var d = 0u; d < p.size; d++) {
        sum += x0(place(p, b, h, i, d, p.q_heads, p.queries, p.size)) * key(p, b, kv, j, d);
    }
    return sum * p.scale;
}

// Keys of batch entry b that count, where lengths are given (`HAS_LENGTHS`).
fn length_of(b: u32) -> i32 {
    return max(near6(b), 0);
}

// The bias that is added to a score; minus infinity for keys that take no part.
fn bias(p: AttentionParams, b: u32, h: u32, i: u32, j: u32) -> f32 {
    let out = cf(0xff800000u);
    // Position of the query among the keys.
    var own = i32(i + p.past);
    if (HAS_LENGTHS) {
        own = length_of(b) + (i32(i) - i32(p.queries));
    }
    if (p.causal != 0u && i32(j) > own) {
        return out;
    }
    if (LEFT >= 0 && own - i32(j) > LEFT) {
        return out;
    }
    if (RIGHT >= 0 && i32(j) - own > RIGHT) {
        return out;
    }
    if (HAS_LENGTHS) {
        if (j >= u32(length_of(b))) {
            return out;
        }
    }
    if (HAS_MASK) {
        if (j >= p.mask_keys) {
            return out;
        }
        return masked(b * p.mask_batch + h * p.mask_head + i * p.mask_query + j * p.mask_key);
    }
    return 0.0;
}

fn capped(p: AttentionParams, x: f32) -> f32 {
    if (p.cap > 0.0) {
        return p.cap * ktanh(x / p.cap);
    }
    return x;
}

// A score with its cap and bias; a key that takes no part has minus infinity whatever its product is.
fn score(p: AttentionParams, b: u32, h: u32, i: u32, j: u32) -> f32 {
    let added = bias(p, b, h, i, j);
    if (is_inf(added) && added < 0.0) {
        return added;
    }
    // Only what is hidden behind a number has a bias above 0.
    if (HIDES && added > 0.0) {
        return cf(HIDDEN);
    }
    return capped(p, product(p, b, h, i, j)) + added;
}

// A thread a score.
@compute @workgroup_size(64)
fn scores(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let p = attention_params();
    let j = t % p.keys;
    let i = t / p.keys % p.queries;
    let h = t / p.keys / p.queries % p.q_heads;
    let b = t / p.keys / p.queries / p.q_heads;
    scratch[t] = bitcast<u32>(score(p, b, h, i, j));
}

var<workgroup> shared_values: array<f32, 64>;

fn greatest_of_all(lane: u32, v: f32) -> f32 {
    shared_values[lane] = v;
    workgroupBarrier();
    var r = shared_values[0];
    for (var k = 1u; k < 64u; k++) {
        r = kmax(r, shared_values[k]);
    }
    workgroupBarrier();
    return r;
}

fn sum_of_all(lane: u32, v: f32) -> f32 {
    shared_values[lane] = v;
    workgroupBarrier();
    var r = 0.0;
    for (var k = 0u; k < 64u; k++) {
        r += shared_values[k];
    }
    workgroupBarrier();
    return r;
}

// A workgroup a row of scores.
@compute @workgroup_size(64)
fn weigh(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let block = block_of(id, blocks);
    if (block >= grid()) {
        return;
    }
    let n = attention_params().keys;
    let row = block * n;
    var top = cf(0xff800000u);
    for (var j = lane; j < n; j += 64u) {
        top = kmax(top, bitcast<f32>(scratch[row + j]));
    }
    top = greatest_of_all(lane, top);
    let none = is_inf(top) && top < 0.0;
    var sum = 0.0;
    for (var j = lane; j < n; j += 64u) {
        let e = kexp(bitcast<f32>(scratch[row + j]) - top);
        scratch[row + j] = bitcast<u32>(e);
        sum += e;
    }
    sum = sum_of_all(lane, sum);
    for (var j = lane; j < n; j += 64u) {
        let w = bitcast<u32>(bitcast<f32>(scratch[row + j]) / sum);
        let empty = none || (ZERO_NAN && (w & 0x7fffffffu) > 0x7f800000u);
        scratch[row + j] = select(w, select(0x7fc00000u, 0u, ZERO_EMPTY), empty);
    }
}

// A thread a component of the result, summed over keys lo() .. hi(); sums so far lie behind the scores.
@compute @workgroup_size(64)
fn mix(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let p = attention_params();
    let d = t % p.v_size;
    let i = t / p.v_size % p.queries;
    let h = t / p.v_size / p.queries % p.q_heads;
    let b = t / p.v_size / p.queries / p.q_heads;
    let row = ((b * p.q_heads + h) * p.queries + i) * p.keys;
    let kv = h * p.kv_heads / p.q_heads;
    let sums = p.batch * p.q_heads * p.queries * p.keys;
    var sum = 0.0;
    if (lo() > 0u) {
        sum = bitcast<f32>(scratch[sums + t]);
    }
    for (var j = lo(); j < hi(); j++) {
        sum += bitcast<f32>(scratch[row + j]) * value(p, b, kv, j, d);
    }
    if (hi() < p.keys) {
        scratch[sums + t] = bitcast<u32>(sum);
    } else {
        emit0(place(p, b, h, i, d, p.q_heads, p.queries, p.v_size), sum);
    }
}

// A thread a component of the keys, past and new.
@compute @workgroup_size(64)
fn keys(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let p = attention_params();
    let d = t % p.size;
    let j = t / p.size % p.keys;
    let h = t / p.size / p.keys % p.kv_heads;
    emit1(t, key(p, t / p.size / p.keys / p.kv_heads, h, j, d));
}

@compute @workgroup_size(64)
fn values(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let p = attention_params();
    let d = t % p.v_size;
    let j = t / p.v_size % p.keys;
    let h = t / p.v_size / p.keys % p.kv_heads;
    emit2(t, value(p, t / p.v_size / p.keys / p.kv_heads, h, j, d));
}

// Writes the output of scores, whose contents `QK` chooses: products, capped products, scores, or weights.
@compute @workgroup_size(64)
fn qk(
    @builtin(workgroup_id) id: vec3<u32>,
    @builtin(num_workgroups) blocks: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let t = block_of(id, blocks) * 64u + lane;
    if (t >= grid()) {
        return;
    }
    let p = attention_params();
    let j = t % p.keys;
    let i = t / p.keys % p.queries;
    let h = t / p.keys / p.queries % p.q_heads;
    let b = t / p.keys / p.queries / p.q_heads;
    if (QK == 0u) {
        emit3(t, product(p, b, h, i, j));
    } else if (QK == 1u) {
        emit3(t, capped(p, product(p, b, h, i, j)));
    } else if (QK == 2u) {
        emit3(t, score(p, b, h, i, j));
    } else {
        emit3(t, bitcast<f32>(scratch[t]));
    }
}

// Stand-ins for what a generated module defines.

@group(0) @binding(1) var<storage, read_write> scratch: array<u32>;
const HAS_PAST: bool = false;
const HAS_MASK: bool = false;
const HAS_LENGTHS: bool = false;
const HIDES: bool = false;
const HIDDEN: u32 = 0u;
const LEFT: i32 = -1;
const RIGHT: i32 = -1;
const ZERO_NAN: bool = false;
const ZERO_EMPTY: bool = false;
const QK: u32 = 0u;

fn masked(at: u32) -> f32 {
    return 0.0;
}

fn near6(at: u32) -> i32 {
    return 0;
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

fn x4(at: u32) -> f32 {
    return 0.0;
}

fn x5(at: u32) -> f32 {
    return 0.0;
}

fn emit0(at: u32, v: f32) {
}

fn emit1(at: u32, v: f32) {
}

fn emit2(at: u32, v: f32) {
}

fn emit3(at: u32, v: f32) {
}

fn cf(bits: u32) -> f32 {
    return bitcast<f32>(bits);
}

fn is_inf(x: f32) -> bool {
    return false;
}

fn ktanh(x: f32) -> f32 {
    return x;
}

fn kexp(x: f32) -> f32 {
    return x;
}

fn kmax(a: f32, b: f32) -> f32 {
    return max(a, b);
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
